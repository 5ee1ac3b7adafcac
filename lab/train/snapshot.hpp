// What a run needs to go on: weights, the optimizer's state, random generators, and how far it was.
#pragma once

#include <torch/optim/optimizer.h>

#include <filesystem>

#include "models/model.hpp"
#include "storage/checkpoint.hpp"
#include "train/config.hpp"

namespace lab {

/// Names of the files in a checkpoint.
inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kStateFile = "optimizer.safetensors";
inline constexpr const char* kRandomFile = "random.safetensors";
inline constexpr const char* kConfigFile = "config.toml";
inline constexpr const char* kModelFile = "config.json";
inline constexpr const char* kTokenizerFile = "tokenizer.model";

/// Writes a checkpoint of `step` with `about`; returns its folder.
std::filesystem::path save_snapshot(RunLock& lock, int64_t step, const Model& model,
                                    const torch::optim::Optimizer& optimizer, const TrainConfig& config,
                                    const std::filesystem::path& tokenizer, c10::Device device,
                                    const nlohmann::json& about);
/// Puts all of a checkpoint back into a model and its optimizer, which has this name.  Throws an Error that names the
/// file and the entry where the state is that of another optimizer, or not all of it.
void load_snapshot(const Checkpoint& checkpoint, const std::string& name, Model& model,
                   torch::optim::Optimizer& optimizer, c10::Device device);

/// A checkpoint by the path of a run (its newest one) or of the checkpoint itself.
[[nodiscard]] Checkpoint find_checkpoint(const std::filesystem::path& path);
/// The model of a checkpoint with its weights, on a device.
[[nodiscard]] std::shared_ptr<Model> load_model(const Checkpoint& checkpoint, c10::Device device);
/// The configuration of the run that wrote a checkpoint.
[[nodiscard]] TrainConfig load_config(const Checkpoint& checkpoint);

}  // namespace lab
