// Access to one tensor of one step: elements, state, rounding, and the slots of earlier reductions.
#include "reference/subject.hpp"

#include <algorithm>
#include <cstring>

#include "core/scalars.hpp"
#include "core/step.hpp"

namespace came::reference {

Subject::Subject(const core::Plan& p, const came_step& step, int64_t index, double grad_multiplier)
    : plan(p),
      t(p.tensors[static_cast<size_t>(index)]),
      o(core::options_of(p, step, t)),
      lr(core::scalar_or(step.lr, t.group, o.lr)),
      count(core::step_number(step, index)),
      step_(step),
      param_(step.params[index].data, t.dtype),
      grad_(step.grads[index].data, t.grad_dtype),
      grad_multiplier_(o.maximize != 0 ? -grad_multiplier : grad_multiplier) {}

uint32_t Subject::random(algorithms::Stream stream, int64_t b, int64_t i, int64_t j) const {
  // Numbers of the whole tensor, so that a sharded step rounds as an unsharded one.
  const int64_t element =
      ((t.local.batch.begin + b) * t.view.rows + t.local.rows.begin + i) * t.view.cols + t.local.cols.begin + j;
  const uint64_t key = algorithms::rounding_key(o.seed, static_cast<uint64_t>(count), t.id, stream);
  return algorithms::random_bits(key, static_cast<uint64_t>(element));
}

void Subject::move_param(int64_t b, int64_t i, int64_t j, double decay, double move) const {
  const double old = param(b, i, j);
  // One difference: a change of 0 keeps even the sign of a zero.
  const double value = old - ((decay != 0 ? decay * old : 0.0) + move);
  if (o.stochastic_rounding != 0) {
    param_.set_stochastic(at(b, i, j), value, random(algorithms::Stream::parameter, b, i, j));
  } else {
    param_.set(at(b, i, j), value);
  }
}

Cells Subject::state(const char* name) const {
  for (size_t k = 0; k < t.states.size(); ++k) {
    if (std::strcmp(t.states[k].name, name) == 0) {
      return {step_.states[static_cast<size_t>(t.first_state) + k].data, t.states[k].dtype};
    }
  }
  return {};
}

const double* Subject::slot(PhaseKind phase, int64_t b) const {
  const core::Slot& slot = t.slots[static_cast<size_t>(plan.find(phase))];
  return static_cast<const double*>(step_.reductions) + slot.offset +
         b * slot.shape.matrix_size(t.view.rows, t.view.cols);
}

const double* Subject::rows(PhaseKind phase, int64_t v, int64_t b) const { return slot(phase, b) + v * t.view.rows; }

const double* Subject::cols(PhaseKind phase, int64_t v, int64_t b) const {
  return slot(phase, b) + shape(phase).rows * t.view.rows + v * t.view.cols;
}

double Subject::scalar(PhaseKind phase, int64_t k, int64_t b) const {
  const core::ReductionShape& s = shape(phase);
  return slot(phase, b)[s.rows * t.view.rows + s.cols * t.view.cols + k];
}

double Subject::total(PhaseKind phase, int64_t k) const {
  const core::Slot& slot = t.slots[static_cast<size_t>(plan.find(phase))];
  const double* totals = static_cast<const double*>(step_.reductions) + slot.totals;
  double sum = 0;
  for (int64_t block = 0; block < t.total_blocks(); ++block) {
    sum += totals[block * slot.shape.totals + k - slot.shape.scalars];
  }
  return sum;
}

MatrixScalars& Subject::matrix_scalars(int64_t b) const {
  auto* all = reinterpret_cast<MatrixScalars*>(static_cast<double*>(step_.workspace) + plan.matrix_scalars_offset);
  return all[t.first_matrix_scalars + (t.set_per_matrix() ? b : 0)];
}

void finish_agreement(const Subject& s, PhaseKind phase) {
  double multiplier = 1;
  if (s.o.cautious != 0) {
    const double count = s.total(phase, core::agreement_scalar(s.shape(phase)));
    multiplier = s.elements() / std::max(count, 1e-3 * s.elements());
  }
  for (int64_t b = 0; b < s.matrix_scalars_count(); ++b) s.matrix_scalars(b).direction = multiplier;
}

}  // namespace came::reference
