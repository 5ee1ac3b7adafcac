// The optimizers are numbered by came_algorithm.  Whoever has something for each keeps a table in that order.
#pragma once

#include <cstddef>

#include "came/options.hpp"

namespace came::core {

inline constexpr came_algorithm kAlgorithms = static_cast<came_algorithm>(Algorithm::sm3) + 1;

/// The optimizer's entry.  A table that has not as many entries as there are optimizers does not compile.
template <class Entry>
constexpr const Entry& entry_of(Algorithm algorithm, const Entry (&table)[static_cast<size_t>(kAlgorithms)]) {
  return table[static_cast<size_t>(algorithm)];
}

}  // namespace came::core
