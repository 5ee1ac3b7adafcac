// Vectors on their way to shared memory several rounds before their use: more of them than registers could hold.  Each
// thread has its own, and waits for nobody.
#pragma once

#include "cuda/device/storage.cuh"
#include "cuda/device/waiting.cuh"
#include "cuda/tables.hpp"

namespace came::cuda {

/// `Each` vectors in a round.
template <class Storage, int N, int Threads, int Each, int Rounds>
class Ahead {
 public:
  using Raw = typename Storage::template Raw<N>;
  static constexpr int kBytes = static_cast<int>(sizeof(Raw)) * Threads * Each * Rounds;

  __device__ Ahead(void* memory, int rank) : first_(static_cast<Raw*>(memory) + rank) {}

  /// Sends for vector k of a round; after all of a round, sent() must follow.
  template <class W>
  __device__ __forceinline__ void send(int round, int k, const Place& p, const W& w) const {
    Storage::send_for(slot(round, k), p, w);
  }
  /// It, once it has arrived().
  template <class W>
  [[nodiscard]] __device__ __forceinline__ Raw take(int round, int k, const Place& p, const W& w) const {
    return Storage::taken(*slot(round, k), p, w);
  }

 private:
  [[nodiscard]] __device__ __forceinline__ Raw* slot(int round, int k) const {
    static_assert((Rounds & (Rounds - 1)) == 0);
    return first_ + ((round & (Rounds - 1)) * Each + k) * Threads;
  }
  Raw* first_;
};

/// How many rounds of so many bytes there is room for.
constexpr int rounds_ahead(int bytes) { return 4 * bytes <= kAheadBytes ? 4 : 2 * bytes <= kAheadBytes ? 2 : 1; }

}  // namespace came::cuda
