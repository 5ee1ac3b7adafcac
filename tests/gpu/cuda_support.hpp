// What the tests need of the CUDA runtime: errors as exceptions, a stream, and a way to hold one up.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

namespace came::test {

/// Throws what a call of the runtime complains of.
inline void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(status));
}

/// A stream that does not wait for the default one.
class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Has a stream done all its work?
inline bool is_idle(cudaStream_t stream) {
  const cudaError_t status = cudaStreamQuery(stream);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // an answer, but remembered as an error
    return false;
  }
  check(status);
  return true;
}

/// Waits for a condition, but not for ever.
template <class F>
bool holds_within(std::chrono::seconds limit, F condition) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

/// Holds a stream up until it is released, but no longer than ten seconds, so that no failure can hang a run.
class HeldUp {
 public:
  explicit HeldUp(cudaStream_t stream) { check(cudaLaunchHostFunc(stream, wait, this)); }
  ~HeldUp() {
    release();
    holds_within(2 * kLimit, [this] { return ended_.load(); });
  }
  HeldUp(const HeldUp&) = delete;
  HeldUp& operator=(const HeldUp&) = delete;

  void release() { released_ = true; }
  /// Is the stream held up still?
  [[nodiscard]] bool holds() const { return !ended_; }

 private:
  static constexpr std::chrono::seconds kLimit{10};

  static void wait(void* self) {
    auto* held = static_cast<HeldUp*>(self);
    holds_within(kLimit, [held] { return held->released_.load(); });
    held->ended_ = true;
  }

  std::atomic<bool> released_ = false;
  std::atomic<bool> ended_ = false;
};

}  // namespace came::test
