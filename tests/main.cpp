// Runs the tests; on CUDA without a device it exits with 77, which CTest reports as skipped.
#include <cstdio>

#include "device.hpp"
#include "support.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr int kSkipped = 77;
  if (came::test::tested_backend_name() == "cuda" && !came::test::device::present()) {
    std::puts("skipped: no CUDA device");
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
