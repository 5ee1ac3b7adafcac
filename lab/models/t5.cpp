// T5 (Raffel et al. 2020) in its first version, with the parameters of T5ForConditionalGeneration: norms without centre
// before the sublayers, relative positions shared by all layers of a stack, scores that are not scaled, no biases, and
// the token embeddings once more as output layer, scaled down.
#include <ATen/ATen.h>

#include <cmath>
#include <optional>

#include "models/attention.hpp"
#include "models/checkpoint.hpp"
#include "models/cross_entropy.hpp"
#include "models/families.hpp"
#include "models/huggingface.hpp"
#include "models/layers.hpp"
#include "models/mixup.hpp"
#include "models/precision.hpp"
#include "models/relative_bias.hpp"

namespace lab {
namespace {

constexpr double kT5Epsilon = 1e-6;

Norm norm_of(const Scope& scope, const ModelConfig& config) {
  return {scope, config.width, kT5Epsilon, Norm::Kind::root_mean_square};
}

double inverse_root(int64_t n) { return 1 / std::sqrt(static_cast<double>(n)); }

struct T5Attention {
  T5Attention(const Scope& scope, const ModelConfig& config)
      : query(scope / "q", config.width, config.heads * config.head_width, false),
        key(scope / "k", config.width, config.heads * config.head_width, false),
        value(scope / "v", config.width, config.heads * config.head_width, false),
        out(scope / "o", config.heads * config.head_width, config.width, false) {}

  void initialize(const ModelConfig& config) const {
    draw(query, inverse_root(config.width * config.head_width));
    draw(key, inverse_root(config.width));
    draw(value, inverse_root(config.width));
    draw(out, inverse_root(config.heads * config.head_width));
  }

  Linear query, key, value, out;
};

struct T5Layer {
  T5Layer(const Scope& scope, const ModelConfig& config, bool decodes)
      : self(scope / "layer.0.SelfAttention", config), self_norm(norm_of(scope / "layer.0.layer_norm", config)) {
    if (decodes) {
      across.emplace(scope / "layer.1.EncDecAttention", config);
      across_norm = norm_of(scope / "layer.1.layer_norm", config);
    }
    const Scope last = scope / (decodes ? "layer.2" : "layer.1");
    up = Linear(last / "DenseReluDense.wi", config.width, config.inner, false);
    down = Linear(last / "DenseReluDense.wo", config.inner, config.width, false);
    norm = norm_of(last / "layer_norm", config);
    parameters = scope.parameters();
  }

  // x [batch * T, width] is the residual stream; `bias` of its attention and `encoded`, what the decoder looks at, are
  // in the format of products.
  at::Tensor operator()(at::Tensor x, const at::Tensor& bias, const at::Tensor& encoded, const Attention& attention,
                        int64_t batch) const {
    const at::ScalarType dtype = bias.scalar_type();
    const double share = attention.dropout;
    const at::Tensor qkv = stacked({&self.query, &self.key, &self.value}, self_norm(x, dtype));
    x = x + drop(self.out(attend_self(attention, qkv, batch, bias)), share);
    if (across) {
      const at::Tensor q = across->query(across_norm(x, dtype));
      const at::Tensor kv = stacked({&across->key, &across->value}, encoded);
      x = x + drop(across->out(attend_across(attention, q, kv, batch)), share);
    }
    return x + drop(down(drop(at::relu(up(norm(x, dtype))), share)), share);
  }

  void initialize(const ModelConfig& config) const {
    self.initialize(config);
    reset(self_norm);
    if (across) {
      across->initialize(config);
      reset(across_norm);
    }
    draw(up, inverse_root(config.width));
    draw(down, inverse_root(config.inner));
    reset(norm);
  }

  T5Attention self;
  Norm self_norm;
  std::optional<T5Attention> across;
  Norm across_norm;
  Linear up, down;
  Norm norm;
  std::vector<at::Tensor> parameters;
};

// The encoder or the decoder.
struct T5Stack {
  T5Stack(const Scope& scope, const ModelConfig& config, bool is_decoder)
      : decodes(is_decoder), buckets(distance_buckets(config.positions, is_decoder)) {
    for (int64_t k = 0; k < config.layers; ++k) {
      layers.emplace_back(scope / ("block." + std::to_string(k)), config, decodes);
      if (k > 0) continue;
      const Scope first = scope / "block.0.layer.0.SelfAttention.relative_attention_bias";
      table = first.parameter("weight", {kBuckets, config.heads});
    }
    norm = norm_of(scope / "final_layer_norm", config);
  }

