// What a backend is: a name, the memory it works on, how it cuts matrices, and a function that runs one phase.
#pragma once

#include "core/plan.hpp"

namespace came::core {

struct Backend {
  const char* name;
  came_device device;
  Tiling tiling;
  /// Runs phase `phase` of a validated step: first what follows from the reduction before it, then every tile, then
  /// the local reduction into step.reductions.  The last phase also raises *step.step.  With found_inf set it changes
  /// no parameter, state or step.  It cannot fail, allocates nothing and, on a device, never waits for it.
  void (*run_phase)(const Plan& plan, int phase, const came_step& step);
};

/// The backend with this number; throws if this build has none.
const Backend& find_backend(came_backend backend);

/// One factory per backend, defined in its own folder.
const Backend& reference_backend();
const Backend& cuda_backend();

}  // namespace came::core
