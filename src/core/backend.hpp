// What a backend is: a name, the memory it works on, how it cuts matrices, and a function that runs phases.
#pragma once

#include <memory>

#include "core/plan.hpp"
#include "core/tiles.hpp"

namespace came::core {

struct Backend {
  const char* name;
  came_device device;
  Tiling tiling;
  /// Runs consecutive phases of a validated step, each: first what follows from the reduction before it, then every
  /// tile, then the local reduction.  More than one only if no tensor is sharded.  The last phase of the plan also
  /// raises *step.step.  A device writes presence in the first.  With found_inf set it changes no parameter, state or
  /// step.  It cannot fail, allocates nothing
  /// and, on a device, never waits for it.
  void (*run_phases)(const Plan& plan, Range phases, const came_step& step);

  // On a device; null on the host.

  /// Doubles of workspace beside the partials of tiles.
  int64_t (*extra_workspace)(const Plan& plan) = nullptr;
  /// What a plan that is to be run keeps in memory of its device, and how many bytes that takes.
  std::shared_ptr<const void> (*make_tables)(const Plan& plan) = nullptr;
  int64_t (*table_bytes)(const Plan& plan) = nullptr;
};

/// Makes a plan fit to be run: a device needs its tables there.
void prepare(Plan& plan);

/// The backend with this number; throws if this build has none.
const Backend& find_backend(came_backend backend);

/// One factory per backend, defined in its own folder.
const Backend& reference_backend();
const Backend& cpu_backend();
const Backend& cuda_backend();
/// The best one for host memory in this build.
const Backend& host_backend();

}  // namespace came::core
