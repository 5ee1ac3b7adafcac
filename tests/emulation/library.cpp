// libcame_emulated.so: libcame with the CUDA backend on the emulated device, for programs that load it (CAME_LIBRARY).
// Memory of the device is the host's.
#include <cstdio>
#include <exception>

#include "cuda_runtime_api.h"

/// Waits for all that was launched; 0 once it has run, 1 where threads of a kernel wait for each other for ever.
extern "C" __attribute__((visibility("default"))) int came_emulated_wait() {
  try {
    return cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "emulated device: %s\n", error.what());
    return 1;
  }
}
