// How well a model predicts text that it was not trained on.
#pragma once

#include <cstdint>

#include "data/dataset.hpp"
#include "models/model.hpp"

namespace lab {

/// Means over the predicted tokens.
struct Evaluation {
  double loss = 0;        ///< Nats per token.
  double perplexity = 0;  ///< Its exponential.
  double accuracy = 0;    ///< Share of tokens that the model found likeliest.
  double next_loss = 0;   ///< Next-sentence prediction, nats per pair; 0 without.
  int64_t tokens = 0;     ///< How many were predicted.
};

/// Evaluates the first `sequences` (0: one pass of all) in micro-batches; leaves the model in training mode if it was.
[[nodiscard]] Evaluation evaluate(Model& model, const Batches& batches, int64_t sequences, int64_t micro_batch,
                                  c10::Device device, bool bf16);

/// The loss of the unigram baseline: targets of validation under the frequencies of targets in training, each counted
/// once more than it occurs.  Of training, 16,384 sequences are counted at most.
[[nodiscard]] double unigram_loss(const Batches& training, const Batches& validation, int64_t sequences,
                                  int64_t vocabulary);

}  // namespace lab
