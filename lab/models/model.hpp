// What the lab trains: a module whose parameters bear the names and layouts of Hugging Face's transformers.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/batch.hpp"
#include "objective.hpp"

namespace lab {

/// What a model is built from.  Zero where a family has no such thing.
struct ModelConfig {
  std::string name;    ///< Such as "gpt2-small".
  std::string family;  ///< "bert", "gpt2", "t5" or "mlp".
  Objective objective = Objective::causal;
  int64_t vocabulary = 0;               ///< Rows of the embedding.
  int64_t positions = 0;                ///< Longest sequence (MLP: how many tokens it sees).
  int64_t layers = 0;                   ///< Of the encoder and again of the decoder for T5.
  int64_t width = 0;                    ///< Of the residual stream.
  int64_t heads = 0;                    ///< Of attention.
  int64_t head_width = 0;               ///< width / heads but for some T5.
  int64_t inner = 0;                    ///< Of the feed-forward layer.
  double dropout = 0;                   ///< Everywhere but in the MLP.
  bool next_sentence = false;           ///< BERT: with the head for next-sentence prediction.
  bool activation_checkpoints = false;  ///< Keep each layer's input alone and compute the rest again in backward.
};

/// The sizes of a name such as "bert-large"; throws an Error that lists the names there are.
[[nodiscard]] ModelConfig model_config(const std::string& name);
/// All names, smallest first within a family.
[[nodiscard]] std::vector<std::string> model_names();
/// The config of a model that Hugging Face's config.json describes, and the other way round in Model; throws an Error
/// that names the field which is missing or asks for another kind of model.
[[nodiscard]] ModelConfig model_config_of(const nlohmann::json& huggingface);

/// Mixes each sequence's embeddings with those of another one of the batch: Mixup on what a token model has to mix.
struct Mix {
  double lambda = 1;   ///< Weight of the sequence itself; 1 - lambda for the other.
  at::Tensor partner;  ///< [B] int64 on the model's device: which one; a permutation.
};

/// Sums over a batch, so that a large batch may come in micro-batches; f32 on the model's device.
struct Loss {
  at::Tensor tokens;   ///< Sum of the cross entropies of predicted tokens, in nats.  Differentiable.
  at::Tensor next;     ///< The same for next-sentence prediction; undefined without.
  at::Tensor correct;  ///< How many predicted tokens were the likeliest; defined in eval mode alone.
};

/// A language model.
class Model : public torch::nn::Module {
 public:
  explicit Model(ModelConfig config) : config_(std::move(config)) {}

  /// The loss of a batch; `mix` as in Mixup, targets included.
  virtual Loss loss(const Batch& batch, const Mix* mix = nullptr) = 0;
  /// Scores of the vocabulary at every position: [B, T, V] (T5: [B, S, V]).
  virtual at::Tensor logits(const Batch& batch) = 0;
  /// What transformers' config.json says of such a model, `architectures` included.
  [[nodiscard]] virtual nlohmann::json huggingface_config() const = 0;
  /// Draws fresh parameters, as transformers does for such a model, from torch's default generator.
  virtual void initialize() = 0;

  [[nodiscard]] const ModelConfig& config() const { return config_; }

 protected:
  ModelConfig config_;
};

/// Builds a model, parameters uninitialised in f32 until initialize() or a file fills them; throws an Error that names
/// the field where the config makes no model.  On the device "meta" it has shapes alone.
[[nodiscard]] std::shared_ptr<Model> make_model(const ModelConfig& config, at::Device device = at::kCPU);

}  // namespace lab
