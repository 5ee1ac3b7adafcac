// What the core knows of an optimizer: its word, defaults, state, phases and reductions.  One file each, beside this
// one; what its phases compute lives in the backends under the same file name.
#pragma once

#include <vector>

#include "core/optimizers/registry.hpp"
#include "core/plan.hpp"

namespace came::core {

struct Descriptor {
  const char* word = nullptr;
  /// Keeps row and column statistics of matrices.
  bool factored = false;
  /// Divides by their roots.
  bool column_multipliers = false;
  void (*set_defaults)(came_options& options) = nullptr;
  /// State tensors of one parameter, without their byte counts.
  std::vector<State> (*states)(const came_options& options, const Tensor& tensor) = nullptr;
  /// Phases of a plan over these groups; `split` if some matrix is owned neither by rows nor by columns.
  std::vector<PhaseKind> (*phases)(const std::vector<came_options>& groups, bool split) = nullptr;
  /// What a phase leaves to reduce for one parameter: core/reduction.hpp.
  ReductionShape (*reduction)(const came_options& options, const Tensor& tensor, PhaseKind phase) = nullptr;
};

const Descriptor& descriptor(Algorithm algorithm);

extern const Descriptor kCameDescriptor;
extern const Descriptor kAdafactorDescriptor;
extern const Descriptor kAdamDescriptor;
extern const Descriptor kAdamwDescriptor;
extern const Descriptor kLambDescriptor;
extern const Descriptor kSm3Descriptor;

/// Element type of statistics: f64 beside f64 parameters, f32 beside all others.
DType statistics_dtype(const Tensor& tensor);
/// A state tensor of the parameter's own shape.
State full_state(const char* name, const Tensor& tensor, DType dtype);
/// A statistic per row, and one per column.
State row_state(const char* name, const Tensor& tensor);
State col_state(const char* name, const Tensor& tensor);
/// Adds the momentum, in the storage the options ask for: one tensor, or codes and their scales.
void add_momentum(std::vector<State>& list, const came_options& options, const Tensor& tensor);
/// Adds a second moment per element likewise.
void add_second_moment(std::vector<State>& list, const came_options& options, const Tensor& tensor);
/// Is a moment for which options ask this storage kept as codes, in blocks of a row?  Codes are for matrices: vectors
/// and scalars are a thousandth of a model, and their shards do not fall on blocks.
bool has_codes(came_dtype asked, const Tensor& tensor);

bool any_group(const std::vector<came_options>& groups, int32_t came_options::*flag);

}  // namespace came::core
