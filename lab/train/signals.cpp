#include "train/signals.hpp"

#include <csignal>

namespace lab {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<int> which{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free, "set in a handler");

extern "C" void note_signal(int number) {
  which = number;
  stop_requested = true;
  std::signal(number, SIG_DFL);  // the next one is not to be waited for
}

}  // namespace

StopOnSignal::StopOnSignal() {
  stop_requested = false;
  which = 0;
  std::signal(SIGINT, note_signal);
  std::signal(SIGTERM, note_signal);
}

StopOnSignal::~StopOnSignal() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

const std::atomic<bool>& StopOnSignal::flag() { return stop_requested; }

int StopOnSignal::number() { return which; }

}  // namespace lab
