// What config.json of transformers says of a model.
#pragma once

#include "models/model.hpp"

namespace lab {

/// The fields that transformers reads, `architectures` included; model_config_of is the inverse, but for
/// `activation_checkpoints`, which are no property of a model.
[[nodiscard]] nlohmann::json huggingface_of(const ModelConfig& config);

}  // namespace lab
