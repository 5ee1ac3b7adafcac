// State of vectors and scalars as it was saved when their moments were codes, as those of matrices are.
#pragma once

#include <vector>

#include "came/optimizer.hpp"
#include "core/plan.hpp"

namespace came::core {

/// A list of state tensors, and memory for those of them that are not the caller's.
struct LoadedState {
  std::vector<NamedTensor> tensors;
  std::vector<std::vector<double>> memory;
};

/// The same list with what the codes of vectors stand for in place of codes and scales; throws if they do not fit.
LoadedState decode_vectors(const Plan& plan, const std::vector<NamedTensor>& given);

}  // namespace came::core
