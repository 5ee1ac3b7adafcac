// Presence on a device: core/presence.hpp says what it is.
#pragma once

#include "cuda/launching.hpp"

namespace came::cuda {

/// Tensors of a reduce group that one launch takes.
inline constexpr int64_t kPresencesOfLaunch = 2048;

/// Asks for the kernel of the function below.
void ask_for_presence();

/// Writes this rank's presence to the reduction buffer; nothing if no tensor is sharded.
void write_presence(const core::Plan& plan, const came_step& step, const Queue& queue);

}  // namespace came::cuda
