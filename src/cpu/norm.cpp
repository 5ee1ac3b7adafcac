// The squared norm of the gradient, for max_grad_norm: docs/algorithms.md, equation (2).  Reads G bytes per parameter.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/norm.cpp"
#include "hwy/foreach_target.h"

#include "cpu/kernels.hpp"
#include "cpu/tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace came::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void run_as(const Subject& s, PhaseKind phase, const Tile& tile) {
  double& sum = s.partials<T>(phase, tile).scalars[core::kGradientSquares];
  const Vec<T> multiplier = set(static_cast<T>(s.multiplier));
  for_spans(s, tile, [&](int64_t, const Span& span) {
    HWY_ALIGN T scratch[kChunk];
    const T* g = values_of(s.grad, span, scratch);
    sum += squares_over<T>(span.n, [=](size_t k, auto at) CAME_LANES { return hn::Mul(at.load(g + k), multiplier); });
  });
}

template <class T>
void finish_as(const Subject&, PhaseKind) {}

}  // namespace

constexpr Kernel kNorm = kernel_by_type<finish_as<float>, finish_as<double>, run_as<float>, run_as<double>>();

}  // namespace HWY_NAMESPACE
}  // namespace came::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace came::cpu {

const Kernel& norm_kernel(Target chosen) { CAME_CPU_CHOOSE(kNorm, chosen); }

}  // namespace came::cpu
#endif
