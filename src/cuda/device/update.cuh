// The clipped update that CAME and Adafactor share: docs/algorithms.md, equations (7) and (8).
#pragma once

#include "cuda/device/instructions.cuh"
#include "cuda/device/reduction.cuh"

namespace came::cuda {

template <class T>
struct Update {
  const Subject<T>& s;
  Averages<T> averages;

  explicit __device__ Update(const Subject<T>& subject)
      : s(subject),
        averages{subject, subject.template state<T>(subject.t.states.row),
                 subject.template state<T>(subject.t.states.col), subject.k.beta2, subject.o.eps1} {}

  /// What the gradients of row i are multiplied with, beside the column's reciprocal root.
  [[nodiscard]] __device__ T row_multiplier(int64_t b, int64_t i, double own) const {
    return averages.row_root(b, i, s.k.multiplier * own * s.matrix_scalars(b).update);
  }
  /// What the gradients of an unfactored tensor are multiplied with before they enter its update.
  [[nodiscard]] __device__ T gradient_multiplier() const { return static_cast<T>(s.k.multiplier); }
  /// The clipped update of its elements.  The multiplier comes first: it may be 0 where a gradient over a root
  /// overflows.
  [[nodiscard]] __device__ static T full_update(T g, T multiplier, T v, T clip) {
    if constexpr (std::is_same_v<T, float>) return nearly_over_root(g * multiplier, v) * clip;
    return g * multiplier / sqrt(v) * clip;
  }
  [[nodiscard]] __device__ T full_clip() const { return static_cast<T>(s.matrix_scalars(0).update); }
  /// An update that is not clipped yet may have a square beyond f32: its RMS is taken of so much of it.
  static constexpr double kRmsScale = 1 / algorithms::kWeightScale;

  /// (8), once the sum of the squared updates is known.
  template <int Threads>
  __device__ void clip(const Team<Threads>& team, double sum_of_squares) const {
    const double rms = sqrt(sum_of_squares / s.t.elements);
    const double ratio = algorithms::clipping_ratio(rms, s.o.clip_threshold);
    for (int64_t b = team.rank; b < s.t.sets; b += Threads) s.matrix_scalars(b).update /= ratio;
  }

  /// What follows for matrix b from `statistics`; the sum of its squared updates waits in matrix_scalars().confidence.
  template <int Threads>
  CAME_ROUTE void finish_matrix(const Team<Threads>& team, int phase, int64_t b, bool tiles) const {
    double weighted = 0;
    const double mean = s.t.factored ? averages.finish(team, phase, b, tiles, &weighted) : 1.0;
    if (team.rank == 0) {
      s.matrix_scalars(b).update = sqrt(mean);
      s.matrix_scalars(b).confidence = mean * weighted * algorithms::kWeightUnscale;
    }
    team.sync();
  }
  template <int Threads>
  __device__ void finish_tensor(const Team<Threads>& team, int phase, bool tiles) const {
    if (s.t.factored && s.t.owner == Owner::none) return;  // the RMS takes a phase of its own
    const double sum = s.t.per_matrix ? team.sum_of(s.t.sets, [&](int64_t b) { return s.matrix_scalars(b).confidence; })
                                      : scalar_total(team, s, phase, core::kUpdateSquares, tiles);
    clip(team, sum);
  }

  /// (8) where the RMS took a phase of its own.
  template <int Threads>
  __device__ void finish_rms(const Team<Threads>& team, int phase) const {
    if (!s.t.factored || s.t.owner != Owner::none) return;
    clip(team, scalar_total(team, s, phase, core::kUpdateSquares, false) / (kRmsScale * kRmsScale));
  }

  /// (15): Adafactor's rate, relative to the step and to the size of the parameter if so asked.
  template <int Threads>
  __device__ void finish_rate(const Team<Threads>& team, int phase, bool tiles) const {
    double rate = s.o.relative_step != 0 ? algorithms::relative_rate(s.o.warmup_init != 0, s.k.count) : s.k.lr;
    if (s.o.scale_parameter != 0) {
      const int scalar = core::parameter_squares_scalar(s.slot(phase));
      rate *= algorithms::parameter_scale(s.o.eps2, scalar_total(team, s, phase, scalar, tiles), s.t.elements);
    }
    for (int64_t b = team.rank; b < s.t.sets; b += Threads) s.matrix_scalars(b).rate = rate;
  }

  template <int Threads>
  CAME_ROUTE void finish_statistics(const Team<Threads>& team, int phase, bool tiles) const {
    finish_tensor(team, phase, tiles);
    if (s.a.algorithm == Algorithm::adafactor) finish_rate(team, phase, tiles);
  }
};

}  // namespace came::cuda
