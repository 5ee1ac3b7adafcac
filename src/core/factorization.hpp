// Two pieces of the paper as functions of their own: Equation 2 and Equation 3.
#pragma once

#include "came/tensor.hpp"

namespace came::core {

/// w = V 1, h = 1'V / 1'V1.  An all-zero V gives zero factors.
void nmf_rank1(const came_tensor& v, const came_tensor& w, const came_tensor& h);

/// out = m / sqrt((m - u)^2 + eps), elementwise.
void confidence_update(const came_tensor& m, const came_tensor& u, double eps, const came_tensor& out);

}  // namespace came::core
