// The two moments of Adam and LAMB: docs/algorithms.md, equation (19).
#if defined(CAME_CPU_MOMENTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CAME_CPU_MOMENTS_INL
#undef CAME_CPU_MOMENTS_INL
#else
#define CAME_CPU_MOMENTS_INL
#endif

#include "cpu/tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace came::cpu {
namespace HWY_NAMESPACE {

/// m <- beta1 m + (1 - beta1) g and v <- beta2 v + (1 - beta2) g^2 for a span, and then, with what is stored,
/// next(k, lanes, m, v).  `m` and `v` are what values_of() gave.
template <class T, class Gradient, class Next>
HWY_INLINE void update_moments(const Subject& s, const Span& span, T* m, T* v, const Gradient& gradient,
                               const Next& next) {
  const Vec<T> rate1 = set(static_cast<T>(algorithms::rate_of(s.o.beta1)));
  const Vec<T> rate2 = set(static_cast<T>(algorithms::rate_of(s.o.beta2)));
  const bool plain = s.momentum.dtype == kType<T> && s.second_moment.dtype == kType<T>;
  const auto lanes = [&](size_t k, auto at) CAME_LANES {
    const Vec<T> g = gradient(k, at);
    const Vec<T> first = blend(at.load(m + k), rate1, g);
    const Vec<T> second = blend(at.load(v + k), rate2, square(g));
    at.store(first, m + k);
    at.store(second, v + k);
    if (plain) next(k, at, first, second);
  };
  for_lanes<T>(span.n, lanes);
  if (plain) return;
  store_rounded(s.momentum, span, m);
  store_rounded(s.second_moment, span, v);
  for_lanes<T>(span.n, [&](size_t k, auto at) CAME_LANES { next(k, at, at.load(m + k), at.load(v + k)); });
}

}  // namespace HWY_NAMESPACE
}  // namespace came::cpu
HWY_AFTER_NAMESPACE();

#endif
