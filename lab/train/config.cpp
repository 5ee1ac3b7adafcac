// What a configuration means: which values make sense, and what model and sequences it asks for.
#include "train/config.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cmath>

#include "error.hpp"
#include "models/model.hpp"
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
  expect(c.length > 0, "length", number(c.length), "positive");
  expect(c.steps > 0, "steps", number(c.steps), "positive");
  expect(c.batch > 0 && c.batch <= 32768, "batch", number(c.batch), "from 1 to 32768");
  expect(c.micro_batch >= 0, "micro_batch", number(c.micro_batch), "0 or positive");
  if (c.batch % c.piece() != 0)
    fail("batch is {}, which micro_batch {} does not divide; take a micro_batch that does", c.batch, c.micro_batch);
  expect(c.precision == "f32" || c.precision == "bf16", "precision", c.precision, "f32 or bf16");
  expect(c.seed <= INT64_MAX, "seed", number(c.seed), "less than 2^63");
  expect(c.threads >= 0, "threads", number(c.threads), "0 or positive");
  expect(c.clip >= 0 && std::isfinite(c.clip), "clip", number(c.clip), "0 or positive");
  expect(c.mixup >= 0 && std::isfinite(c.mixup), "mixup", number(c.mixup), "0 or positive");
  expect(c.dropout >= 0 && c.dropout < 1, "dropout", number(c.dropout), "at least 0 and less than 1");
  expect(c.mask_rate > 0 && c.mask_rate <= 0.9, "mask_rate", number(c.mask_rate), "above 0 and at most 0.9");
  expect(c.span_length >= 1, "span_length", number(c.span_length), "at least 1");
  expect(c.schedule == "constant" || c.schedule == "linear" || c.schedule == "cosine", "schedule", c.schedule,
         "constant, linear or cosine");
  expect(c.warmup >= 0 && c.warmup <= c.steps, "warmup", number(c.warmup), "from 0 to steps");
  expect(c.final_rate >= 0 && c.final_rate <= 1, "final_rate", number(c.final_rate), "from 0 to 1");
  expect(c.eval_every >= 0, "eval_every", number(c.eval_every), "0 or positive");
  expect(c.eval_sequences >= 0, "eval_sequences", number(c.eval_sequences), "0 or positive");
  expect(c.log_every > 0, "log_every", number(c.log_every), "positive");
  expect(c.checkpoint_every >= 0, "checkpoint_every", number(c.checkpoint_every), "0 or positive");
  expect(c.keep >= 1, "keep", number(c.keep), "at least 1");
  expect(c.lr >= 0 && std::isfinite(c.lr), "lr", number(c.lr), "0 or positive");
  if (c.mixup > 0 && c.piece() == 1)
    fail("mixup is {}, but with micro_batch 1 there is nothing to mix; take at least 2", c.mixup);
  if (c.threads == 0) c.threads = at::get_num_threads();
  if (c.lr == 0) c.lr = default_rate(c.optimizer);
  c.micro_batch = c.piece();
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
