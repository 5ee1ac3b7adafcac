// libFuzzer's door to the check of one target; scripts/fuzz builds it with CAME_FUZZ_CHECK=check_TARGET.
#include "check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  came_fuzz::CAME_FUZZ_CHECK(std::as_bytes(std::span(data, size)));
  return 0;
}
