// Memory of CUDA device 0 for the tests.  Every call waits for the device and throws what it has to complain of.
#include "device.hpp"

#include "gpu/cuda_support.hpp"

namespace came::test::device {

bool present() {
  int devices = 0;
  const bool found = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
  cudaGetLastError();  // not the next check's to report
  return found;
}

void* allocate(int64_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, static_cast<size_t>(bytes > 0 ? bytes : 1)));
  return memory;
}

void release(void* memory) noexcept { cudaFree(memory); }

void upload(void* to, const void* from, int64_t bytes) {
  check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
  synchronize();  // the copy may return before the bytes arrive, and other streams do not wait for it
}

void download(void* to, const void* from, int64_t bytes) {
  synchronize();
  check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost));
}

void fill(void* to, int byte, int64_t bytes) {
  check(cudaMemset(to, byte, static_cast<size_t>(bytes)));
  synchronize();
}

void synchronize() {
  check(cudaGetLastError());
  check(cudaDeviceSynchronize());
}

}  // namespace came::test::device
