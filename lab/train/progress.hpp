// One line that follows long work: redrawn in place on a terminal, a plain line every few seconds elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lab {

/// Progress of something with a known end, on stderr.
class ProgressLine {
 public:
  /// `name` begins the line; `done` of `total` are behind us already.
  ProgressLine(std::string name, int64_t total, int64_t done = 0);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// So much is done; `text` says how it goes.  Draws only when the last drawing is old enough.
  void update(int64_t done, const std::string& text);
  /// Prints a line that stays, above the one that moves.
  void print(const std::string& line);
  /// Draws a last time and moves on to the next line.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void draw();

  std::string name_, text_;
  int64_t total_, begun_, done_, drawn_done_ = -1;
  Clock::time_point start_, drawn_;
  bool terminal_, visible_ = false, drawn_once_ = false;
};

/// A time in words: "43 s", "2 min 05 s", "3 h 12 min".
[[nodiscard]] std::string duration_text(double seconds);
/// A count with a unit's prefix: "812", "1.3 k", "24 M"; `step` is 1000 or, for bytes, 1024.
[[nodiscard]] std::string count_text(double count, int step = 1000);

}  // namespace lab
