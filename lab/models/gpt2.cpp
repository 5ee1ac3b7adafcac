// GPT-2 (Radford et al. 2019) with the parameters of GPT2LMHeadModel: norms before the sublayers, learned positions,
// and the token embeddings once more as output layer.
#include <ATen/ATen.h>

#include <cmath>

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

constexpr double kGpt2Epsilon = 1e-5, kGpt2Deviation = 0.02;

struct Gpt2Layer {
  Gpt2Layer(const Scope& scope, const ModelConfig& config)
      : norm_1(scope / "ln_1", config.width, kGpt2Epsilon),
        qkv(scope / "attn.c_attn", config.width, 3 * config.width),
        out(scope / "attn.c_proj", config.width, config.width),
        norm_2(scope / "ln_2", config.width, kGpt2Epsilon),
        up(scope / "mlp.c_fc", config.width, config.inner),
        down(scope / "mlp.c_proj", config.inner, config.width),
        parameters(scope.parameters()) {}

  // x [batch * T, width] is the residual stream.
  at::Tensor operator()(const at::Tensor& x, const Attention& attention, int64_t batch, at::ScalarType dtype) const {
    const at::Tensor seen = attend_self(attention, qkv(norm_1(x, dtype)), batch);
    const at::Tensor middle = x + drop(out(seen), attention.dropout);
    return middle + drop(down(at::gelu(up(norm_2(middle, dtype)), "tanh")), attention.dropout);
  }

  Norm norm_1;
  Conv1D qkv, out;
  Norm norm_2;
  Conv1D up, down;
  std::vector<at::Tensor> parameters;
};

class Gpt2 final : public Model {
 public:
  Gpt2(const ModelConfig& config, at::Device device) : Model(config) {
    const Scope scope = Scope(*this, device) / "transformer";
    tokens_ = (scope / "wte").parameter("weight", {config.vocabulary, config.width});
    positions_ = (scope / "wpe").parameter("weight", {config.positions, config.width});
    for (int64_t k = 0; k < config.layers; ++k) layers_.emplace_back(scope / ("h." + std::to_string(k)), config);
    norm_ = Norm(scope / "ln_f", config.width, kGpt2Epsilon);
  }

  Loss loss(const Batch& batch, const Mix* mix) override {
    const at::ScalarType dtype = compute_dtype(tokens_);
    const NoAutocast explicit_formats(tokens_.device().type());
    const at::Tensor x = stream(batch, mix, dtype);
    return mixed_loss(batch, mix, [&](const Batch& wanted) {
      const at::Tensor rows = wanted.positions.defined() ? x.index_select(0, wanted.positions) : x;
      const auto [loss, correct] = cross_entropy(norm_(rows, dtype), tokens_, {}, wanted.targets, !is_training());
      return Loss{loss, {}, correct};
    });
  }

  at::Tensor logits(const Batch& batch) override {
    const at::ScalarType dtype = compute_dtype(tokens_);
    const NoAutocast explicit_formats(tokens_.device().type());
    const at::Tensor scores = at::linear(norm_(stream(batch, nullptr, dtype), dtype), tokens_.to(dtype));
    return scores.view({batch.input.size(0), batch.input.size(1), -1});
  }

  nlohmann::json huggingface_config() const override { return huggingface_of(config_); }

  void initialize() override {
    draw_normal(tokens_, kGpt2Deviation);
    draw_normal(positions_, kGpt2Deviation);
    // The residual stream is a sum of so many branches.
    const double branch = kGpt2Deviation / std::sqrt(2.0 * static_cast<double>(config_.layers));
    for (const Gpt2Layer& layer : layers_) {
      reset(layer.norm_1);
      draw(layer.qkv, kGpt2Deviation);
      draw(layer.out, branch);
      reset(layer.norm_2);
      draw(layer.up, kGpt2Deviation);
      draw(layer.down, branch);
    }
    reset(norm_);
  }

 private:
  // The residual stream after the last layer: [B * T, width].
  at::Tensor stream(const Batch& batch, const Mix* mix, at::ScalarType dtype) {
    check_length(config_, batch.input);
    const int64_t size = batch.input.size(0), length = batch.input.size(1);
    const double dropout = is_training() ? config_.dropout : 0;
    const Attention attention{config_.heads, config_.head_width, true, dropout, std::nullopt};
    at::Tensor x = mixed(embed(tokens_, batch.input), mix) + positions_.narrow(0, 0, length);
    x = drop(x.view({-1, config_.width}), dropout);
    for (const Gpt2Layer& layer : layers_) {
      const Layer run = [&layer, attention, size, dtype](const std::vector<at::Tensor>& inputs) {
        return layer(inputs[0], attention, size, dtype);
      };
      x = run_layer(config_, run, {x}, layer.parameters);
    }
    return x;
  }

  at::Tensor tokens_, positions_;
  std::vector<Gpt2Layer> layers_;
  Norm norm_;
};

}  // namespace

std::shared_ptr<Model> make_gpt2(const ModelConfig& config, at::Device device) {
  return std::make_shared<Gpt2>(config, device);
}

}  // namespace lab
