// Presence: do all ranks that hold a sharded tensor say the same of whether it is active?  One that passes it over
// while others step it would leave them with sums that lack its part, so this rides along with the first reduction.
//
// The run of a reduce group begins with two doubles for each of its T tensors: T times "has a gradient", then T times
// "has none".  Each rank writes a 1 and a 0.  Whether ranks add or keep the largest: both above 0 is a disagreement.
#pragma once

#include "core/plan.hpp"

namespace came::core {

/// Where "has none" lies in the reduction buffer; "has a gradient" is at tensor.presence.
inline int64_t absence_of(const Plan& plan, const Tensor& tensor) {
  return tensor.presence + plan.phases[0].shared[static_cast<size_t>(tensor.reduce_group)].presence / 2;
}

/// Writes this rank's presence; host memory.
void write_presence(const Plan& plan, const came_step& step);

/// Throws, naming the first tensor, if the ranks disagree; host memory.
void check_presence(const Plan& plan, const came_step& step);

}  // namespace came::core
