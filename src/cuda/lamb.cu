// LAMB: docs/algorithms.md, equations (19) and (22) to (24).
// Two passes; bytes per parameter: moments with both norms G + 2M + 2V + P, apply M + V + 2P.
#include <type_traits>

#include "cuda/device/launch.cuh"
#include "cuda/device/moments.cuh"

namespace came::cuda {
namespace {

/// The trust ratio: (23).
template <int Threads, class T>
__device__ void finish_ratio(const Team<Threads>& team, const Subject<T>& s, int phase, bool tiles) {
  const double parameter = scalar_total(team, s, phase, core::kLambParameterSquares, tiles);
  const double update = scalar_total(team, s, phase, core::kLambUpdateSquares, tiles);
  const double ratio = algorithms::trust_ratio(parameter, update);
  for (int64_t b = team.rank; b < s.t.sets; b += Threads) s.matrix_scalars(b).direction = ratio;
}

template <class K>
__global__ void __launch_bounds__(kNarrow) lamb_kernel(const __grid_constant__ Args a) {
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
  const bool cautious = !K::kPlain && s.o.cautious != 0;
  const bool corrects = s.o.bias_correction != 0;
  const T scale = static_cast<T>(corrects ? 1 / s.k.correction1 : 1.0);
  const T root = static_cast<T>(corrects ? 1 / sqrt(s.k.correction2) : 1.0);
  const T eps = static_cast<T>(s.o.eps);
  const T decay = static_cast<T>(s.o.weight_decay);
  const T step = static_cast<T>(applies ? s.k.lr * s.matrix_scalars(0).direction : 0.0);
  const bool reads_gradient = !applies || cautious;
  double param_squares = 0;
  double update_squares = 0;
  for_vectors<K, R>(team, s, part.batch, part, [&](const typename K::At(&w)[R]) {
    typename Moments<K>::Loaded raw[R];
#pragma unroll
    for (int r = 0; r < R; ++r) raw[r] = moments.load(w[r], reads_gradient);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      T g[N] = {};
      T p[N];
      T m[N];
      T v[N];
      T u[N];
      T signs[N] = {};
      if (reads_gradient) moments.gradient(raw[r], g);
      if (cautious) moments.signs(raw[r], s.sign(), signs);
      K::Param::decode(moments.param, raw[r].p, p);
      K::Momentum::decode(moments.momentum, raw[r].m, m);
      Moments<K>::V::decode(moments.second, raw[r].v, v);
      if (!applies) moments.blend_both(w[r], g, m, v);
        // The update before the trust ratio, from the stored moments: (22).
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const T adam = m[n] * scale / (sqrt(v[n]) * root + eps);
        u[n] = adam + decay * p[n];
        if (cautious) u[n] *= agreeing(u[n], signs[n]);
      }
      if (applies) {  // (24)
#pragma unroll
        for (int n = 0; n < N; ++n) p[n] = moved(p[n], T{0}, step * u[n]);
        K::Param::store(moments.param, w[r], p);
        continue;
      }
#pragma unroll
      for (int n = 0; n < N; ++n) {
        if (!w[r].has(n)) p[n] = u[n] = 0;
      }
      param_squares += sound_squares(p);
      update_squares += sound_squares(u);
    }
  });
  if (applies) return;
  param_squares = team.sum(param_squares);
  update_squares = team.sum(update_squares);
  if (team.rank == 0) {
    s.scalars(part)[core::kLambParameterSquares] = param_squares;
    s.scalars(part)[core::kLambUpdateSquares] = update_squares;
  }
  arrive<Add>(
      team, s, part.batch, static_cast<const Averages<T>*>(nullptr), [](int64_t) {},
      [&] { finish_ratio(team, s, a.phase, true); });
}

__global__ void __launch_bounds__(kNarrow) finish_kernel(const __grid_constant__ Args a) {
  if (!is_finished_here(a)) return;
  const Team<kNarrow> team;
  with_subject(a, blockIdx.x, [&](const auto& s) {
    if (a.phase_kind == PhaseKind::moments) finish_ratio(team, s, a.phase, false);
  });
}

void run(const Args& args, const Launch& launch, const Queue& queue) {
  with_types(launch.variant, [&](auto types) {
    using K = decltype(types);
    launch_parts(lamb_kernel<K>, args, launch, kNarrow, 0, queue);
  });
}

void finish(const Args& args, const Queue& queue) { launch_tensors(finish_kernel, args, queue); }

}  // namespace

const Kernels& lamb_kernels() {
  static constexpr Kernels kernels{run, finish};
  return kernels;
}

}  // namespace came::cuda
