// The phases of every optimizer, one file each beside this one, and the reduction between them.
#pragma once

#include "reference/subject.hpp"

namespace came::reference {

/// The phases of one optimizer.
struct Kernel {
  /// What follows, for one tensor, from the reduction after phase `done`.
  void (*finish)(const Subject& s, PhaseKind done);
  /// Phase `phase` on one tile; `out` is zero on entry.
  void (*run)(const Subject& s, PhaseKind phase, const Tile& tile, const Partials& out);
};

extern const Kernel kCame;
extern const Kernel kAdafactor;
extern const Kernel kAdam;
extern const Kernel kLamb;
extern const Kernel kSm3;

/// Reduces the partials that the tiles left in a phase into the reduction buffer: in tile order, in f64.
void reduce_partials(const core::Plan& plan, int phase, const double* workspace, double* reductions);

}  // namespace came::reference
