// Gradients of different kinds, as functions of step and element: the families of tests/python/cases.py.
#pragma once

#include "support.hpp"

namespace came::test {

enum class Family { random, anisotropic, sparse_rows, constant, drifting };
inline constexpr Family kFamilies[] = {Family::random, Family::anisotropic, Family::sparse_rows, Family::constant,
                                       Family::drifting};

inline const std::vector<std::vector<int64_t>>& family_shapes() {
  static const std::vector<std::vector<int64_t>> shapes{{1, 1},   {1, 37},     {41, 1},   {7, 13},      {23, 17},
                                                        {16, 8},  {2, 3, 5},   {5, 4, 3}, {8, 3, 3, 3}, {6, 5, 1, 1},
                                                        {67, 71}, {2, 65, 66}, {31},      {1},          {}};
  return shapes;
}

/// Element `element` of the gradient at `step` of a tensor of this shape.
inline double gradient(Family family, const std::vector<int64_t>& shape, uint64_t step, int64_t element) {
  const auto normal = [&](uint64_t seed) { return Trial::draw(seed, 7, element); };
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  switch (family) {
    case Family::random:
      return normal(1000 + step);
    case Family::anisotropic:
      return normal(1000 + step) * std::exp(2 * normal(1));
    case Family::sparse_rows: {
      const int64_t row = shape.empty() ? 0 : element / (elements / shape[0]);
      return (static_cast<uint64_t>(row) + step) % 10 == 0 ? normal(1000 + step) : 0.0;
    }
    case Family::constant:
      return normal(2);
    case Family::drifting: {
      const double angle = static_cast<double>(step) / 40;
      return normal(2) * std::cos(angle) + normal(3) * std::sin(angle) + 0.05 * normal(1000 + step);
    }
  }
  return 0;
}

}  // namespace came::test
