// LAMB: docs/algorithms.md, equations (19) and (22) to (24).
// Two passes; bytes per parameter: moments with both norms G + 2M + 2V + P, apply M + V + 2P.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/lamb.cpp"
#include "hwy/foreach_target.h"

#include "cpu/kernels.hpp"
#include "cpu/moments-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace came::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void run_as(const Subject& s, PhaseKind phase, const Tile& tile) {
  const bool corrects = s.o.bias_correction != 0;
  const double correction1 = corrects ? algorithms::bias_correction(s.o.beta1, s.count) : 1.0;
  const double correction2 = corrects ? algorithms::bias_correction(s.o.beta2, s.count) : 1.0;
  const Vec<T> multiplier = set(static_cast<T>(s.multiplier));
  const Vec<T> sign = set(static_cast<T>(s.sign));
  const Vec<T> scale = set(static_cast<T>(1 / correction1));
  const Vec<T> root = set(static_cast<T>(1 / std::sqrt(correction2)));
  const Vec<T> eps = set(static_cast<T>(s.o.eps));
  const Vec<T> decay = set(static_cast<T>(s.o.weight_decay));

  const bool cautious = s.o.cautious != 0;

  for_spans(s, tile, [&](int64_t b, const Span& span) {
    HWY_ALIGN T scratch[4][kChunk];
    const bool reads_gradient = phase == PhaseKind::moments || cautious;
    const T* g = reads_gradient ? values_of(s.grad, span, scratch[0]) : nullptr;
    T* p = values_of(s.param, span, scratch[1]);
    T* m = values_of(s.momentum, span, scratch[2]);
    T* v = values_of(s.second_moment, span, scratch[3]);
    const auto gradient = [=](size_t k, auto at) CAME_LANES { return hn::Mul(at.load(g + k), multiplier); };
    // The update before the trust ratio, from the stored moments: (22).
    const auto direction = [=](size_t k, auto at, Vec<T> first, Vec<T> mean) CAME_LANES {
      const Vec<T> divisor = hn::Add(hn::Mul(hn::Sqrt(mean), root), eps);
      const Vec<T> adam = hn::Div(hn::Mul(first, scale), divisor);
      const Vec<T> u = hn::Add(adam, hn::Mul(decay, at.load(p + k)));
      return cautious ? hn::Mul(u, agreeing<T>(u, hn::Mul(at.load(g + k), sign))) : u;
    };
    if (phase == PhaseKind::moments) {
      Sum<T> param_squares;
      Sum<T> update_squares;
      update_moments(s, span, m, v, gradient, [&](size_t k, auto at, Vec<T> first, Vec<T> mean) CAME_LANES {
        param_squares.add(k, square(at.load(p + k)));
        update_squares.add(k, square(direction(k, at, first, mean)));
      });
      const Partials<T> out = s.partials<T>(phase, tile);
      out.scalars[core::kLambParameterSquares] +=
          sound_squares<T>(param_squares.total(), span.n, [=](size_t k, auto at) CAME_LANES { return at.load(p + k); });
      out.scalars[core::kLambUpdateSquares] += sound_squares<T>(
          update_squares.total(), span.n,
          [=](size_t k, auto at) CAME_LANES { return direction(k, at, at.load(m + k), at.load(v + k)); });
    } else {  // (24)
      const Vec<T> step = set(static_cast<T>(s.lr * s.matrix_scalars(b).direction));
      for_lanes<T>(span.n, [=](size_t k, auto at) CAME_LANES {
        const Vec<T> move =
            hn::Add(hn::Zero(Lanes<T>()), hn::Mul(step, direction(k, at, at.load(m + k), at.load(v + k))));
        at.store(hn::Sub(at.load(p + k), move), p + k);
      });
      store(s.param, span, p);
    }
  });
}

/// The trust ratio: (23).
template <class T>
void finish_as(const Subject& s, PhaseKind done) {
  if (done != PhaseKind::moments) return;
  const double ratio = algorithms::trust_ratio(s.total(PhaseKind::moments, core::kLambParameterSquares),
                                               s.total(PhaseKind::moments, core::kLambUpdateSquares));
  for (int64_t b = 0; b < s.t.local_sets(); ++b) s.matrix_scalars(b).direction = ratio;
}

}  // namespace

constexpr Kernel kLamb = kernel_by_type<finish_as<float>, finish_as<double>, run_as<float>, run_as<double>>();

}  // namespace HWY_NAMESPACE
}  // namespace came::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace came::cpu {

const Kernel& lamb_kernel(Target chosen) { CAME_CPU_CHOOSE(kLamb, chosen); }

}  // namespace came::cpu
#endif
