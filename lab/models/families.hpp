// What builds a model of each family from a config that make_model has checked.
#pragma once

#include <memory>

#include "models/model.hpp"

namespace lab {

[[nodiscard]] std::shared_ptr<Model> make_bert(const ModelConfig& config, at::Device device);
[[nodiscard]] std::shared_ptr<Model> make_gpt2(const ModelConfig& config, at::Device device);
[[nodiscard]] std::shared_ptr<Model> make_t5(const ModelConfig& config, at::Device device);
[[nodiscard]] std::shared_ptr<Model> make_mlp(const ModelConfig& config, at::Device device);

/// Throws an Error where a sequence is longer than the model's positions.
void check_length(const ModelConfig& config, const at::Tensor& tokens);

}  // namespace lab
