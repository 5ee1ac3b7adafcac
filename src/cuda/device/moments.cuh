// The two moments of Adam and LAMB: docs/algorithms.md, equation (19).
#pragma once

#include "cuda/device/factors.cuh"

namespace came::cuda {

/// N elements of parameter, gradient and both moments.
template <class K>
struct Moments {
  using T = typename K::T;
  /// Codes of a second moment are looked at at run time; all other kinds know it as a statistic.
  using V = std::conditional_t<std::is_same_v<typename K::Param, Any<T>>, Any<T>, typename Statistic<T>::Type>;
  static constexpr int N = K::N;

  Place grad, param, momentum, second;
  T factor, rate1, rate2;

  __device__ Moments(const Subject<T>& s, int64_t b)
      : grad(s.grad(b)),
        param(s.param(b)),
        momentum(s.momentum(b)),
        second(s.second(b)),
        factor(s.factor()),
        rate1(static_cast<T>(1 - s.o.beta1)),
        rate2(static_cast<T>(1 - s.o.beta2)) {}

  struct Loaded {
    typename K::Param::template Raw<N> g, p;
    typename K::Momentum::template Raw<N> m;
    typename V::template Raw<N> v;
  };
  __device__ Loaded load(const typename K::At& w, bool gradient) const {
    Loaded raw;
    if (gradient) raw.g = K::Param::template load<N>(grad, w);
    raw.p = K::Param::template load<N>(param, w);
    raw.m = K::Momentum::template load<N>(momentum, w);
    raw.v = V::template load<N>(second, w);
    return raw;
  }
  __device__ void gradient(const Loaded& raw, T (&g)[N]) const {
    K::Param::decode(grad, raw.g, g);
#pragma unroll
    for (int n = 0; n < N; ++n) g[n] *= factor;
  }
  /// Leaves in m and v what is stored.
  __device__ void blend_both(const typename K::At& w, const T (&g)[N], T (&m)[N], T (&v)[N]) const {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      m[n] = blend(m[n], rate1, g[n]);
      v[n] = blend(v[n], rate2, square(g[n]));
    }
    K::Momentum::store(momentum, w, m);
    V::store(second, w, v);
  }
};

}  // namespace came::cuda
