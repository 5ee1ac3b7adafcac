// Two pieces of the CAME paper as functions of their own.
#pragma once

#include "came/error.hpp"
#include "came/tensor.hpp"

namespace came {

/// Rank-1 non-negative factorisation (Equation 2): w = V 1, h = 1'V / 1'V1.  v is n x m, w has n, h has m elements.
inline void nmf_rank1(const TensorView& v, const TensorView& w, const TensorView& h) {
  check(came_nmf_rank1(&v, &w, &h));
}

/// Plain confidence update (Equation 3): out = m / sqrt((m - u)^2 + eps), elementwise.
inline void confidence_update(const TensorView& m, const TensorView& u, double eps, const TensorView& out) {
  check(came_confidence_update(&m, &u, eps, &out));
}

}  // namespace came
