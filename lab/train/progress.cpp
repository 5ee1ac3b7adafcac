#include "train/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "say.hpp"

namespace lab {
namespace {

constexpr auto kTerminalPause = std::chrono::milliseconds(100);
constexpr auto kPlainPause = std::chrono::seconds(5);
constexpr int kBarWidth = 20;

}  // namespace

ProgressLine::ProgressLine(std::string name, int64_t total, int64_t done)
    : name_(std::move(name)),
      total_(total),
      begun_(done),
      done_(done),
      start_(Clock::now()),
      drawn_(start_),
      terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() {
  if (visible_ && terminal_) say("\n");
}

void ProgressLine::update(int64_t done, const std::string& text) {
  done_ = done;
  text_ = text;
  const auto now = Clock::now();
  if ((terminal_ && !drawn_once_) ||
      now - drawn_ >= (terminal_ ? Clock::duration(kTerminalPause) : Clock::duration(kPlainPause)))
    draw();
}

void ProgressLine::draw() {
  drawn_ = Clock::now();
  drawn_once_ = true;
  drawn_done_ = done_;
  const double share = total_ > 0 ? static_cast<double>(done_) / static_cast<double>(total_) : 1;
  const double seconds = std::chrono::duration<double>(drawn_ - start_).count();
  std::string left;
  if (done_ > begun_ && done_ < total_)
    left = ", " + duration_text(seconds * static_cast<double>(total_ - done_) / static_cast<double>(done_ - begun_)) +
           " left";
  if (!terminal_) {
    say(fmt::format("{} {:3.0f} %  {}{}\n", name_, 100 * share, text_, left));
    return;
  }
  const int filled = static_cast<int>(share * kBarWidth);
  std::string bar;
  for (int k = 0; k < kBarWidth; ++k) bar += k < filled ? "█" : "░";
  say(fmt::format("\r\x1b[2K{} {} {:3.0f} %  {}{}", name_, bar, 100 * share, text_, left));
  visible_ = true;
}

void ProgressLine::print(const std::string& line) {
  if (terminal_ && visible_) say("\r\x1b[2K");
  say(line + "\n");
  if (terminal_ && visible_) draw();
}

void ProgressLine::finish() {
  if (terminal_ || (drawn_once_ && drawn_done_ != done_)) draw();
  if (terminal_) say("\n");
  visible_ = false;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string count_text(double count, int step) {
  static constexpr std::array kDecimal = {"", " k", " M", " G", " T"};
  static constexpr std::array kBinary = {" B", " KiB", " MiB", " GiB", " TiB"};
  size_t prefix = 0;
  for (; count >= step && prefix + 1 < kDecimal.size(); ++prefix) count /= step;
  const char* unit = step == 1024 ? kBinary[prefix] : kDecimal[prefix];
  return prefix == 0 ? fmt::format("{:.0f}{}", count, unit) : fmt::format("{:.3g}{}", count, unit);
}

}  // namespace lab
