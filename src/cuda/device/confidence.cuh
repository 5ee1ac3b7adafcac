// CAME's instability and what follows from it, and its last two passes over tensors without rows and columns:
// docs/algorithms.md, equations (9) to (13).
#pragma once

#include "cuda/device/application.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/update.cuh"

namespace came::cuda {

template <class T>
__device__ Averages<T> instability(const Subject<T>& s) {
  return {s, s.template state<T>(s.t.states.res_row), s.template state<T>(s.t.states.res_col), s.o.beta3, s.o.eps2};
}

/// (11) and (12) for matrix b.
template <int Threads, class T>
CAME_ROUTE void finish_momentum(const Team<Threads>& team, const Subject<T>& s, int phase, int64_t b, bool tiles) {
  const double mean = s.t.factored ? instability(s).finish(team, phase, b, tiles, nullptr) : 1.0;
  const double correction = s.o.bias_correction != 0 ? s.k.correction3 : 1.0;
  if (team.rank == 0) s.matrix_scalars(b).confidence = sqrt(mean * correction);
}

/// (9) for a tensor without rows and columns; (10) and (11) with `confidence_1d`.
template <class K>
CAME_ROUTE void blend_elements(const Update<typename K::T>& update, const Part& part, int& agreements) {
  using T = typename K::T;
  using S = typename Statistic<T>::Type;
  constexpr int N = K::N;
  const Subject<T>& s = update.s;
  const Team<kWide> team;
  const Place grad = s.grad(part.batch);
  const Place momentum = s.momentum(part.batch);
  const Place full = s.full(s.t.states.full, part.batch);
  const Place residual = s.full(s.t.states.res_full, part.batch);
  const T rate = static_cast<T>(algorithms::rate_of(s.o.beta1));
  const T rate3 = static_cast<T>(algorithms::rate_of(s.o.beta3));
  const T eps = static_cast<T>(s.o.eps2);
  const T multiplier = update.gradient_multiplier();
  const T clip = update.full_clip();
  const T sign = s.sign();
  const bool cautious = !K::kPlain && s.o.cautious != 0;
  for_vectors<K, 1>(team, s, part.batch, part, [&](const typename K::At(&w)[1]) {
    T g[N];
    T m[N];
    T v[N];
    T u[N];
    K::Param::decode(grad, K::Param::template load<N>(grad, w[0]), g);
    K::Momentum::decode(momentum, K::Momentum::template load<N>(momentum, w[0]), m);
    S::decode(full, S::template load<N>(full, w[0]), v);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      u[n] = Update<T>::full_update(g[n], multiplier, v[n], clip);
      m[n] = w[0].has(n) ? blend(m[n], rate, u[n]) : T{0};
    }
    K::Momentum::store(momentum, w[0], m);
    if (residual) {
      T old[N];
      S::decode(residual, S::template load<N>(residual, w[0]), old);
#pragma unroll
      for (int n = 0; n < N; ++n) old[n] = blend(old[n], rate3, square(u[n] - m[n]) + eps);
      S::template store<N>(residual, w[0], old);
    }
    if (cautious) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        if (w[0].has(n)) agreements += static_cast<int>(agreeing(m[n], g[n] * sign));
      }
    }
  });
}

/// (13), likewise.
template <class K>
CAME_ROUTE void apply_elements(const Subject<typename K::T>& s, const Part& part) {
  using T = typename K::T;
  using S = typename Statistic<T>::Type;
  constexpr int N = K::N;
  const Apply<K> apply(s, part.batch);
  const Place residual = s.full(s.t.states.res_full, part.batch);
  const double by = s.k.lr * s.matrix_scalars(0).direction;
  const T step = static_cast<T>(residual ? by * s.matrix_scalars(0).confidence : by);
  for_vectors<K, 1>(Team<kNarrow>(), s, part.batch, part, [&](const typename K::At(&w)[1]) {
    const auto raw = apply.load(w[0]);
    T v[N];
    if (residual) S::decode(residual, S::template load<N>(residual, w[0]), v);
    apply(w[0], raw, [&](int n, T m) { return residual ? m * step / sqrt(v[n]) : m * step; });
  });
}

}  // namespace came::cuda
