// Vectors on their way to shared memory several turns before their use: more of them than registers could hold.  Each
// thread has its own, and waits for nobody.
#pragma once

#include "cuda/device/storage.cuh"
#include "cuda/device/waiting.cuh"
#include "cuda/tables.hpp"

namespace came::cuda {

/// `Each` vectors in a turn.
template <class Storage, int N, int Threads, int Each, int Turns>
class Ahead {
 public:
  using Raw = typename Storage::template Raw<N>;
  static constexpr int kBytes = static_cast<int>(sizeof(Raw)) * Threads * Each * Turns;

  __device__ Ahead(void* memory, int rank) : first_(static_cast<Raw*>(memory) + rank) {}

  /// Sends for vector k of a turn; after all of a turn, sent() must follow.
  template <class W>
  __device__ __forceinline__ void send(int turn, int k, const Place& p, const W& w) const {
    Storage::send_for(slot(turn, k), p, w);
  }
  /// It, once it has arrived().
  template <class W>
  [[nodiscard]] __device__ __forceinline__ Raw take(int turn, int k, const Place& p, const W& w) const {
    return Storage::taken(*slot(turn, k), p, w);
  }

 private:
  [[nodiscard]] __device__ __forceinline__ Raw* slot(int turn, int k) const {
    static_assert((Turns & (Turns - 1)) == 0);
    return first_ + ((turn & (Turns - 1)) * Each + k) * Threads;
  }
  Raw* first_;
};

/// How many turns of so many bytes there is room for.
constexpr int turns_ahead(int bytes) { return 4 * bytes <= kAheadBytes ? 4 : 2 * bytes <= kAheadBytes ? 2 : 1; }

}  // namespace came::cuda
