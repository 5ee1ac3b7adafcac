// A perceptron with one hidden layer (Bengio et al. 2003): predicts a token from the embeddings of those before it,
// side by side.  The smallest model that reads text; transformers has none like it.
#include <ATen/ATen.h>

#include <cmath>

#include "models/cross_entropy.hpp"
#include "models/families.hpp"
#include "models/huggingface.hpp"
#include "models/layers.hpp"
#include "models/mixup.hpp"
#include "models/precision.hpp"

namespace lab {
namespace {

class Mlp final : public Model {
 public:
  Mlp(const ModelConfig& config, at::Device device) : Model(config) {
    const Scope scope(*this, device);
    tokens_ = (scope / "embedding").parameter("weight", {config.vocabulary, config.width});
    hidden_ = Linear(scope / "hidden", config.positions * config.width, config.inner);
    output_ = Linear(scope / "output", config.inner, config.vocabulary);
  }

  Loss loss(const Batch& batch, const Mix* mix) override {
    const at::ScalarType dtype = compute_dtype(tokens_);
    const NoAutocast explicit_formats(tokens_.device().type());
    const at::Tensor x = activations(batch, mix, dtype);
    return mixed_loss(batch, mix, [&](const Batch& wanted) {
      const at::Tensor rows = wanted.positions.defined() ? x.index_select(0, wanted.positions) : x;
      const auto [loss, correct] = cross_entropy(rows, output_.weight, output_.bias, wanted.targets, !is_training());
      return Loss{loss, {}, correct};
    });
  }

  at::Tensor logits(const Batch& batch) override {
    const at::ScalarType dtype = compute_dtype(tokens_);
    const NoAutocast explicit_formats(tokens_.device().type());
    return output_(activations(batch, nullptr, dtype)).view({batch.input.size(0), batch.input.size(1), -1});
  }

  nlohmann::json huggingface_config() const override { return huggingface_of(config_); }

  // Sums of as many terms as a layer has inputs stay near 1.
  void initialize() override {
    draw_normal(tokens_, 1);
    for (const Linear* layer : {&hidden_, &output_}) {
      draw(*layer, 1 / std::sqrt(static_cast<double>(layer->weight.size(1))));
    }
  }

 private:
  // [B * T, inner].  Before the first token there are zeros.
  at::Tensor activations(const Batch& batch, const Mix* mix, at::ScalarType dtype) const {
    const at::Tensor x = mixed(embed(tokens_, batch.input), mix).to(dtype);
    const at::Tensor padded = at::constant_pad_nd(x, {0, 0, config_.positions - 1, 0});
    const at::Tensor windows = padded.unfold(1, config_.positions, 1).transpose(2, 3);
    return at::tanh(hidden_(windows.reshape({-1, config_.positions * config_.width})));
  }

  at::Tensor tokens_;
  Linear hidden_, output_;
};

}  // namespace

std::shared_ptr<Model> make_mlp(const ModelConfig& config, at::Device device) {
  return std::make_shared<Mlp>(config, device);
}

}  // namespace lab
