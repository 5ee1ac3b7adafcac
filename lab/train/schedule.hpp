// The learning rate's course: up from zero over the warm-up, then constant, or down to a share of the peak.
#pragma once

#include <cstdint>

#include "train/config.hpp"

namespace lab {

/// What multiplies lr at a step, counted from 1: step / warmup up to the warm-up's end, where it is 1, and final_rate
/// at the last step if the schedule falls.
[[nodiscard]] double rate_factor(const TrainConfig& config, int64_t step);

}  // namespace lab
