// Everything that decides what a training run does, and its two forms: a TOML file and command-line options.
//
// A run's own config.toml holds all of it, so that resuming or repeating needs nothing else.  Knows nothing of torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/sequence_options.hpp"

namespace lab {

struct ModelConfig;

/// One run.  Fields are listed with their sections and explanations in for_each_field below.
struct TrainConfig {
  std::string model = "gpt2-tiny";
  double dropout = 0;
  bool next_sentence = false;
  bool activation_checkpoints = false;
  int64_t vocabulary = 0;

  std::string data = "runs/data";
  int64_t length = 128;
  double mask_rate = 0.15;
  double span_length = 3;

  int64_t steps = 1000;
  int64_t batch = 32;
  int64_t micro_batch = 0;
  uint64_t seed = 1;
  std::string device = "cpu";
  std::string precision = "f32";
  int64_t threads = 0;
  double clip = 1;
  double mixup = 0;
  std::string schedule = "cosine";
  int64_t warmup = 0;
  double final_rate = 0.1;

  int64_t eval_every = 100;
  int64_t eval_sequences = 128;
  int64_t log_every = 10;
  int64_t checkpoint_every = 200;
  int64_t keep = 2;

  std::string optimizer = "came";
  double lr = 0;
  std::map<std::string, std::string> options;  // of the optimizer, by their names in came_options

  /// The model's sizes for a tokenizer of this many pieces.
  [[nodiscard]] ModelConfig model_config(int64_t pieces) const;
  /// How its sequences are made.
  [[nodiscard]] BatchOptions batch_options() const;
  /// The same for validation: other runs, whatever their seed, are asked the same.
  [[nodiscard]] BatchOptions validation_options() const;
  /// Sequences that pass through the model at once.
  [[nodiscard]] int64_t micro_batch_size() const { return micro_batch > 0 ? micro_batch : batch; }
};

/// Calls visit(section, key, field, explanation) for every field but `options`.
template <class Config, class Visit>
void for_each_field(Config& c, Visit&& visit) {
  visit("model", "model", c.model, "what to train; came-lab train --help lists them");
  visit("model", "dropout", c.dropout, "share of activations dropped while training");
  visit("model", "next_sentence", c.next_sentence, "BERT: also predict whether two sentences follow each other");
  visit("model", "activation_checkpoints", c.activation_checkpoints,
        "keep only each layer's input and compute the rest again: less memory, more time");
  visit("model", "vocabulary", c.vocabulary, "rows of the embedding, at least the tokenizer's size; 0: that size");

  visit("data", "data", c.data, "folder that came-lab data wrote");
  visit("data", "length", c.length, "tokens in a sequence");
  visit("data", "mask_rate", c.mask_rate, "BERT, T5: share of tokens that are hidden");
  visit("data", "span_length", c.span_length, "T5: mean length of a hidden span");

  visit("train", "steps", c.steps, "steps of the optimizer");
  visit("train", "batch", c.batch, "sequences in a step");
  visit("train", "micro_batch", c.micro_batch, "sequences at once; the rest of a batch is accumulated; 0: all");
  visit("train", "seed", c.seed, "of initial weights, order, masks and dropout while training");
  visit("train", "device", c.device, "cpu, cuda or cuda:N");
  visit("train", "precision", c.precision, "f32, or bf16: matrix products in bf16, the rest in f32");
  visit("train", "threads", c.threads, "CPU threads; 0: as many as libtorch takes");
  visit("train", "clip", c.clip, "largest norm of the whole gradient; 0: no clipping");
  visit("train", "mixup", c.mixup, "alpha of Mixup's Beta(alpha, alpha) on embeddings; 0: none");
  visit("train", "schedule", c.schedule, "of the learning rate after warm-up: constant, linear or cosine");
  visit("train", "warmup", c.warmup, "steps over which the learning rate rises from 0");
  visit("train", "final_rate", c.final_rate, "learning rate at the end, as a share of lr; linear and cosine");

  visit("run", "eval_every", c.eval_every, "steps between evaluations; 0: only at the end");
  visit("run", "eval_sequences", c.eval_sequences, "validation sequences, the same each time; 0: all");
  visit("run", "log_every", c.log_every, "steps between entries in metrics.jsonl");
  visit("run", "checkpoint_every", c.checkpoint_every, "steps between checkpoints; 0: only at the end");
  visit("run", "keep", c.keep, "newest checkpoints that are kept, beside the best one");

  visit("optimizer", "optimizer", c.optimizer, "how to train it; came-lab train --help lists them");
  visit("optimizer", "lr", c.lr, "learning rate; 0: a sensible one for the optimizer");
}

/// Sets fields from a TOML file; unknown sections and keys, and values of another type, are errors that name the line.
void read_config(TrainConfig& config, const std::filesystem::path& file);
/// The whole configuration as TOML, explanations included; read_config gives the same back.
[[nodiscard]] std::string config_text(const TrainConfig& config);
/// Throws an Error that names the first field that makes no sense; fills in what is 0 for "choose".
void resolve_config(TrainConfig& config);

}  // namespace lab
