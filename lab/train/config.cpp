// What a configuration means: which values make sense, and what model and sequences it asks for.
#include "train/config.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>

#include "error.hpp"
#include "models/model.hpp"
#include "range.hpp"
#include "train/optimizers.hpp"

namespace lab {
namespace {

void expect(bool fine, const char* key, const std::string& given, const char* wanted) {
  if (!fine) fail("{} is {}, but must be {}", key, given, wanted);
}

}  // namespace

void resolve_config(TrainConfig& c) {
  for_each_field(c, [&](const char* section, const char* key, auto&, const char*) {
    if (std::string_view(section) == "optimizer" && c.options.contains(key)) fail("-o {0}=...: say --{0} instead", key);
  });
  const auto number = [](auto value) { return fmt::format("{}", value); };
  expect(c.dropout >= 0 && c.dropout < 1, "dropout", number(c.dropout), "at least 0 and less than 1");
  expect_range<int64_t>("vocabulary", c.vocabulary, 0, kLargestVocabulary);
  expect_range<int64_t>("length", c.length, 1, kLongestSequence);
  expect(c.mask_rate > 0 && c.mask_rate <= 0.9, "mask_rate", number(c.mask_rate), "above 0 and at most 0.9");
  expect_range("span_length", c.span_length, 1.0, 1e6);
  expect_range<int64_t>("steps", c.steps, 1, kMostSteps);
  expect_range<int64_t>("batch", c.batch, 1, 32768);
  expect_range<int64_t>("micro_batch", c.micro_batch, 0, 32768);
  if (c.batch % c.micro_batch_size() != 0)
    fail("batch is {}, which micro_batch {} does not divide; take a micro_batch that does", c.batch, c.micro_batch);
  expect(c.seed <= INT64_MAX, "seed", number(c.seed), "less than 2^63");
  expect(c.precision == "f32" || c.precision == "bf16", "precision", c.precision, "f32 or bf16");
  expect_range<int64_t>("threads", c.threads, 0, kMostThreads);
  expect_range("clip", c.clip, 0.0, 1e30);
  // The weight is made of two draws from a gamma distribution; below 0.01 both underflow too often.
  expect(c.mixup == 0 || (c.mixup >= 0.01 && c.mixup <= 1000), "mixup", number(c.mixup), "0, or from 0.01 to 1000");
  expect(c.schedule == "constant" || c.schedule == "linear" || c.schedule == "cosine", "schedule", c.schedule,
         "constant, linear or cosine");
  expect_range<int64_t>("warmup", c.warmup, 0, c.steps);
  expect_range("final_rate", c.final_rate, 0.0, 1.0);
  expect_range<int64_t>("eval_every", c.eval_every, 0, kMostSteps);
  expect_range<int64_t>("eval_sequences", c.eval_sequences, 0, kMostSteps);
  expect_range<int64_t>("log_every", c.log_every, 1, kMostSteps);
  expect_range<int64_t>("checkpoint_every", c.checkpoint_every, 0, kMostSteps);
  expect_range<int64_t>("keep", c.keep, 1, kMostSteps);
  expect_range("lr", c.lr, 0.0, 1e30);
  if (c.mixup > 0 && c.micro_batch_size() == 1)
    fail("mixup is {}, but with micro_batch 1 there is nothing to mix; take at least 2", c.mixup);
  if (c.threads == 0) c.threads = std::min<int64_t>(at::get_num_threads(), kMostThreads);
  if (c.lr == 0) c.lr = default_rate(c.optimizer);
  c.micro_batch = c.micro_batch_size();
}

ModelConfig TrainConfig::model_config(int64_t pieces) const {
  ModelConfig sizes = lab::model_config(model);
  if (vocabulary != 0 && vocabulary < pieces)
    fail("vocabulary is {}, but the tokenizer in {} has {} pieces; take 0 or at least that", vocabulary, data, pieces);
  sizes.vocabulary = vocabulary != 0 ? vocabulary : pieces;
  sizes.dropout = dropout;
  sizes.next_sentence = next_sentence;
  sizes.activation_checkpoints = activation_checkpoints;
  if (next_sentence && sizes.family != "bert") fail("next_sentence is set, but {} is no BERT", model);
  if (sizes.family != "mlp" && length > sizes.positions)
    fail("length is {}, but {} takes sequences of {} tokens at most; take a smaller length", length, model,
         sizes.positions);
  return sizes;
}

BatchOptions TrainConfig::validation_options() const {
  BatchOptions made = batch_options();
  made.seed = 0;
  return made;
}

BatchOptions TrainConfig::batch_options() const {
  BatchOptions made;
  made.objective = lab::model_config(model).objective;
  made.length = length;
  made.seed = seed;
  made.mask_rate = mask_rate;
  made.span_length = span_length;
  made.next_sentence = next_sentence;
  return made;
}

}  // namespace lab
