// CAME on vectors in f32, all phases in one launch: docs/algorithms.md, equations (5) to (9) and (13) without rows and
// columns.  A block takes a vector, or a tile of a long one; what is added up, and in which order, is what phases one
// by one do.
//
// A step has hundreds of vectors and they hold next to nothing: what they cost is the waiting for one load after the
// other.  Hence all are sent for at once.  Blocks that share a vector wait for each other, where they are sure to run
// at the same time; the longest vectors begin first.  Where matrices are resident, vectors take the places of the
// blocks that end first.
#include "cuda/device/launch.cuh"
#include "cuda/device/notes.cuh"
#include "cuda/device/update.cuh"

namespace came::cuda {
namespace {

using Four = Vector<float, kColumns>;

/// Fours of a tile that a thread takes.
constexpr int kFours = kVectorTile / (kWide * kColumns);

/// `count` of them are left of the vector, perhaps fewer than four, or none.
__device__ __forceinline__ Four load_four(const float* from, int count) {
  if (count >= kColumns) return *reinterpret_cast<const Four*>(from);
  Four x{};
#pragma unroll
  for (int n = 0; n < kColumns - 1; ++n) {
    if (n < count) x.v[n] = from[n];
  }
  return x;
}
__device__ __forceinline__ void store_four(float* to, int count, const Four& x) {
  if (count >= kColumns) {
    *reinterpret_cast<Four*>(to) = x;
    return;
  }
#pragma unroll
  for (int n = 0; n < kColumns - 1; ++n) {
    if (n < count) to[n] = x.v[n];
  }
}

/// Stands at the beginning of a kernel that may run beside the one before: is not over before that is.  One block
/// waits, or others would find no place.
struct LastWaits {
  __device__ ~LastWaits() {
    if (blockIdx.x == gridDim.x - 1) await_launch_before();
  }
};

__global__ void __launch_bounds__(kWide, 2) vectors_kernel(const __grid_constant__ Args a, const VectorTable* vectors) {
  const LastWaits last_waits;
  if (is_skipped(a)) return;
  const VectorTable vector = vectors[blockIdx.x];
  Notes notes;
  notes.read(a, vector.tensor);
  if (!notes.is_active()) return;
  const Team<kWide> team;
  auto* const grad = notes.pointer<const float>(Word::grad);
  auto* const full = notes.pointer<float>(Word::row);
  auto* const momentum = notes.pointer<float>(Word::momentum);
  auto* const param = notes.pointer<float>(Word::param);
  const float multiplier = notes.rounded(Word::multiplier);
  // All of it is on its way before anybody waits for any.
  constexpr int kStride = kLine / static_cast<int>(sizeof(float));
  const int last = vector.first + vector.count;
  const int last_element = last < vector.tiles ? last * vector.each : vector.elements;
#pragma unroll 1
  for (int k = vector.first * vector.each + team.rank * kStride; k < last_element; k += kWide * kStride) {
    fetch_ahead(grad + k);
    fetch_ahead(full + k);
    fetch_ahead(momentum + k);
    fetch_ahead(param + k);
  }
  // Calls body(k, first, count) for the fours of a tile that are this thread's.
  const auto for_fours = [&](int tile, const auto& body) {
#pragma unroll
    for (int k = 0; k < kFours; ++k) {
      const int begin = tile * vector.each;
      const int end = begin + vector.each < vector.elements ? begin + vector.each : vector.elements;
      const int first = begin + (k * kWide + team.rank) * kColumns;
      body(k, first, first < end ? end - first : 0);
    }
  };

  __shared__ double sums[kVectorTiles][kWide / kWarp];
  const float rate2 = notes.rounded(Word::rate2);
  const float eps = notes.rounded(Word::eps1);
  Four g[kFours];
  Four v[kFours];
  Four m[kFours];
  Four p[kFours];
  const auto load_squares = [&](int tile) {
    for_fours(tile, [&](int k, int first, int count) {
      g[k] = load_four(grad + first, count);
      v[k] = load_four(full + first, count);
    });
  };
  const auto load_others = [&](int tile) {
    for_fours(tile, [&](int k, int first, int count) {
      m[k] = load_four(momentum + first, count);
      p[k] = load_four(param + first, count);
    });
  };
#pragma unroll 1
  for (int tile = vector.first; tile < last; ++tile) {
    load_squares(tile);
    double sum = 0;
    for_fours(tile, [&](int k, int first, int count) {
      float mine = 0;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const float x = g[k].v[n] * multiplier;
        v[k].v[n] = blend(v[k].v[n], rate2, square(x) + eps);
        if (n < count) mine += square(Update<float>::full_update(x, 1.0F, v[k].v[n], 1.0F));
      }
      store_four(full + first, count, v[k]);
      sum += static_cast<double>(mine);
    });
    sum = over_lanes<Add>(sum, kWarp);
    if (team.rank % kWarp == 0) sums[tile - vector.first][team.rank / kWarp] = sum;
  }
  load_others(last - 1);
  __syncthreads();
  double sum = 0;  // of a tile, in as many threads as there are tiles
  if (team.rank < vector.count) {
#pragma unroll 1
    for (const double of_warp : sums[team.rank]) sum += of_warp;
  }
  if (vector.count < vector.tiles) {
    double* of_tiles = a.sums + vector.sums;
    if (team.rank < vector.count) of_tiles[vector.first + team.rank] = sum;
    auto* counter = notes.pointer<unsigned>(Word::counter);
    raise(counter);
    await(counter, static_cast<unsigned>(vector.tiles));
    sum = team.rank < vector.tiles ? __ldcg(of_tiles + team.rank) : 0.0;
  }
  const double rms = sqrt(team.sum(sum) / static_cast<double>(vector.elements));
  const double most = notes.number(Word::clip);
  const double ratio = algorithms::clipping_ratio(rms, most);
  const auto clip = static_cast<float>(1.0 / ratio);
  const float rate1 = notes.rounded(Word::rate1);
  const float lr = notes.rounded(Word::lr);
  const float decay = notes.rounded(Word::decay);
#pragma unroll 1
  for (int tile = last - 1;; --tile) {  // which is still here
    for_fours(tile, [&](int k, int first, int count) {
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        m[k].v[n] = blend(m[k].v[n], rate1, Update<float>::full_update(g[k].v[n], multiplier, v[k].v[n], clip));
        p[k].v[n] = moved(p[k].v[n], decay, m[k].v[n] * lr);
      }
      store_four(momentum + first, count, m[k]);
      store_four(param + first, count, p[k]);
    });
    if (tile == vector.first) break;
    load_squares(tile - 1);
    load_others(tile - 1);
  }
}

}  // namespace

void run_vectors(const Args& args, const VectorTable* vectors, int64_t count, bool beside, const Queue& queue) {
  const Manner manner = beside ? Manner::beside : Manner::after;
  run_kernel(vectors_kernel, {count, kWide, 0, manner}, queue, args, vectors);
}

bool run_vectors_together(const Args& args, const VectorTable* vectors, int64_t count, const Queue& queue) {
  return run_together(vectors_kernel, {count, kWide, 0}, queue, args, vectors);
}

bool vectors_fit(int64_t count) {
  int device = 0;
  int sms = 0;
  int blocks = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "SMs");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, vectors_kernel, kWide, 0), "occupancy");
  return count <= int64_t{blocks} * sms;
}

}  // namespace came::cuda
