// The two moments of Adam and LAMB: docs/algorithms.md, equation (19).
#pragma once

#include "cuda/device/reduction.cuh"

namespace came::cuda {

/// What the formulas need beside the moments.
template <class T>
struct Rates {
  T l2, decay, root, eps, rate;

  __device__ Rates(const came_options& o, const Scalars& k, bool decoupled, double direction)
      : l2(static_cast<T>(decoupled ? 0.0 : o.weight_decay)),
        decay(static_cast<T>(decoupled ? k.lr * o.weight_decay : 0.0)),
        root(static_cast<T>(1 / sqrt(k.correction2))),
        eps(static_cast<T>(o.eps)),
        rate(static_cast<T>(k.lr / k.correction1 * direction)) {}
  explicit __device__ Rates(const MomentsSheet& s) : l2(s.l2), decay(s.decay), root(s.root), eps(s.eps), rate(s.rate) {}

  /// How far a parameter moves : (20)
  [[nodiscard]] __device__ T move(T m, T v) const { return m * rate / (sqrt(v) * root + eps); }
};

/// N elements of parameter, gradient and both moments.
template <class K>
struct Moments {
  using T = typename K::T;
  /// Codes of a second moment are looked at at run time; all other variants know it as a statistic.
  using V = std::conditional_t<std::is_same_v<typename K::Param, Any<T>>, Any<T>, typename Statistic<T>::Type>;
  static constexpr int N = K::N;

  Place grad, param, momentum, second;
  T multiplier, rate1, rate2;

  __device__ Moments(const Subject<T>& s, int64_t b)
      : grad(s.grad(b)),
        param(s.param(b)),
        momentum(s.momentum(b)),
        second(s.second(b)),
        multiplier(s.multiplier()),
        rate1(static_cast<T>(algorithms::rate_of(s.o.beta1))),
        rate2(static_cast<T>(algorithms::rate_of(s.o.beta2))) {}

  /// Of a tensor without rows and columns, from an element on.
  __device__ Moments(const MomentsSheet& s, int64_t first) : multiplier(s.multiplier), rate1(s.rate1), rate2(s.rate2) {
    const auto place = [&](uint64_t address, DType dtype, bool draws, uint64_t key) {
      const int64_t bytes = dtype == DType::f64                           ? 8 * first
                            : dtype == DType::f32                         ? 4 * first
                            : dtype == DType::bf16 || dtype == DType::f16 ? 2 * first
                            : dtype == DType::u8                          ? first / 2
                                                                          : first;
      return Place{reinterpret_cast<char*>(address + static_cast<uint64_t>(bytes)),
                   nullptr,
                   0,
                   dtype,
                   false,
                   draws,
                   key,
                   s.whole + static_cast<uint64_t>(first),
                   0};
    };
    grad = place(s.grad, s.grad_dtype, false, 0);
    param = place(s.param, s.dtype, s.stochastic != 0, s.keys[0]);
    momentum = place(s.momentum, s.momentum_dtype, s.stochastic != 0, s.keys[1]);
    if (s.momentum_scale != 0) momentum.scales = reinterpret_cast<float*>(s.momentum_scale) + first / kMomentumBlock;
    second = place(s.second, DType::f32, false, 0);
  }

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
    for (int n = 0; n < N; ++n) g[n] *= multiplier;
  }
  /// The same but for its size, which a product with a tiny multiplier would lose : (3)
  __device__ void signs(const Loaded& raw, T sign, T (&g)[N]) const {
    K::Param::decode(grad, raw.g, g);
#pragma unroll
    for (int n = 0; n < N; ++n) g[n] *= sign;
  }
  /// All of it, with the decay that counts as part of the gradient : (18)
  __device__ void decode(const Loaded& raw, T l2, T (&g)[N], T (&p)[N], T (&m)[N], T (&v)[N]) const {
    gradient(raw, g);
    K::Param::decode(param, raw.p, p);
    K::Momentum::decode(momentum, raw.m, m);
    V::decode(second, raw.v, v);
    if (l2 != T{0}) {
#pragma unroll
      for (int n = 0; n < N; ++n) g[n] += l2 * p[n];
    }
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
