// From a config to a model, once every field has been looked at.
#include "error.hpp"
#include "models/families.hpp"
#include "models/model.hpp"

namespace lab {
namespace {

void check_positive(const ModelConfig& config, const char* field, int64_t value) {
  if (value <= 0) fail("model '{}': {} is {}, expected a positive number", config.name, field, value);
}

void check_zero(const ModelConfig& config, const char* field, int64_t value) {
  if (value != 0)
    fail("model '{}': {} is {}, but family {} has none: leave it 0", config.name, field, value, config.family);
}

Objective objective_of(const ModelConfig& config) {
  if (config.family == "bert") return Objective::masked;
  if (config.family == "gpt2" || config.family == "mlp") return Objective::causal;
  if (config.family == "t5") return Objective::spans;
  fail("model '{}': family is '{}', expected bert, gpt2, t5 or mlp", config.name, config.family);
}

void check(const ModelConfig& config) {
  if (config.objective != objective_of(config)) {
    fail(
        "model '{}': objective is not the one of family {}: use causal for gpt2 and mlp, masked for bert, spans for t5",
        config.name, config.family);
  }
  check_positive(config, "vocabulary", config.vocabulary);
  check_positive(config, "positions", config.positions);
  check_positive(config, "width", config.width);
  check_positive(config, "inner", config.inner);
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    fail("model '{}': dropout is {}, expected at least 0 and less than 1", config.name, config.dropout);
  }
  if (config.next_sentence && config.family != "bert") {
    fail("model '{}': next_sentence is on, but only family bert has that head", config.name);
  }
  if (config.family == "mlp") {
    check_zero(config, "layers", config.layers);
    check_zero(config, "heads", config.heads);
    if (config.dropout != 0) fail("model '{}': dropout is {}, but family mlp has none", config.name, config.dropout);
    return;
  }
  check_positive(config, "layers", config.layers);
  check_positive(config, "heads", config.heads);
  check_positive(config, "head_width", config.head_width);
  if (config.family != "t5" && config.heads * config.head_width != config.width) {
    fail("model '{}': {} heads with head_width {} make {}, expected the width, {}", config.name, config.heads,
         config.head_width, config.heads * config.head_width, config.width);
  }
}

}  // namespace

std::shared_ptr<Model> make_model(const ModelConfig& config, at::Device device) {
  check(config);
  if (config.family == "bert") return make_bert(config, device);
  if (config.family == "gpt2") return make_gpt2(config, device);
  if (config.family == "t5") return make_t5(config, device);
  return make_mlp(config, device);
}

void check_length(const ModelConfig& config, const at::Tensor& tokens) {
  if (tokens.size(1) > config.positions) {
    fail("model '{}': a sequence has {} tokens, expected at most {} (positions)", config.name, tokens.size(1),
         config.positions);
  }
}

}  // namespace lab
