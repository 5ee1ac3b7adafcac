// The one kind of error that the lab throws on purpose: a line that says what is wrong and what to do.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace lab {

/// An error that the user can correct.  main prints the message after "came-lab: " and leaves with status 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws an Error; the message is one line: what was found where, what was expected, what to do.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) {
  throw Error(fmt::format(message, std::forward<Args>(args)...));
}

}  // namespace lab
