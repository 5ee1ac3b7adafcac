// A sample of lines, of bounded size, from a text of any size: each line draws a number, and those with the smallest
// ones stay.  It depends on the seed and on the text alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lab {

class LineSample {
 public:
  LineSample(int64_t bytes, uint64_t seed) : room_(bytes), seed_(seed) {}

  /// Takes the lines of a piece of text; long ones are cut, blank ones left out.
  void add(std::string_view text);
  /// The lines that stayed, in the order they came.
  [[nodiscard]] std::vector<std::string> take();

 private:
  struct Line {
    uint64_t key = 0;     // smaller ones stay
    uint64_t number = 0;  // of the line
    std::string text;
  };
  void add_line(std::string_view line);

  std::vector<Line> heap_;  // the largest key first
  int64_t room_;
  uint64_t seed_;
  uint64_t lines_ = 0;
};

}  // namespace lab
