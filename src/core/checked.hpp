// Sizes that may come from anywhere: sums and products that refuse to leave int64.
#pragma once

#include <cstdint>

#include "core/message.hpp"

namespace came::core {

/// The most dimensions a tensor may have.
inline constexpr int64_t kMostDimensions = 64;

/// a * b, both non-negative.
template <class Label>
int64_t checked_product(int64_t a, int64_t b, const Label& what) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) invalid(what, ": ", a, " * ", b, " is beyond int64");
  return result;
}

/// total += more, both non-negative.
template <class Label>
void checked_add(int64_t& total, int64_t more, const Label& what) {
  if (__builtin_add_overflow(total, more, &total)) invalid(what, ": the sum of all sizes is beyond int64");
}

/// Throws unless a shape argument can be read: 0 to 64 sizes behind a pointer.
template <class Label>
void check_readable(const int64_t* shape, int64_t ndim, const Label& what, const char* role = "") {
  const char* dot = *role == '\0' ? "" : ".";
  if (ndim < 0 || ndim > kMostDimensions) {
    invalid(what, ": ", role, dot, "ndim is ", ndim, ", expected 0 to ", kMostDimensions);
  }
  if (ndim > 0 && shape == nullptr) invalid(what, ": ", role, dot, "shape is null, expected ", ndim, " sizes");
}

}  // namespace came::core
