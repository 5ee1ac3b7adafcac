// Adafactor: docs/algorithms.md, equations (5) to (8) and (14) to (17).
// Two passes; bytes per parameter: statistics G, apply G + 2M + 2P.  `cautious` makes it three.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/adafactor.cpp"
#include "hwy/foreach_target.h"

#include "cpu/kernels.hpp"
#include "cpu/update-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace came::cpu {
namespace HWY_NAMESPACE {
namespace {

/// (14)
double beta2(const Subject& s) {
  return s.o.beta2_decay < 0 ? algorithms::growing_beta2(s.count, s.o.beta2_decay) : s.o.beta2;
}

/// (15): the learning rate, relative to the step and to the size of the parameter if so asked.
double rate(const Subject& s) {
  double rate = s.o.relative_step != 0 ? algorithms::relative_rate(s.o.warmup_init != 0, s.count) : s.lr;
  if (s.o.scale_parameter != 0) {
    const int scalar = core::parameter_squares_scalar(s.shape(PhaseKind::statistics));
    rate *= algorithms::parameter_scale(s.o.eps2, s.total(PhaseKind::statistics, scalar), s.elements());
  }
  return rate;
}

template <class T>
void run_statistics(const Subject& s, const Tile& tile) {
  Update<T>(s, beta2(s)).run_statistics(tile);
  if (s.o.scale_parameter == 0) return;
  double& sum = s.partials<T>(PhaseKind::statistics, tile).parameter_squares();
  for_spans(s, tile, [&](int64_t, const Span& span) {
    HWY_ALIGN T scratch[kChunk];
    const T* p = values_of(s.param, span, scratch);
    sum += squares_over<T>(span.n, [=](size_t k, auto at) CAME_LANES { return at.load(p + k); });
  });
}

/// What is done with the clipped update u(k, lanes) of a span: momentum (16), application (17), or both.
template <class T>
class Direction {
 public:
  Direction(const Subject& subject, bool momentum, bool apply, double* agreements)
      : s(subject), blends_(momentum && subject.momentum), applies_(apply), agreements_(agreements) {}

  template <class U>
  HWY_INLINE void operator()(const Span& span, const T* g, double alpha, double direction, const U& u) const {
    if (!s.momentum) {
      const Vec<T> multiplier = set(static_cast<T>(alpha));
      if (applies_) {
        move_param<T>(s, span, alpha * s.o.weight_decay,
                      [=](size_t k, auto at) CAME_LANES { return hn::Mul(u(k, at), multiplier); });
      }
      return;
    }
    HWY_ALIGN T scratch[kChunk];
    T* m = values_of(s.momentum, span, scratch);
    const bool in_momentum = s.o.lr_in_momentum != 0;
    const double decay = alpha * s.o.weight_decay;
    const Vec<T> step = set(static_cast<T>((in_momentum ? 1.0 : alpha) * direction));
    const Vec<T> rate = set(static_cast<T>(algorithms::rate_of(s.o.beta1)));
    const Vec<T> multiplier = set(static_cast<T>(in_momentum ? alpha : 1.0));
    const auto blend_lanes = [=](size_t k, auto at) CAME_LANES {
      const Vec<T> value = blend(at.load(m + k), rate, hn::Mul(u(k, at), multiplier));
      at.store(value, m + k);
      return value;
    };
    if (blends_ && applies_ && s.o.cautious == 0 && s.momentum.dtype == kType<T>) {
      move_param<T>(s, span, decay, [=](size_t k, auto at) CAME_LANES { return hn::Mul(blend_lanes(k, at), step); });
      return;
    }
    if (blends_) {
      for_lanes<T>(span.n, blend_lanes);
      store_rounded(s.momentum, span, m);
    }
    const Vec<T> sign = set(static_cast<T>(s.sign));
    const auto agreement = [=](size_t k, auto at)
                               CAME_LANES { return agreeing<T>(at.load(m + k), hn::Mul(at.load(g + k), sign)); };
    if (agreements_ != nullptr) *agreements_ += sum_over<T>(span.n, agreement);
    if (!applies_) return;
    if (s.o.cautious == 0) {
      move_param<T>(s, span, decay, [=](size_t k, auto at) CAME_LANES { return hn::Mul(at.load(m + k), step); });
    } else {
      move_param<T>(s, span, decay, [=](size_t k, auto at) CAME_LANES {
        return hn::Mul(hn::Mul(at.load(m + k), step), agreement(k, at));
      });
    }
  }

