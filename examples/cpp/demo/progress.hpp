// One line per optimizer that follows its training: redrawn in place on a terminal, printed now and then elsewhere.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace demo {

class Progress {
 public:
  Progress(std::string label, int steps)
      : label_(std::move(label)), steps_(steps), terminal_(isatty(STDOUT_FILENO) != 0) {}

  /// `loss` and `accuracy` are those of the latest batches.
  void update(int step, double loss, double accuracy) {
    const double now = seconds();
    // Ten times a second is as much as an eye wants; a file wants a line per quarter.
    const bool due = terminal_ ? now - drawn_ >= 0.1 : step * 4 / steps_ != (step - 1) * 4 / steps_;
    if (!due && step != steps_) return;
    drawn_ = now;
    constexpr int kWidth = 24;
    const int filled = static_cast<int>(static_cast<int64_t>(kWidth) * step / steps_);
    const std::string bar = std::string(static_cast<size_t>(filled), '#') + std::string(kWidth - filled, '.');
    std::printf("%s  %-9s [%s] step %4d/%d  loss %.3f  accuracy %5.1f %%  %4.1f s%s", terminal_ ? "\r" : "",
                label_.c_str(), bar.c_str(), step, steps_, loss, 100.0 * accuracy, now,
                terminal_ && step != steps_ ? "" : "\n");
    std::fflush(stdout);
  }
  /// Leaves a half-drawn line, so that what follows begins on its own.
  void interrupt() const {
    if (terminal_) std::printf("\n");
  }

 private:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  std::string label_;
  int steps_;
  bool terminal_;
  double drawn_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace demo
