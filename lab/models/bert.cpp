// BERT (Devlin et al. 2019) with the parameters of BertForMaskedLM, or of BertForPreTraining where next sentences are
// predicted as well: norms after the sublayers, learned positions and segments, and the token embeddings once more as
// output layer, with a bias.
#include <ATen/ATen.h>

#include "data/tokenizer.hpp"
#include "error.hpp"
#include "models/attention.hpp"
#include "models/checkpoint.hpp"
#include "models/cross_entropy.hpp"
#include "models/families.hpp"
#include "models/huggingface.hpp"
#include "models/layers.hpp"
#include "models/mixup.hpp"
#include "models/precision.hpp"

namespace lab {
namespace {

constexpr double kBertEpsilon = 1e-12, kBertDeviation = 0.02;

struct BertLayer {
  BertLayer(const Scope& scope, const ModelConfig& config)
      : query(scope / "attention.self.query", config.width, config.width),
        key(scope / "attention.self.key", config.width, config.width),
        value(scope / "attention.self.value", config.width, config.width),
        out(scope / "attention.output.dense", config.width, config.width),
        norm_1(scope / "attention.output.LayerNorm", config.width, kBertEpsilon),
        up(scope / "intermediate.dense", config.width, config.inner),
        down(scope / "output.dense", config.inner, config.width),
        norm_2(scope / "output.LayerNorm", config.width, kBertEpsilon),
        parameters(scope.parameters()) {}

  // x [batch * T, width] in the parameters' format, as is what is returned.
  at::Tensor operator()(const at::Tensor& x, const Attention& attention, int64_t batch, at::ScalarType dtype) const {
    const at::Tensor seen = attend_self(attention, stacked({&query, &key, &value}, x.to(dtype)), batch);
    const at::Tensor middle = norm_1(x + drop(out(seen), attention.dropout), x.scalar_type());
    return norm_2(middle + drop(down(at::gelu(up(middle.to(dtype)))), attention.dropout), x.scalar_type());
  }

  Linear query, key, value, out;
  Norm norm_1;
  Linear up, down;
  Norm norm_2;
  std::vector<at::Tensor> parameters;
};

class Bert final : public Model {
 public:
  Bert(const ModelConfig& config, at::Device device) : Model(config) {
    const Scope scope(*this, device), embeddings = scope / "bert.embeddings", head = scope / "cls.predictions";
    tokens_ = (embeddings / "word_embeddings").parameter("weight", {config.vocabulary, config.width});
    positions_ = (embeddings / "position_embeddings").parameter("weight", {config.positions, config.width});
    segments_ = (embeddings / "token_type_embeddings").parameter("weight", {2, config.width});
    norm_ = Norm(embeddings / "LayerNorm", config.width, kBertEpsilon);
    for (int64_t k = 0; k < config.layers; ++k) {
      layers_.emplace_back(scope / ("bert.encoder.layer." + std::to_string(k)), config);
    }
    if (config.next_sentence) pooler_ = Linear(scope / "bert.pooler.dense", config.width, config.width);
    bias_ = head.parameter("bias", {config.vocabulary});
    transform_ = Linear(head / "transform.dense", config.width, config.width);
    transform_norm_ = Norm(head / "transform.LayerNorm", config.width, kBertEpsilon);
    if (config.next_sentence) next_ = Linear(scope / "cls.seq_relationship", config.width, 2);
  }

  Loss loss(const Batch& batch, const Mix* mix) override {
    const at::ScalarType dtype = compute_dtype(tokens_);
    const NoAutocast explicit_formats(tokens_.device().type());
    const at::Tensor x = encode(batch, mix, dtype);
    return mixed_loss(batch, mix, [&](const Batch& wanted) {
      // A seventh of the tokens: the rest never meets the head.
      const at::Tensor rows = wanted.positions.defined() ? x.index_select(0, wanted.positions) : x;
      const auto [loss, correct] =
          cross_entropy(transformed(rows, dtype), tokens_, bias_, wanted.targets, !is_training());
      return Loss{loss, config_.next_sentence ? next_loss(x, wanted, dtype) : at::Tensor(), correct};
    });
  }

