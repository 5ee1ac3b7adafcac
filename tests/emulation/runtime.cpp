// CUDA's runtime on the host.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "cuda/teams.hpp"
#include "cuda_runtime_api.h"

namespace came::test {
namespace {

constexpr size_t kAllMemory = size_t{64} << 30;
constexpr size_t kAlignment = 256;

struct Device {
  std::map<void*, size_t> memory;
  size_t used = 0;
  EmulatedStream standard;
  std::set<EmulatedStream*> streams{&standard};
  std::mt19937_64 random{1};
};
Device& device() {
  static Device one;
  return one;
}

EmulatedStream& of(cudaStream_t stream) { return stream == nullptr ? device().standard : *stream; }

void wait_for_all() {
  for (EmulatedStream* stream : device().streams) stream->finish();
}

}  // namespace

void EmulatedStream::add(Work work) {
  if (captured != nullptr) return captured->push_back(std::move(work));
  if (!work.beside) finish();
  pending.push_back(std::move(work));
}

void EmulatedStream::finish() {
  std::shuffle(pending.begin(), pending.end(), device().random);
  const std::vector<Work> all = std::exchange(pending, {});
  for (const Work& work : all) work.run();
}

cudaError_t enqueue(const cudaLaunchConfig_t& config, std::function<void()> kernel) {
  const bool special = config.numAttrs > 0;
  const bool together = special && config.attrs->id == cudaLaunchAttributeCooperative;
  const Emulator::Shape shape{static_cast<int>(config.gridDim.x), static_cast<int>(config.blockDim.x),
                              config.dynamicSmemBytes, together};
  of(config.stream)
      .add({[shape, run = std::move(kernel)] { Emulator::launch(shape, device().random(), run); },
            special && !together});
  return cudaSuccess;
}

}  // namespace came::test

using came::test::device;
using came::test::of;

const char* cudaGetErrorName(cudaError_t error) { return error == cudaSuccess ? "cudaSuccess" : "cudaError"; }
const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "an error"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* number) {
  *number = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int number) { return number == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  cudaDeviceProp properties{};
  cudaGetDeviceProperties(&properties, 0);
  *value = attribute == cudaDevAttrCooperativeLaunch     ? 1
           : attribute == cudaDevAttrMultiProcessorCount ? properties.multiProcessorCount
                                                         : static_cast<int>(properties.sharedMemPerMultiprocessor);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {came::cuda::kMostPieces, size_t{228} << 10};
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  came::test::wait_for_all();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const size_t whole = (bytes + came::test::kAlignment - 1) / came::test::kAlignment * came::test::kAlignment;
  *memory = std::aligned_alloc(came::test::kAlignment, whole);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*memory, 0xff, whole);
  device().memory[*memory] = whole;
  device().used += whole;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  came::test::wait_for_all();
  const auto found = device().memory.find(memory);
  if (found == device().memory.end()) return cudaSuccess;
  device().used -= found->second;
  device().memory.erase(found);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* left, size_t* all) {
  *left = came::test::kAllMemory - device().used;
  *all = came::test::kAllMemory;
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  came::test::wait_for_all();
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int byte, size_t bytes) {
  came::test::wait_for_all();
  if (bytes > 0) std::memset(to, byte, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new came::test::EmulatedStream;
  device().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  stream->finish();
  device().streams.erase(stream);
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  of(stream).finish();
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  of(stream).captured = new std::vector<came::test::Work>;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = std::exchange(of(stream).captured, nullptr);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* replay, cudaGraph_t graph, unsigned long long) {
  *replay = new std::vector<came::test::Work>(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t replay) {
  delete replay;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t replay, cudaStream_t stream) {
  for (const came::test::Work& work : *replay) of(stream).add(work);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t stream) {
  of(stream).add({[to, byte, bytes] { std::memset(to, byte, bytes); }, false});
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  attributes->ptxVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
