// How sequences are made of tokens.  Knows nothing of torch.
#pragma once

#include <cstdint>

#include "objective.hpp"

namespace lab {

/// How sequences are made.
struct BatchOptions {
  Objective objective = Objective::causal;
  int64_t length = 0;  ///< T.
  uint64_t seed = 0;
  double mask_rate = 0.15;  ///< Masked: 80 % of these become [MASK], 10 % another token, 10 % stay.  Spans: share
                            ///< of noise.
  double span_length = 3;   ///< Spans: mean length of one.
  bool next_sentence = false;
};

}  // namespace lab
