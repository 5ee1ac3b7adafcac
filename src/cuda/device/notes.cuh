// What blocks that keep a piece of a resident matrix hold, and what they know of their matrix.
#pragma once

#include <cstddef>

#include "cuda/device/subject.cuh"
#include "cuda/device/waiting.cuh"
#include "cuda/resident.hpp"

namespace came::cuda {

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / kWarp;

/// Vectors of a piece that a thread takes: row by row, the columns of a row `kThreads` vectors at a time.
inline constexpr int kItems = kPiece / (kThreads * kColumns);
inline constexpr int kGroup = 4;  ///< Items taken together, and those on their way.

/// Scratch of a block, in floats: sums of each warp over a row's part of an item.
inline constexpr int kScratch = kItems * kWarps;

/// Four columns of a row: of the gradient, then of the momentum.
using Item = Vector<float, kColumns>;

/// Items that a thread keeps in registers, and in shared memory.
inline constexpr int kRegisters = 8;
inline constexpr int kShared = kItems - kRegisters;
inline constexpr size_t kBytes = (kShared + kGroup) * kThreads * sizeof(Item) + kScratch * sizeof(float);
static_assert(kBytes == kPieceBytes && kShared % kGroup == 0);

/// A place so many bytes further on, for those who go from item to item; where elements lie anywhere, W says where.
template <class W>
[[nodiscard]] __device__ __forceinline__ Place further(Place place, int bytes) {
  if constexpr (W::kPlain) place.data += bytes;
  return place;
}
/// An item of row i, the j-th across, at its place.
template <class W>
[[nodiscard]] __device__ __forceinline__ W at_item(int i, int j, bool there) {
  if constexpr (W::kPlain) {
    return {0, there};
  } else {
    return {i, int64_t{j} * kColumns, there ? kColumns : 0, false, kWarp};
  }
}

/// Brings an item to shared memory, some time before arrived(); zeros where there is none.
template <class W>
__device__ __forceinline__ void bring(Item* to, const Place& from, const W& w) {
  if constexpr (W::kPlain) {
    send_for(to, from.data + static_cast<size_t>(w.first) * sizeof(float), w.there);
  } else {
    *to = F32::load<kColumns>(from, w);
  }
}

/// What a block leaves for others beside sums per column.
enum class Sum : int32_t { squares, weighted, instability };

/// What a warp must know of a matrix and its piece of it: lane k has word k, so that nobody waits for memory and it
/// takes two registers.  All lanes must ask.
class Notes {
 public:
  __device__ __forceinline__ void read(const Args& a, int tensor) {
    mine_ = tensor < 0 ? 0 : __ldcg(a.sheets[tensor].word + threadIdx.x % kWarp);
  }
  /// What this lane keeps of a piece; null: there is none.
  [[nodiscard]] __device__ __forceinline__ static int32_t field(const PieceTable* piece) {
    static_assert(offsetof(PieceTable, tensor) == 0 && sizeof(PieceTable) == 5 * sizeof(int32_t));
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int field = lane < kFirst ? 0 : lane - kFirst + 1;
    return piece == nullptr ? -1 : __ldcg(reinterpret_cast<const int32_t*>(piece) + field);
  }
  __device__ __forceinline__ void read_piece(const Args& a, int32_t of_piece) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    read(a, __shfl_sync(kAll, of_piece, 0));
    if (lane >= kFirst) mine_ = static_cast<uint32_t>(of_piece);
  }
  __device__ __forceinline__ void put(Word k, int value) {
    if (static_cast<int>(threadIdx.x) % kWarp == static_cast<int>(k)) mine_ = static_cast<uint32_t>(value);
  }
  [[nodiscard]] __device__ __forceinline__ uint64_t word(Word k) const {
    const uint64_t upper = ask_lane(static_cast<uint32_t>(mine_ >> 32), static_cast<int>(k));
    return upper << 32 | ask_lane(static_cast<uint32_t>(mine_), static_cast<int>(k));
  }
  [[nodiscard]] __device__ __forceinline__ double number(Word k) const {
    return __longlong_as_double(static_cast<long long>(word(k)));
  }
  [[nodiscard]] __device__ __forceinline__ float rounded(Word k) const { return static_cast<float>(number(k)); }
  [[nodiscard]] __device__ __forceinline__ int whole(Word k) const {
    return static_cast<int>(ask_lane(static_cast<uint32_t>(mine_), static_cast<int>(k)));
  }
  template <class U>
  [[nodiscard]] __device__ __forceinline__ U* pointer(Word k) const {
    return reinterpret_cast<U*>(word(k));
  }
  [[nodiscard]] __device__ __forceinline__ bool is_active() const { return whole(Word::active) != 0; }
  /// Is it taken by kernels whose places are of type W?
  template <class W>
  [[nodiscard]] __device__ __forceinline__ bool is_taken() const {
    return whole(W::kPlain ? Word::active : Word::unaligned) != 0;
  }
  /// Parameter, gradient or momentum, from an element on.
  [[nodiscard]] __device__ __forceinline__ Place place(Word data, int64_t first) const {
    const int64_t cols = whole(Word::cols);
    return {reinterpret_cast<char*>(pointer<float>(data) + first), nullptr, cols, DType::f32, false, false, 0, 0, cols};
  }

 private:
  static constexpr int kFirst = static_cast<int>(Word::index);

  uint64_t mine_ = 0;
};

}  // namespace came::cuda
