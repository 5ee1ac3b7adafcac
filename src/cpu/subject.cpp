// Access to one tensor of one step, and the reduction of its tiles' partials.
#include "cpu/subject.hpp"

#include <cstring>

#include "core/optimizers/descriptor.hpp"
#include "core/scalars.hpp"
#include "core/step.hpp"

namespace came::cpu {

Subject::Subject(const core::Plan& p, const came_step& step, int64_t index, double grad_multiplier)
    : plan(p),
      t(p.tensors[static_cast<size_t>(index)]),
      o(core::options_of(p, step, t)),
      lr(core::scalar_or(step.lr, t.group, o.lr)),
      count(core::step_number(step, index)),
      multiplier(o.maximize != 0 ? -grad_multiplier : grad_multiplier),
      sign(multiplier > 0   ? 1.0
           : multiplier < 0 ? -1.0
                            : 0.0),
      step_(step),
      matrix_scalars_(reinterpret_cast<MatrixScalars*>(static_cast<double*>(step.workspace) + p.matrix_scalars_offset) +
                      t.first_matrix_scalars) {
  const auto key = [&](algorithms::Stream stream) {
    return algorithms::rounding_key(o.seed, static_cast<uint64_t>(count), t.id, stream);
  };
  const int64_t cols = t.local.cols.count;
  param = {step.params[index].data, t.dtype, cols};
  grad = {step.grads[index].data, t.grad_dtype, cols};
  momentum = find_state("exp_avg");
  momentum.scales = static_cast<float*>(find_state("exp_avg_scale").data);
  if (!t.factored) {
    second_moment = find_state("exp_avg_sq");
    second_moment.scales = static_cast<float*>(find_state("exp_avg_sq_scale").data);
    second_moment.second_moment = true;
    if (second_moment.scales != nullptr) second_moment.key = key(algorithms::Stream::second_moment);
  }
  if (o.stochastic_rounding != 0) {
    param.stochastic = momentum.stochastic = true;
    param.key = key(algorithms::Stream::parameter);
    momentum.key = key(algorithms::Stream::momentum);
  }
}

Storage Subject::find_state(const char* name) const {
  for (size_t k = 0; k < t.states.size(); ++k) {
    if (std::strcmp(t.states[k].name, name) == 0) {
      return {step_.states[static_cast<size_t>(t.first_state) + k].data, t.states[k].dtype, t.local.cols.count};
    }
  }
  return {};
}

double Subject::tile_scalars(Range tiles, int64_t k) const {
  double sum = 0;
  for (int64_t x = tiles.begin; x < tiles.begin + tiles.count; ++x) {
    sum += (static_cast<const double*>(step_.workspace) + plan.tiles[static_cast<size_t>(x)].partial)[k];
  }
  return sum;
}

double Subject::scalar(PhaseKind phase, int64_t b, int64_t k) const {
  if (!t.sharded) return tile_scalars(tiles_of(b), k);
  const core::ReductionShape& shape = slot(phase).shape;
  return all_reduced(phase, b)[shape.rows * t.view.rows + shape.cols * t.view.cols + k];
}

double Subject::total(PhaseKind phase, int64_t k) const {
  if (!t.sharded) return tile_scalars(t.tiles, k);
  return totals(phase)[k - slot(phase).shape.scalars];
}

template <class T>
void Subject::write_matrices_as(PhaseKind phase) const {
  const core::ReductionShape& shape = slot(phase).shape;
  double* into = slot_data(phase);
  for (int64_t b = 0; b < t.local_sets(); ++b) {
    // The slot counts rows and columns of the whole tensor, the partials those of this rank.
    for (int64_t v = 0; v < shape.rows; ++v, into += t.view.rows) {
      reduce_tiles<T>(phase, Axis::rows, v, b, {0, t.local.rows.count}, into + t.local.rows.begin);
    }
    for (int64_t v = 0; v < shape.cols; ++v, into += t.view.cols) {
      reduce_tiles<T>(phase, Axis::cols, v, b, {0, t.local.cols.count}, into + t.local.cols.begin);
    }
    for (int64_t k = 0; k < shape.scalars; ++k) *into++ = tile_scalars(tiles_of(b), k);
  }
}

void Subject::write_slot(PhaseKind phase) const {
  const core::ReductionShape& shape = slot(phase).shape;
  std::fill_n(slot_data(phase), t.local_sets() * shape.matrix_size(t.view.rows, t.view.cols), 0.0);
  if (core::statistics_dtype(t) == DType::f64) {
    write_matrices_as<double>(phase);
  } else {
    write_matrices_as<float>(phase);
  }
  for (int64_t block = 0; block < t.total_blocks(); ++block) {
    const Range tiles = t.sharded ? t.tiles : tiles_of(block);
    for (int64_t k = 0; k < shape.totals; ++k) {
      totals(phase)[block * shape.totals + k] = tile_scalars(tiles, shape.scalars + k);
    }
  }
}

void Subject::clear(PhaseKind phase, const Tile& tile) const {
  const core::ReductionShape& shape = slot(phase).shape;
  const int64_t vectors = shape.rows * tile.rows.count + shape.cols * tile.cols.count;
  const int64_t bytes = shape.numbers() * 8 + vectors * core::element_size(core::statistics_dtype(t));
  std::memset(static_cast<double*>(step_.workspace) + tile.partial, 0, static_cast<size_t>(bytes));
}

void finish_agreement(const Subject& s, PhaseKind phase) {
  double multiplier = 1;
  if (s.o.cautious != 0) {
    const double count = s.total(phase, core::agreement_scalar(s.shape(phase)));
    multiplier = algorithms::cautious_multiplier(s.elements(), count);
  }
  for (int64_t b = 0; b < s.t.local_sets(); ++b) s.matrix_scalars(b).direction = multiplier;
}

}  // namespace came::cpu
