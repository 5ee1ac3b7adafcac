// The sample of lines that a tokenizer is trained on.
#include "data/line_sample.hpp"

#include <algorithm>
#include <utility>

#include "data/random.hpp"
#include "data/utf8.hpp"

namespace lab {

namespace {

// Longer lines would make the sample a sample of few places.
constexpr size_t kLongestLine = 4096;
// What a line takes besides its text.
constexpr int64_t kOverhead = 48;

}  // namespace

void LineSample::add(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty()) {
      const size_t cut = find_cut(line, kLongestLine);
      add_line(line.substr(0, cut));
      line.remove_prefix(cut);
    }
  }
}

void LineSample::add_line(std::string_view line) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
  const auto smaller = [](const Line& a, const Line& b) {
    return std::pair(a.key, a.number) < std::pair(b.key, b.number);
  };
  const uint64_t number = lines_++;
  const uint64_t key = Random(seed_, number, Purpose::sample).next();
  const int64_t size = static_cast<int64_t>(line.size()) + kOverhead;
  // Where there is no room, it would be the first to go.
  if (size > room_ && !heap_.empty() && key > heap_.front().key) return;
  heap_.push_back({key, number, std::string(line)});
  std::push_heap(heap_.begin(), heap_.end(), smaller);
  room_ -= size;
  while (room_ < 0 && heap_.size() > 1) {
    std::pop_heap(heap_.begin(), heap_.end(), smaller);
    room_ += static_cast<int64_t>(heap_.back().text.size()) + kOverhead;
    heap_.pop_back();
  }
}

std::vector<std::string> LineSample::take() {
  std::sort(heap_.begin(), heap_.end(), [](const Line& a, const Line& b) { return a.number < b.number; });
  std::vector<std::string> lines;
  lines.reserve(heap_.size());
  for (Line& line : heap_) lines.push_back(std::move(line.text));
  heap_.clear();
  return lines;
}

}  // namespace lab
