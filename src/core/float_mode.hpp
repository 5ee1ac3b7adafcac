// The floating-point mode in which the library computes, whatever its caller's thread is set to.
#pragma once

#include <cfenv>

namespace came::core {

/// Rounds to nearest and keeps subnormal numbers while it lives, then restores the thread's own mode.  A host program
/// may have set its own thread to flush subnormals, and then OpenMP's other threads would give other bits.
class FloatMode {
 public:
  FloatMode() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatMode() { std::fesetenv(&before_); }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace came::core
