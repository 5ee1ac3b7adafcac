// Errors of the core: one line that names the argument, what was given and what was expected.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

#include "came/error.hpp"

namespace came::core {

/// Throws Error with the parts streamed into one message.
template <class... Parts>
[[noreturn]] void fail(Status status, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(status, text.str());
}

/// fail with Status::invalid_argument, by far the most frequent.
template <class... Parts>
[[noreturn]] void invalid(const Parts&... parts) {
  fail(Status::invalid_argument, parts...);
}

/// "[2, 3]".
inline std::string shape_text(const int64_t* shape, int64_t ndim) {
  std::string text = "[";
  for (int64_t d = 0; d < ndim; ++d) {
    if (d > 0) text += ", ";
    text += std::to_string(shape[d]);
  }
  return text + "]";
}

}  // namespace came::core