  // embeddings [B, T, width] -> the residual stream [B * T, width] after the last layer, before the norm.
  at::Tensor operator()(const at::Tensor& embeddings, const at::Tensor& encoded, const ModelConfig& config,
                        double dropout, at::ScalarType dtype) {
    const int64_t size = embeddings.size(0);
    const Attention attention{config.heads, config.head_width, false, dropout, 1.0};
    if (buckets.device() != table.device()) buckets = buckets.to(table.device());
    const at::Tensor bias = relative_bias(table, buckets, embeddings.size(1), decodes).to(dtype);
    at::Tensor x = drop(embeddings.view({-1, config.width}), dropout);
    for (const T5Layer& layer : layers) {
      const Layer run = [&layer, attention, size](const std::vector<at::Tensor>& inputs) {
        return layer(inputs[0], inputs[1], inputs.size() > 2 ? inputs[2] : at::Tensor(), attention, size);
      };
      x = run_layer(config, run, decodes ? std::vector{x, bias, encoded} : std::vector{x, bias}, layer.parameters);
    }
    return x;
  }

  bool decodes;
  at::Tensor buckets;  // moves to the parameters' device with the first batch
  at::Tensor table;
  std::vector<T5Layer> layers;
  Norm norm;
};

class T5 final : public Model {
 public:
  T5(const ModelConfig& config, at::Device device)
      : Model(config),
        tokens_((Scope(*this, device) / "shared").parameter("weight", {config.vocabulary, config.width})),
        encoder_(Scope(*this, device) / "encoder", config, false),
        decoder_(Scope(*this, device) / "decoder", config, true) {}

  Loss loss(const Batch& batch, const Mix* mix) override {
    const at::ScalarType dtype = compute_dtype(tokens_);
    const NoAutocast explicit_formats(tokens_.device().type());
    const at::Tensor encoded = encode(batch, mix, dtype);
    // A partner's targets follow from the partner's tokens before them, so that each has a run of the decoder.
    return mixed_loss(batch, mix, [&](const Batch& wanted) {
      const at::Tensor x = decode(encoded, wanted, dtype);
      const at::Tensor rows = wanted.positions.defined() ? x.index_select(0, wanted.positions) : x;
      const auto [loss, correct] = cross_entropy(scaled(rows, dtype), tokens_, {}, wanted.targets, !is_training());
      return Loss{loss, {}, correct};
    });
  }

  at::Tensor logits(const Batch& batch) override {
    const at::ScalarType dtype = compute_dtype(tokens_);
    const NoAutocast explicit_formats(tokens_.device().type());
    const at::Tensor x = decode(encode(batch, nullptr, dtype), batch, dtype);
    return at::linear(scaled(x, dtype), tokens_.to(dtype))
        .view({batch.decoder_input.size(0), batch.decoder_input.size(1), -1});
  }

  nlohmann::json huggingface_config() const override { return huggingface_of(config_); }

  void initialize() override {
    draw_normal(tokens_, 1);
    for (const T5Stack* stack : {&encoder_, &decoder_}) {
      draw_normal(stack->table, inverse_root(config_.width));
      for (const T5Layer& layer : stack->layers) layer.initialize(config_);
      reset(stack->norm);
    }
  }

 private:
  [[nodiscard]] double dropout() const { return is_training() ? config_.dropout : 0; }

  // [B * T, width] in the format of products.
  at::Tensor encode(const Batch& batch, const Mix* mix, at::ScalarType dtype) {
    check_length(config_, batch.input);
    const at::Tensor x = encoder_(mixed(embed(tokens_, batch.input), mix), {}, config_, dropout(), dtype);
    return drop(encoder_.norm(x, dtype), dropout());
  }

  // The decoder's residual stream: [B * S, width].
  at::Tensor decode(const at::Tensor& encoded, const Batch& batch, at::ScalarType dtype) {
    check_length(config_, batch.decoder_input);
    return decoder_(embed(tokens_, batch.decoder_input), encoded, config_, dropout(), dtype);
  }

  // What the output layer reads.
  at::Tensor scaled(const at::Tensor& rows, at::ScalarType dtype) const {
    return drop(decoder_.norm(rows, dtype), dropout()) * inverse_root(config_.width);
  }

  at::Tensor tokens_;
  T5Stack encoder_, decoder_;
};

}  // namespace

std::shared_ptr<Model> make_t5(const ModelConfig& config, at::Device device) {
  return std::make_shared<T5>(config, device);
}

}  // namespace lab
