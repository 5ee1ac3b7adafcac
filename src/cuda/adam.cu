// Adam and AdamW: docs/algorithms.md, equations (18) to (21).
// One pass, G + 2M + 2V + 2P bytes per parameter; `cautious` makes it two.
#include <type_traits>

#include "cuda/device/launch.cuh"
#include "cuda/device/moments.cuh"

namespace came::cuda {
namespace {

template <class K>
__global__ void __launch_bounds__(kNarrow, 4) moments_kernel(const __grid_constant__ Args a) {
  using T = typename K::T;
  constexpr int N = K::N;
  constexpr int R = N == 4 ? 2 : 1;
  const Beside beside(a);
  if (is_skipped(a)) return;
  const Desk& desk = desk_of(a);
  const Part& part = desk.part;
  const Subject<T> s(a, desk, K::kPlain);
  if (!is_taken<K>(a, s.k)) return;
  const Team<kNarrow> team;
  const Moments<K> moments(s, part.batch);
  const bool applies = a.phase_kind == PhaseKind::apply;
  const bool blends = !applies || a.split == 0;
  const bool cautious = !K::kPlain && s.o.cautious != 0;
  const bool decoupled = a.algorithm == Algorithm::adamw;
  const Rates<T> rates(s.o, s.k, decoupled, cautious && applies ? s.matrix_scalars(0).direction : 1.0);
  int agreements = 0;
  for_vectors<K, R>(team, s, part.batch, part, [&](const typename K::At(&w)[R]) {
    typename Moments<K>::Loaded raw[R];
#pragma unroll
    for (int r = 0; r < R; ++r) raw[r] = moments.load(w[r], true);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      T g[N];
      T p[N];
      T m[N];
      T v[N];
      moments.decode(raw[r], rates.l2, g, p, m, v);
      if (blends) moments.blend_both(w[r], g, m, v);
      if (cautious && rates.l2 == T{0}) moments.signs(raw[r], s.sign(), g);
      if (cautious && !applies) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
          if (w[r].has(n)) agreements += static_cast<int>(agreeing(m[n], g[n]));
        }
      }
      if (!applies) continue;
        // (20), (21)
#pragma unroll
      for (int n = 0; n < N; ++n) {
        T move = rates.move(m[n], v[n]);
        if (cautious) move *= agreeing(m[n], g[n]);
        p[n] = moved(p[n], rates.decay, move);
      }
      K::Param::store(moments.param, w[r], p);
    }
  });
  if (applies) return;
  if (cautious) count_agreement(team, s, agreements);
  arrive<Add>(
      team, s, part.batch, static_cast<const Averages<T>*>(nullptr), [](int64_t) {},
      [&] { finish_agreement(team, s, a.phase, true); });
}

/// Threads of a block that takes a chunk: each two vectors, and no second round.  Blocks are small and many, so that
/// the memory always has something to do.
constexpr int kOfChunk = kChunk / (2 * kColumns);

/// The same, in one pass, of tensors that are taken in chunks.
template <class K>
__global__ void __launch_bounds__(kOfChunk) chunk_kernel(const __grid_constant__ Args a) {
  using T = typename K::T;
  constexpr int N = K::N;
  constexpr int R = 2;
  const Beside beside(a);
  if (is_skipped(a)) return;
  const Chunk chunk = a.chunks[blockIdx.x];
  const MomentsSheet sheet = a.moments[chunk.tensor];
  if (!is_taken<K>(a, sheet)) return;
  const int64_t first = chunk.number * kChunk;
  const int64_t left = sheet.elements - first;
  const Moments<K> moments(sheet, first);
  const Rates<T> rates(sheet);
  typename K::At w[R];
  typename Moments<K>::Loaded raw[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int j = (r * kOfChunk + static_cast<int>(threadIdx.x)) * N;
    if constexpr (K::kPlain) {
      w[r] = {static_cast<uint32_t>(j), j < left};
    } else {
      const int count = j >= left ? 0 : left - j < N ? static_cast<int>(left - j) : N;
      w[r] = {0, j, count, sheet.vectors != 0 && count == N, kWarp};
    }
    raw[r] = moments.load(w[r], true);
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    T g[N];
    T p[N];
    T m[N];
    T v[N];
    moments.decode(raw[r], rates.l2, g, p, m, v);
    moments.blend_both(w[r], g, m, v);
#pragma unroll
    for (int n = 0; n < N; ++n) p[n] = moved(p[n], rates.decay, rates.move(m[n], v[n]));
    K::Param::store(moments.param, w[r], p);
  }
}

__global__ void __launch_bounds__(kNarrow) finish_kernel(const __grid_constant__ Args a) {
  if (!is_finished_here(a)) return;
  const Team<kNarrow> team;
  with_subject(a, blockIdx.x, [&](const auto& s) {
    if (a.phase_kind == PhaseKind::moments) finish_agreement(team, s, a.phase, false);
  });
}

void run(const Args& args, const Launch& launch, const Queue& queue) {
  with_types(launch.variant, [&](auto types) {
    using K = decltype(types);
    if constexpr (std::is_same_v<typename K::T, float>) {
      if (launch.work == Work::chunks) return launch_parts(chunk_kernel<K>, args, launch, kOfChunk, 0, queue);
    }
    launch_parts(moments_kernel<K>, args, launch, kNarrow, 0, queue);
  });
}

void finish(const Args& args, const Queue& queue) { launch_tensors(finish_kernel, args, queue); }

}  // namespace

const Kernels& adam_kernels() {
  static constexpr Kernels kernels{run, finish};
  return kernels;
}

}  // namespace came::cuda
