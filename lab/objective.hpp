// What is learned from text.
#pragma once

namespace lab {

/// What a model is asked to predict.
enum class Objective {
  causal,  ///< The next token: GPT-2, MLP.
  masked,  ///< Masked tokens, and with `next_sentence` whether two sentences follow each other: BERT.
  spans,   ///< Corrupted spans: T5.
};

}  // namespace lab
