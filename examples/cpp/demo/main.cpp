// The demo: five optimizers train the same small network on the same pictures, from the same weights, and a table
// says what each reached and what its state costs.  `came_demo --steps N` for a shorter or longer run.
#include <charconv>
#include <csignal>
#include <cstring>

#include "mlp.hpp"
#include "progress.hpp"

namespace {

constexpr int kBatch = 64;
constexpr int kTrainingPictures = 32768;
constexpr int kHeldOutPictures = 2048;
const std::vector<int> kWidths{demo::kPixels, 128, 96, demo::kClasses};

volatile std::sig_atomic_t interrupted = 0;

struct Contestant {
  const char* label;
  came::Options options;
};

struct Result {
  demo::Outcome held_out;
  int64_t state_bytes = 0;
  double step_seconds = 0;  // The optimizer's own part of a step.
};

/// Each learning rate is the best of a few that were tried for that optimizer; CAME takes AdamW's as it is.
std::vector<Contestant> contestants() {
  std::vector<Contestant> list{{"CAME", came::Options::came()},
                               {"Adafactor", came::Options::adafactor()},
                               {"AdamW", came::Options::adamw()},
                               {"LAMB", came::Options::lamb()},
                               {"SM3", came::Options::sm3()}};
  const double rates[] = {5e-3, 5e-3, 5e-3, 2e-2, 1e-1};
  for (size_t k = 0; k < list.size(); ++k) list[k].options.lr = rates[k];
  return list;
}

Result train(const Contestant& contestant, demo::Mlp mlp, const demo::Pictures& training,
             const demo::Pictures& held_out, int steps) {
  using Clock = std::chrono::steady_clock;
  came::Optimizer optimizer(contestant.options, mlp.parameters());
  demo::Progress progress(contestant.label, steps);
  demo::Outcome recent;
  Clock::duration spent{};
  for (int step = 1; step <= steps; ++step) {
    const int first = (step - 1) * kBatch % kTrainingPictures;
    const demo::Outcome now = mlp.train(&training.pixels[static_cast<size_t>(first) * demo::kPixels],
                                        &training.digits[static_cast<size_t>(first)], kBatch);
    optimizer.set_lr(contestant.options.lr * (1.0 - static_cast<double>(step - 1) / steps));
    const Clock::time_point start = Clock::now();
    optimizer.step();
    spent += Clock::now() - start;

    const double weight = std::max(1.0 / step, 0.05);
    recent.loss += weight * (now.loss - recent.loss);
    recent.accuracy += weight * (now.accuracy - recent.accuracy);
    if (interrupted != 0) {
      progress.interrupt();
      return {};
    }
    progress.update(step, recent.loss, recent.accuracy);
  }
  return {mlp.evaluate(held_out.pixels.data(), held_out.digits.data(), held_out.count()),
          optimizer.memory().state_bytes, std::chrono::duration<double>(spent).count() / steps};
}

void print_table(const std::vector<Contestant>& list, const std::vector<Result>& results, int64_t parameter_count) {
  double adam_bytes = 0;
  for (size_t k = 0; k < list.size(); ++k) {
    if (list[k].options.algorithm == CAME_ALGORITHM_ADAMW) adam_bytes = static_cast<double>(results[k].state_bytes);
  }
  std::printf("\n  %-10s %8s %8s %10s %14s %9s %12s\n", "optimizer", "lr", "loss", "accuracy", "state", "of Adam's",
              "time");
  std::printf("  %-10s %8s %8s %10s %14s %9s %12s\n", "", "", "held out", "held out", "bytes / param", "state",
              "ms / step");
  for (size_t k = 0; k < list.size(); ++k) {
    const auto bytes = static_cast<double>(results[k].state_bytes);
    std::printf("  %-10s %8g %8.3f %8.1f %% %14.2f %9.2f %12.2f\n", list[k].label, list[k].options.lr,
                results[k].held_out.loss, 100.0 * results[k].held_out.accuracy,
                bytes / static_cast<double>(parameter_count), bytes / adam_bytes, 1e3 * results[k].step_seconds);
  }
  std::printf("\n  The time is the optimizer's alone.\n");
}

int run(int steps) {
  demo::Random random(2023);
  const demo::Pictures training = demo::make_pictures(kTrainingPictures, random);
  const demo::Pictures held_out = demo::make_pictures(kHeldOutPictures, random);
  demo::Mlp start(kWidths, random);
  std::printf("Which digit is it?  %d noisy pictures to learn from, %d held out, a network of %lld parameters.\n\n%s\n",
              kTrainingPictures, kHeldOutPictures, static_cast<long long>(start.parameter_count()),
              demo::draw(training, 5).c_str());

  const std::vector<Contestant> list = contestants();
  const demo::Outcome before = start.evaluate(held_out.pixels.data(), held_out.digits.data(), held_out.count());
  std::vector<Result> results;
  for (const Contestant& contestant : list) {
    results.push_back(train(contestant, start, training, held_out, steps));
    if (interrupted != 0) return 130;
  }
  print_table(list, results, start.parameter_count());

  for (size_t k = 0; k < list.size(); ++k) {
    if (!(results[k].held_out.loss < before.loss)) {
      std::fprintf(stderr, "came_demo: %s did not learn: loss %.3f at the start, %.3f at the end\n", list[k].label,
                   before.loss, results[k].held_out.loss);
      return 1;
    }
  }
  return 0;
}

/// The argument of --steps; 0 if it is none.
int parse_steps(const char* text) {
  constexpr int kMost = 1000000;
  int steps = 0;
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, steps);
  return error == std::errc{} && rest == end && steps >= 1 && steps <= kMost ? steps : 0;
}

}  // namespace

int main(int argc, char** argv) try {
  int steps = 2000;
  for (int k = 1; k < argc; ++k) {
    const std::string argument = argv[k];
    if (argument == "--help") {
      std::printf(
          "usage: came_demo [--steps N]\n\nTrains one small network with five optimizers and compares them.\n"
          "  --steps N   steps per optimizer, 1 to 1000000 (default %d)\n",
          steps);
      return 0;
    }
    if (argument != "--steps") {
      std::fprintf(stderr, "came_demo: unknown argument '%s'; see came_demo --help\n", argv[k]);
      return 2;
    }
    const char* value = k + 1 < argc ? argv[++k] : "";
    steps = parse_steps(value);
    if (steps == 0) {
      std::fprintf(stderr, "came_demo: --steps '%s': expected a whole number from 1 to 1000000\n", value);
      return 2;
    }
  }
  std::signal(SIGINT, [](int) { interrupted = 1; });
  return run(steps);
} catch (const std::exception& error) {
  std::fprintf(stderr, "came_demo: %s\n", error.what());
  return 1;
}
