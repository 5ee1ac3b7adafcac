// As much of CUDA's runtime as the library and its tests use, on the host: memory is the host's, and a launch runs when
// somebody waits for it.  Streams go on in any order.  A launch that may run beside the one before it begins when that
// one lets it, or is over.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "cuda/blocks.hpp"
#include "emulation/emulator.hpp"

enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorInvalidConfiguration,
  cudaErrorInvalidDevice,
  cudaErrorNotReady,
  cudaErrorStreamCaptureUnsupported,
  cudaErrorCooperativeLaunchTooLarge,
  cudaErrorNotSupported
};
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();

// One device.
enum cudaDeviceAttr {
  cudaDevAttrCooperativeLaunch,
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor,
  cudaDevAttrMaxSharedMemoryPerBlockOptin
};
struct cudaDeviceProp {
  int multiProcessorCount;
  size_t sharedMemPerMultiprocessor;
};
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceSynchronize();

// Memory.
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemGetInfo(size_t* left, size_t* all);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemset(void* to, int byte, size_t bytes);

// Streams and graphs.
namespace came::test {
struct Work {
  std::function<void(const std::function<void()>& next)> run;  ///< Calls `next` when the next work may begin early.
  bool beside;                                                 ///< May begin early.
};
struct EmulatedStream {
  std::deque<Work> pending;
  std::vector<Work>* captured = nullptr;  ///< Where work goes instead.
  bool spoilt = false;                    ///< Something happened that may not while it is.
  void add(Work work);
  /// Runs the next work, and what begins before that is over.
  void go_on();
  /// Runs all work; that of other streams goes on meanwhile.
  void finish();
};
}  // namespace came::test
using cudaStream_t = came::test::EmulatedStream*;
using cudaGraph_t = std::vector<came::test::Work>*;
using cudaGraphExec_t = std::vector<came::test::Work>*;
inline constexpr unsigned cudaStreamNonBlocking = 1;
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal };
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* replay, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t replay);
cudaError_t cudaGraphLaunch(cudaGraphExec_t replay, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t stream);
// Named by tests that are not run: nothing here happens while the host goes on.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* argument);
cudaError_t cudaStreamQuery(cudaStream_t stream);

// Launches.
struct dim3 {
  unsigned x = 1;
  dim3() = default;
  explicit dim3(unsigned count) : x(count) {}
};
enum cudaLaunchAttributeID { cudaLaunchAttributeCooperative, cudaLaunchAttributeProgrammaticStreamSerialization };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  union {
    int cooperative;
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};
struct cudaFuncAttributes {
  int ptxVersion;
  int maxThreadsPerBlock;
  size_t sharedSizeBytes;
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
namespace came::test {
/// What tests change about the device, and what they look at.
struct Emulated {
  bool cooperative = true;
  int sms = cuda::kMostPieces;                   ///< That blocks find; fewer in a green context.
  size_t shared_memory = size_t{227} << 10;      ///< Most that a block may ask for.
  std::map<const void*, std::set<int>> allowed;  ///< Of each kernel, every number of bytes that was asked for.
  int64_t questions = 0;                         ///< How often that was.
  std::map<const void*, int64_t> launched;       ///< How often each kernel was.
  int64_t together = 0;                          ///< Launches of blocks side by side.
};
Emulated& emulated();

/// On an SM, of so many threads and bytes of shared memory each.
int blocks_that_fit(int threads, size_t bytes);
}  // namespace came::test
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int threads, size_t bytes) {
  *blocks = came::test::blocks_that_fit(threads, bytes);
  return cudaSuccess;
}

namespace came::test {
cudaError_t enqueue(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> run);
}
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  std::tuple<Parameters...> kept(arguments...);
  return came::test::enqueue(*config, reinterpret_cast<const void*>(kernel),
                             [kernel, kept] { std::apply(kernel, kept); });
}
