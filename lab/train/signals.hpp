// Ctrl-C and SIGTERM as a flag, so that long work stops at a good point before the program leaves.
#pragma once

#include <atomic>

namespace lab {

/// While one lives, the first SIGINT or SIGTERM sets a flag, and the second ends the program at once.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  /// True once one came.
  [[nodiscard]] static const std::atomic<bool>& flag();
  /// Which one, or 0; a shell expects a program that it ended to leave with 128 more.
  [[nodiscard]] static int number();
};

}  // namespace lab
