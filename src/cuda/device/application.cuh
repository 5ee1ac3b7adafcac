// CAME's last pass, for N elements: docs/algorithms.md, equation (13).
#pragma once

#include "cuda/device/subject.cuh"

namespace came::cuda {

/// theta <- theta - lr wd theta - lr m / sqrt(S) : (13)
template <class K>
struct Apply {
  using T = typename K::T;
  static constexpr int N = K::N;

  Place param, momentum, grad;
  T decay, sign;
  bool cautious;

  __device__ Apply(const Subject<T>& s, int64_t b)
      : param(s.param(b)),
        momentum(s.momentum(b)),
        grad(s.grad(b)),
        decay(static_cast<T>(s.k.lr * s.o.weight_decay)),
        sign(s.sign()),
        cautious(!K::kPlain && s.o.cautious != 0) {}

  struct Loaded {
    typename K::Param::template Raw<N> p;
    typename K::Momentum::template Raw<N> m;
  };
  __device__ Loaded load(const typename K::At& w) const {
    return {K::Param::template load<N>(param, w), K::Momentum::template load<N>(momentum, w)};
  }
  /// Moves by times(n, m).
  template <class Times>
  __device__ void operator()(const typename K::At& w, const Loaded& raw, const Times& times) const {
    T p[N];
    T m[N];
    T move[N];
    K::Param::decode(param, raw.p, p);
    K::Momentum::decode(momentum, raw.m, m);
#pragma unroll
    for (int n = 0; n < N; ++n) move[n] = times(n, m[n]);
    if (cautious) {
      T g[N];
      K::Param::decode(grad, K::Param::template load<N>(grad, w), g);
#pragma unroll
      for (int n = 0; n < N; ++n) move[n] *= agreeing(m[n], g[n] * sign);
    }
#pragma unroll
    for (int n = 0; n < N; ++n) p[n] = moved(p[n], decay, move[n]);
    K::Param::store(param, w, p);
  }
};

}  // namespace came::cuda
