// Adam and AdamW: docs/algorithms.md, equations (18) to (21).
// One pass, G + 2M + 2V + 2P bytes per parameter; `cautious` makes it two.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/adam.cpp"
#include "hwy/foreach_target.h"

#include "cpu/kernels.hpp"
#include "cpu/moments-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace came::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void run_as(const Subject& s, PhaseKind phase, const Tile& tile) {
  const bool l2 = s.plan.algorithm == Algorithm::adam && s.o.weight_decay != 0;
  const bool split = s.plan.find(PhaseKind::moments) >= 0;
  const bool blends = phase == PhaseKind::moments || !split;
  const bool applies = phase == PhaseKind::apply;
  const bool cautious = s.o.cautious != 0;
  const double decay = s.plan.algorithm == Algorithm::adamw ? s.lr * s.o.weight_decay : 0.0;
  const double correction1 = algorithms::bias_correction(s.o.beta1, s.count);
  const double correction2 = algorithms::bias_correction(s.o.beta2, s.count);
  const Vec<T> multiplier = set(static_cast<T>(s.multiplier));
  const Vec<T> sign = set(static_cast<T>(s.sign));
  const Vec<T> l2_rate = set(static_cast<T>(l2 ? s.o.weight_decay : 0.0));
  const Vec<T> root = set(static_cast<T>(1 / std::sqrt(correction2)));
  const Vec<T> eps = set(static_cast<T>(s.o.eps));
  const Vec<T> shrink = set(static_cast<T>(decay));

  for_spans(s, tile, [&](int64_t b, const Span& span) {
    HWY_ALIGN T scratch[4][kChunk];
    const T* g = values_of(s.grad, span, scratch[0]);
    T* p = values_of(s.param, span, scratch[1]);
    T* m = values_of(s.momentum, span, scratch[2]);
    T* v = values_of(s.second_moment, span, scratch[3]);
    const double scale = s.lr / correction1 * (cautious && applies ? s.matrix_scalars(b).direction : 1.0);
    const Vec<T> rate = set(static_cast<T>(scale));
    // (18)
    const auto gradient = [=](size_t k, auto at) CAME_LANES {
      const Vec<T> plain = hn::Mul(at.load(g + k), multiplier);
      return l2 ? hn::Add(plain, hn::Mul(l2_rate, at.load(p + k))) : plain;
    };
    // (3)
    const auto agreement = [=](size_t k, auto at, Vec<T> first) CAME_LANES {
      return agreeing<T>(first, l2 ? gradient(k, at) : hn::Mul(at.load(g + k), sign));
    };
    // (20), (21)
    const auto apply = [=](size_t k, auto at, Vec<T> first, Vec<T> mean) CAME_LANES {
      const Vec<T> divisor = hn::Add(hn::Mul(hn::Sqrt(mean), root), eps);
      Vec<T> move = hn::Div(hn::Mul(first, rate), divisor);
      if (cautious) move = hn::Mul(move, agreement(k, at, first));
      const Vec<T> old = at.load(p + k);
      const Vec<T> shrinkage = decay != 0 ? hn::Mul(shrink, old) : hn::Zero(Lanes<T>());
      at.store(hn::Sub(old, hn::Add(shrinkage, move)), p + k);
    };
    if (blends && applies) {
      update_moments(s, span, m, v, gradient, apply);
    } else if (blends) {
      Sum<T> agreements;
      update_moments(s, span, m, v, gradient, [&](size_t k, auto at, Vec<T> first, Vec<T>) CAME_LANES {
        agreements.add(k, agreement(k, at, first));
      });
      if (cautious) s.partials<T>(phase, tile).agreements() += agreements.total();
    } else {
      for_lanes<T>(span.n, [=](size_t k, auto at) CAME_LANES { apply(k, at, at.load(m + k), at.load(v + k)); });
    }
    if (applies) store(s.param, span, p);
  });
}

template <class T>
void finish_as(const Subject& s, PhaseKind done) {
  if (done == PhaseKind::moments) finish_agreement(s, PhaseKind::moments);
}

}  // namespace

constexpr Kernel kAdam = kernel_by_type<finish_as<float>, finish_as<double>, run_as<float>, run_as<double>>();

}  // namespace HWY_NAMESPACE
}  // namespace came::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace came::cpu {

const Kernel& adam_kernel(Target chosen) { CAME_CPU_CHOOSE(kAdam, chosen); }

}  // namespace came::cpu
#endif
