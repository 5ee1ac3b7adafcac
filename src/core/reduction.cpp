// Which numbers averages over rows and columns leave to reduce, by who owns which of them.
#include "core/reduction.hpp"

#include "core/plan.hpp"

namespace came::core {

ReductionShape factor_reduction(const Tensor& tensor, bool weighted) {
  const int64_t vectors = weighted ? 2 : 1;
  switch (tensor.owner) {
    case Owner::rows:
      return {.rows = 0, .cols = vectors, .scalars = 1};
    case Owner::columns:
      return {.rows = vectors, .cols = 0, .scalars = 0};
    case Owner::matrix:
      return {.totals = weighted ? 1 : 0};
    case Owner::none:
      return {.rows = 1, .cols = 1, .scalars = 1};
  }
  return {};
}

}  // namespace came::core
