// What the tests of training share: sequences that can be learned, small models, and a model whose sums are exact.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.hpp"
#include "models/model.hpp"
#include "train/config.hpp"

namespace lab_test {

using lab::Batch, lab::Mix, lab::Model, lab::TrainConfig;

inline constexpr int64_t kVocabulary = 300, kLength = 16;

/// Sequences that count up from a number of their own: something to learn.
class Counting : public lab::Batches {
 public:
  /// How many tokens of a sequence are asked for, by its number: 32 in any eight that follow each other.
  static constexpr std::array<int64_t, 8> kAsked = {1, 7, 2, 6, 3, 5, 4, 4};

  bool uneven = false;         ///< Ask for kAsked tokens of a sequence instead of all.
  bool next_sentence = false;  ///< Say which sentences follow each other, too.

  [[nodiscard]] Batch batch(int64_t first, int64_t count) const override {
    const at::Tensor numbers = at::arange(first, first + count);
    const at::Tensor tokens = (numbers.mul(37).unsqueeze(1) + at::arange(kLength + 1)).remainder(kVocabulary);
    Batch made;
    made.input = tokens.slice(1, 0, kLength).contiguous();
    made.targets = tokens.slice(1, 1, kLength + 1).flatten();
    if (next_sentence) made.next = numbers.bitwise_and(1);
    if (!uneven) return made;
    std::vector<int64_t> positions;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t asked = kAsked[static_cast<size_t>((first + k) % 8)];
      for (int64_t t = 0; t < asked; ++t) positions.push_back(k * kLength + t);
    }
    made.positions = at::tensor(positions, at::kLong);
    made.targets = made.targets.index_select(0, made.positions);
    return made;
  }
  [[nodiscard]] int64_t pass() const override { return kVocabulary; }
};

/// One weight of 1; the loss is the weight times the sum of the targets, that of next sentences 4 times those that are
/// another document's.  Sums of whole numbers below 2^24: exact in f32.  Notes what it was called with.
class SumModel : public Model {
 public:
  struct Call {
    Batch batch;
    std::optional<Mix> mix;
    bool training = false;
  };

  SumModel() : Model({}), weight(register_parameter("weight", at::ones({}))) {}
  lab::Loss loss(const Batch& batch, const Mix* mix) override {
    calls.push_back({batch, mix != nullptr ? std::optional(*mix) : std::nullopt, is_training()});
    lab::Loss made;
    made.tokens = weight * batch.targets.sum();
    if (batch.next.defined()) made.next = weight * (4 * batch.next.sum());
    if (!is_training()) made.correct = batch.targets.remainder(3).eq(0).sum();
    return made;
  }
  at::Tensor logits(const Batch& batch) override { return batch.input; }
  [[nodiscard]] nlohmann::json huggingface_config() const override { return {}; }
  void initialize() override {}

  at::Tensor weight;
  std::vector<Call> calls;
};

inline TrainConfig small_config(const std::string& optimizer) {
  TrainConfig config;
  config.model = "gpt2-tiny";
  config.length = kLength;
  config.batch = 8;
  config.steps = 60;
  config.warmup = 10;
  config.optimizer = optimizer;
  resolve_config(config);
  return config;
}

/// The same weights each time.
inline std::shared_ptr<Model> fresh_model(const TrainConfig& config, at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(3);
  auto model = lab::make_model(config.model_config(kVocabulary));
  model->initialize();
  model->to(dtype);
  model->train();
  return model;
}

}  // namespace lab_test
