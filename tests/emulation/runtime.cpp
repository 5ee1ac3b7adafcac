// CUDA's runtime on the host.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "cuda/blocks.hpp"
#include "cuda_runtime_api.h"

namespace came::test {
namespace {

constexpr size_t kAllMemory = size_t{64} << 30;
constexpr size_t kAlignment = 256;

// Of an SM and of a block.
constexpr size_t kSharedMemory = size_t{228} << 10;
constexpr size_t kReserved = 1024;
constexpr size_t kUnasked = size_t{48} << 10;
constexpr int kMostThreads = 1024;
constexpr int kThreadsOfSM = 2048;

/// The order of everything: the same in every run, unless CAME_EMULATION_SEED says otherwise.
uint64_t seed() {
  const char* given = std::getenv("CAME_EMULATION_SEED");
  return given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
}

struct Device {
  std::map<void*, size_t> memory;
  size_t used = 0;
  EmulatedStream standard;
  std::set<EmulatedStream*> streams{&standard};
  std::map<const void*, size_t> allowed;  ///< Shared memory of a kernel's blocks, where more was asked for.
  std::mt19937_64 random{seed()};
};
Device& device() {
  static Device one;
  return one;
}

EmulatedStream& of(cudaStream_t stream) { return stream == nullptr ? device().standard : *stream; }

/// For what may not happen while a stream is captured, such as to allocate or to wait: it spoils that.
bool captures() {
  bool any = false;
  for (EmulatedStream* stream : device().streams) {
    if (stream->captured != nullptr) any = stream->spoilt = true;
  }
  return any;
}
cudaError_t wait_for_all() {
  if (captures()) return cudaErrorStreamCaptureUnsupported;
  for (EmulatedStream* stream : device().streams) stream->finish();
  return cudaSuccess;
}
/// For what the default stream has to do; the others here do not wait for it, nor it for them.
cudaError_t wait_for_standard() {
  if (captures()) return cudaErrorStreamCaptureUnsupported;
  device().standard.finish();
  return cudaSuccess;
}

}  // namespace

void EmulatedStream::add(Work work) {
  if (captured != nullptr) return captured->push_back(std::move(work));
  pending.push_back(std::move(work));
  constexpr size_t kMost = 256;
  if (pending.size() > kMost) go_on();
}

void EmulatedStream::go_on() {
  const Work work = std::move(pending.front());
  pending.pop_front();
  work.run([this] {
    if (!pending.empty() && pending.front().beside) go_on();
  });
}

void EmulatedStream::finish() {
  while (!pending.empty()) {
    std::vector<EmulatedStream*> busy;
    for (EmulatedStream* stream : device().streams) {
      if (!stream->pending.empty()) busy.push_back(stream);
    }
    busy[device().random() % busy.size()]->go_on();
  }
}

Emulated& emulated() {
  static Emulated one;
  return one;
}

int blocks_that_fit(int threads, size_t bytes) {
  return std::min(kThreadsOfSM / threads, static_cast<int>(kSharedMemory / (bytes + kReserved)));
}

cudaError_t enqueue(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> run) {
  const bool special = config.numAttrs > 0;
  const bool together = special && config.attrs->id == cudaLaunchAttributeCooperative;
  Emulator::Shape shape{static_cast<int>(config.gridDim.x), static_cast<int>(config.blockDim.x),
                        config.dynamicSmemBytes, together};
  // What a device refuses.
  const auto allowed = device().allowed.find(kernel);
  const size_t most = allowed == device().allowed.end() ? kUnasked : allowed->second;
  if (shape.blocks < 1 || shape.threads < 1 || shape.threads > kMostThreads || shape.bytes > most) {
    return cudaErrorInvalidConfiguration;
  }
  if (together && !emulated().cooperative) return cudaErrorNotSupported;
  shape.places = blocks_that_fit(shape.threads, shape.bytes) * emulated().sms;
  if (together && shape.blocks > shape.places) return cudaErrorCooperativeLaunchTooLarge;
  ++emulated().launched[kernel];
  emulated().together += together ? 1 : 0;
  of(config.stream)
      .add({[shape, run = std::move(run)](const auto& next) { Emulator::launch(shape, device().random(), run, next); },
            special && !together});
  return cudaSuccess;
}

}  // namespace came::test

using came::test::device;
using came::test::emulated;
using came::test::of;

const char* cudaGetErrorName(cudaError_t error) {
  static constexpr const char* kNames[] = {"cudaSuccess",
                                           "cudaErrorInvalidValue",
                                           "cudaErrorMemoryAllocation",
                                           "cudaErrorInvalidConfiguration",
                                           "cudaErrorInvalidDevice",
                                           "cudaErrorNotReady",
                                           "cudaErrorStreamCaptureUnsupported",
                                           "cudaErrorCooperativeLaunchTooLarge",
                                           "cudaErrorNotSupported"};
  return kNames[error];
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
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
  const auto of_device = [&]() -> size_t {
    switch (attribute) {
      case cudaDevAttrCooperativeLaunch:
        return emulated().cooperative ? 1 : 0;
      case cudaDevAttrMultiProcessorCount:
        return came::cuda::kMostPieces;
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return came::test::kSharedMemory;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return emulated().shared_memory;
    }
    return 0;
  };
  *value = static_cast<int>(of_device());
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {came::cuda::kMostPieces, came::test::kSharedMemory};
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return came::test::wait_for_all(); }

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (came::test::captures()) return cudaErrorStreamCaptureUnsupported;
  const size_t whole = (bytes + came::test::kAlignment - 1) / came::test::kAlignment * came::test::kAlignment;
  *memory = std::aligned_alloc(came::test::kAlignment, whole);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*memory, 0xff, whole);
  device().memory[*memory] = whole;
  device().used += whole;
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  if (const cudaError_t error = came::test::wait_for_all(); error != cudaSuccess) return error;
  const auto found = device().memory.find(memory);
  if (found == device().memory.end()) return cudaErrorInvalidValue;
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
  if (const cudaError_t error = came::test::wait_for_standard(); error != cudaSuccess) return error;
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int byte, size_t bytes) {
  if (const cudaError_t error = came::test::wait_for_standard(); error != cudaSuccess) return error;
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
  if (came::test::captures()) return cudaErrorStreamCaptureUnsupported;
  of(stream).finish();
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  of(stream).captured = new std::vector<came::test::Work>;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = std::exchange(of(stream).captured, nullptr);
  return std::exchange(of(stream).spoilt, false) ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
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
  of(stream).add({[to, byte, bytes](const auto&) { std::memset(to, byte, bytes); }, false});
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {.ptxVersion = 90, .maxThreadsPerBlock = came::test::kMostThreads, .sharedSizeBytes = 0};
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  if (static_cast<size_t>(value) > emulated().shared_memory) return cudaErrorInvalidValue;
  ++emulated().questions;
  emulated().allowed[kernel].insert(value);
  device().allowed[kernel] = static_cast<size_t>(value);
  return cudaSuccess;
}
