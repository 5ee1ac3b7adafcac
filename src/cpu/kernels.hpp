// The kernels of every optimizer for one instruction set: each file of kernels defines one of these functions.
#pragma once

#include <array>
#include <cstdint>

#include "cpu/subject.hpp"

namespace came::cpu {

/// An instruction set, by Highway's bit.
using Target = int64_t;

/// The best one that this CPU has, or the one that was forced.
Target target();
/// For tests: takes this one from now on; 0 goes back to the best.  Not while a step runs.
void force_target(Target target);
/// Those that this build has and this CPU can run, the best first; 0 ends the list.
std::array<Target, 16> targets();
const char* target_name(Target target);

/// The phases of one optimizer, for one instruction set.
struct Kernel {
  /// What follows, for one tensor, from the reduction after phase `done`.
  void (*finish)(const Subject& s, PhaseKind done);
  /// Phase `phase` on one tile; its partials are zero on entry.
  void (*run)(const Subject& s, PhaseKind phase, const Tile& tile);
};

const Kernel& came_kernel(Target target);
const Kernel& adafactor_kernel(Target target);
const Kernel& adam_kernel(Target target);
const Kernel& lamb_kernel(Target target);
const Kernel& sm3_kernel(Target target);
const Kernel& norm_kernel(Target target);

template <auto kF32, auto kF64, class... Args>
void by_type(const Subject& s, Args... args) {
  s.t.dtype == DType::f64 ? kF64(s, args...) : kF32(s, args...);
}

/// A kernel in f64 arithmetic beside f64 parameters, in f32 beside all others.
template <auto kFinish32, auto kFinish64, auto kRun32, auto kRun64>
constexpr Kernel kernel_by_type() {
  return {by_type<kFinish32, kFinish64, PhaseKind>, by_type<kRun32, kRun64, PhaseKind, const Tile&>};
}

/// An entry of a table in the order of Highway's targets, the best first, with what always runs at the end.
template <class Entry, size_t kCount>
const Entry& choose(const Entry* const (&table)[kCount], Target chosen, int first_bit) {
  for (size_t k = 0; k + 1 < kCount; ++k) {
    if (table[k] != nullptr && chosen == Target{1} << (first_bit + static_cast<int>(k))) return *table[k];
  }
  return *table[kCount - 1];
}

}  // namespace came::cpu

/// The body of a function of kernels: `name` is an object in every target's namespace.
#define CAME_CPU_CHOOSE(name, chosen)                                                                 \
  static constexpr const Kernel* table[] = {HWY_CHOOSE_TARGET_LIST(name), HWY_CHOOSE_FALLBACK(name)}; \
  return choose(table, chosen, HWY_HIGHEST_TARGET_BIT + 1 - HWY_MAX_DYNAMIC_TARGETS)