  at::Tensor logits(const Batch& batch) override {
    const at::ScalarType dtype = compute_dtype(tokens_);
    const NoAutocast explicit_formats(tokens_.device().type());
    const at::Tensor hidden = transformed(encode(batch, nullptr, dtype), dtype);
    return at::linear(hidden, tokens_.to(dtype), bias_.to(dtype)).view({batch.input.size(0), batch.input.size(1), -1});
  }

  nlohmann::json huggingface_config() const override { return huggingface_of(config_); }

  void initialize() override {
    for (const at::Tensor& table : {tokens_, positions_, segments_}) draw_normal(table, kBertDeviation);
    set_all(tokens_.detach()[kPad], 0);
    reset(norm_);
    for (const BertLayer& layer : layers_) {
      for (const Linear* linear : {&layer.query, &layer.key, &layer.value, &layer.out, &layer.up, &layer.down}) {
        draw(*linear, kBertDeviation);
      }
      reset(layer.norm_1);
      reset(layer.norm_2);
    }
    set_all(bias_, 0);
    draw(transform_, kBertDeviation);
    reset(transform_norm_);
    if (!config_.next_sentence) return;
    draw(pooler_, kBertDeviation);
    draw(next_, kBertDeviation);
  }

 private:
  // The last layer's output: [B * T, width].
  at::Tensor encode(const Batch& batch, const Mix* mix, at::ScalarType dtype) {
    check_length(config_, batch.input);
    const int64_t size = batch.input.size(0), length = batch.input.size(1);
    const double dropout = is_training() ? config_.dropout : 0;
    const Attention attention{config_.heads, config_.head_width, false, dropout, std::nullopt};
    // Segments belong to what a sequence is, so that they are mixed with its tokens; positions are everyone's.
    at::Tensor x = embed(tokens_, batch.input, kPad);
    x = x + (batch.segments.defined() ? embed(segments_, batch.segments) : segments_[0]);
    x = mixed(x, mix) + positions_.narrow(0, 0, length);
    x = drop(norm_(x.view({-1, config_.width}), x.scalar_type()), dropout);
    for (const BertLayer& layer : layers_) {
      const Layer run = [&layer, attention, size, dtype](const std::vector<at::Tensor>& inputs) {
        return layer(inputs[0], attention, size, dtype);
      };
      x = run_layer(config_, run, {x}, layer.parameters);
    }
    return x;
  }

  // What the output layer reads, of rows of x.
  at::Tensor transformed(const at::Tensor& rows, at::ScalarType dtype) const {
    return transform_norm_(at::gelu(transform_(rows.to(dtype))).to(transform_norm_.weight.scalar_type()), dtype);
  }

  at::Tensor next_loss(const at::Tensor& x, const Batch& wanted, at::ScalarType dtype) const {
    if (!wanted.next.defined()) {
      fail("model '{}': the batch does not say which sentences follow each other: make it with next_sentence",
           config_.name);
    }
    const at::Tensor first = x.view({wanted.next.size(0), -1, config_.width}).select(1, 0);
    const at::Tensor scores = next_(at::tanh(pooler_(first.to(dtype))));
    return at::cross_entropy_loss(scores.to(at::kFloat), wanted.next, {}, at::Reduction::Sum);
  }

  at::Tensor tokens_, positions_, segments_;
  Norm norm_;
  std::vector<BertLayer> layers_;
  Linear pooler_;
  at::Tensor bias_;
  Linear transform_;
  Norm transform_norm_;
  Linear next_;
};

}  // namespace

std::shared_ptr<Model> make_bert(const ModelConfig& config, at::Device device) {
  return std::make_shared<Bert>(config, device);
}

}  // namespace lab