 private:
  const Subject& s;
  bool blends_;
  bool applies_;
  double* agreements_;
};

template <class T>
void pass(const Subject& s, const Tile& tile, const Direction<T>& direct) {
  const Update<T> update(s, beta2(s));
  const auto scale = [&](int64_t b) { return s.o.cautious != 0 ? s.matrix_scalars(b).direction : 1.0; };
  if (!s.t.factored) {
    for_spans(s, tile, [&](int64_t b, const Span& span) {
      HWY_ALIGN T scratch[kChunk];
      const T* g = values_of(s.grad, span, scratch);
      const T* v = update.full + s.grad.at(span);
      const Vec<T> multiplier = update.gradient_multiplier();
      const Vec<T> clip = update.full_clip();
      direct(span, g, s.matrix_scalars(b).rate, scale(b), [=](size_t k, auto at) CAME_LANES {
        return Update<T>::full_update(at.load(g + k), multiplier, at.load(v + k), clip);
      });
    });
    return;
  }
  for_panels(update.averages, tile, [&](int64_t b, Range rows, Range cols, const T* col_multipliers) {
    const double own = update.averages.own_root(b);
    update.averages.for_rows(b, rows, s.multiplier * own * s.matrix_scalars(b).update, [&](int64_t i, T of_row) {
      const Vec<T> row = set(of_row);
      for_chunks(cols, [&](int64_t j, int64_t n) {
        HWY_ALIGN T scratch[kChunk];
        const Span span = s.span(b, i, j, n);
        const T* g = values_of(s.grad, span, scratch);
        const T* col = col_multipliers + (j - cols.begin);
        direct(span, g, s.matrix_scalars(b).rate, scale(b),
               [=](size_t k, auto at) CAME_LANES { return hn::Mul(hn::Mul(at.load(g + k), row), at.load(col + k)); });
      });
    });
  });
}

template <class T>
void run_as(const Subject& s, PhaseKind phase, const Tile& tile) {
  const bool split = s.plan.find(PhaseKind::momentum) >= 0;
  if (phase == PhaseKind::statistics) run_statistics<T>(s, tile);
  if (phase == PhaseKind::rms) Update<T>(s, beta2(s)).run_rms(tile);
  if (phase == PhaseKind::momentum && s.momentum) {
    double* agreements = s.o.cautious != 0 ? &s.partials<T>(phase, tile).agreements() : nullptr;
    pass(s, tile, Direction<T>(s, true, false, agreements));
  }
  if (phase == PhaseKind::apply) pass(s, tile, Direction<T>(s, !split, true, nullptr));
}

template <class T>
void finish_as(const Subject& s, PhaseKind done) {
  if (done == PhaseKind::statistics) {
    Update<T>(s, beta2(s)).finish_statistics();
    for (int64_t b = 0; b < s.t.local_sets(); ++b) s.matrix_scalars(b).rate = rate(s);
  }
  if (done == PhaseKind::rms) Update<T>(s, beta2(s)).finish_rms();
  if (done == PhaseKind::momentum) finish_agreement(s, PhaseKind::momentum);
}

}  // namespace

constexpr Kernel kAdafactor = kernel_by_type<finish_as<float>, finish_as<double>, run_as<float>, run_as<double>>();

}  // namespace HWY_NAMESPACE
}  // namespace came::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace came::cpu {

const Kernel& adafactor_kernel(Target chosen) { CAME_CPU_CHOOSE(kAdafactor, chosen); }

}  // namespace came::cpu
#endif
