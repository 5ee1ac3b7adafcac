#include "train/schedule.hpp"

#include <cmath>
#include <numbers>

namespace lab {

double rate_factor(const TrainConfig& config, int64_t step) {
  if (step < config.warmup) return static_cast<double>(step) / static_cast<double>(config.warmup);
  if (config.schedule == "constant" || config.steps == config.warmup) return 1;
  const double done = static_cast<double>(step - config.warmup) / static_cast<double>(config.steps - config.warmup);
  const double height = config.schedule == "linear" ? 1 - done : (1 + std::cos(std::numbers::pi * done)) / 2;
  return config.final_rate + (1 - config.final_rate) * height;
}

}  // namespace lab
