// Ranges of the numbers that a user gives, on the command line and in files.  Every one has bounds, so that products of
// them fit 64 bits and what makes no sense is refused by name before anything is done.
#pragma once

#include <cstdint>

#include "error.hpp"

namespace lab {

inline constexpr int64_t kMostSteps = 1'000'000'000;  ///< Times the largest batch it is far below 2^63.
inline constexpr int64_t kLongestSequence = int64_t{1} << 20;
inline constexpr int64_t kLargestVocabulary = int64_t{1} << 24;  ///< SentencePiece counts in 32 bits.
inline constexpr int64_t kMostThreads = 1024;                    ///< Each has a stack of its own.

/// Throws an Error that names the number unless it is from `least` to `most`; NaN is not.
template <class T>
void expect_range(const char* name, T value, T least, T most) {
  if (!(value >= least && value <= most)) fail("{} is {}, but must be from {} to {}", name, value, least, most);
}

}  // namespace lab
