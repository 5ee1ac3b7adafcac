// libFuzzer's door to the check; scripts/fuzz builds and runs it.
#include <cstddef>
#include <cstdint>

#include "safetensors_check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lab_test::check_safetensors(std::as_bytes(std::span(data, size)));
  return 0;
}
