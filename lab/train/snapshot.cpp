#include "train/snapshot.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "error.hpp"
#include "storage/file.hpp"
#include "train/optimizers.hpp"
#include "train/tensors.hpp"

namespace lab {
namespace {

at::Tensor random_state(c10::Device device) {
  const at::Generator generator = at::globalContext().defaultGenerator(device);
  return generator.get_state();
}

void set_random_state(c10::Device device, const at::Tensor& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  generator.set_state(state);
}

}  // namespace

std::filesystem::path save_snapshot(RunLock& lock, int64_t step, const Model& model,
                                    const torch::optim::Optimizer& optimizer, const TrainConfig& config,
                                    const std::filesystem::path& tokenizer, c10::Device device,
                                    const nlohmann::json& about) {
  CheckpointWriter writer(lock, step);
  write_tensors(writer.file(kWeightsFile), parameters_of(model), {{"format", "pt"}});
  std::vector<NamedTensor> state;
  for (const auto& [name, tensor] : state_of(optimizer, model)) state.push_back({name, tensor});
  write_tensors(writer.file(kStateFile), state, {{"optimizer", config.optimizer}});
  std::vector<NamedTensor> random = {{"cpu", random_state(c10::kCPU)}};
  if (device.is_cuda()) random.push_back({"cuda", random_state(device)});
  write_tensors(writer.file(kRandomFile), random);
  write_file(writer.file(kTokenizerFile), read_file(tokenizer));
  write_file(writer.file(kConfigFile), config_text(config));
  write_file(writer.file(kModelFile), model.huggingface_config().dump(2) + "\n");
  return writer.commit(about);
}

void load_snapshot(const Checkpoint& checkpoint, const std::string& name, Model& model,
                   torch::optim::Optimizer& optimizer, c10::Device device) {
  const auto path = checkpoint.file(kStateFile);
  const SafetensorsFile state_file(path);
  const auto& metadata = state_file.contents().metadata;
  const auto saved = metadata.find("optimizer");
  if (saved == metadata.end() || saved->second != name)
    fail("{}: state of {}, but the run is of {}; take a checkpoint of this run", path.string(),
         saved == metadata.end() ? "an optimizer without a name" : saved->second, name);
  std::vector<StateEntry> state;
  for (const StoredTensor& stored : state_file.contents().tensors) state.push_back({stored.name, read_tensor(stored)});
  try {
    set_state(optimizer, model, state, checkpoint.step);
  } catch (const Error& error) {
    fail("{}: {}; take another checkpoint", path.string(), error.what());
  }
  read_parameters(checkpoint.file(kWeightsFile), model);
  const SafetensorsFile random(checkpoint.file(kRandomFile));
  for (const StoredTensor& stored : random.contents().tensors) {
    if (stored.name == "cpu") set_random_state(c10::kCPU, read_tensor(stored));
    if (stored.name == "cuda" && device.is_cuda()) set_random_state(device, read_tensor(stored));
  }
}

Checkpoint find_checkpoint(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) fail("{}: no such run or checkpoint", path.string());
  return std::filesystem::exists(path / "manifest.json") ? open_checkpoint(path) : open_latest_checkpoint(path);
}

std::shared_ptr<Model> load_model(const Checkpoint& checkpoint, c10::Device device) {
  const auto path = checkpoint.file(kModelFile);
  const auto description = nlohmann::json::parse(read_file(path), nullptr, false);
  if (description.is_discarded()) fail("{}: not JSON", path.string());
  auto model = make_model(model_config_of(description));
  read_parameters(checkpoint.file(kWeightsFile), *model);
  model->to(device);
  return model;
}

TrainConfig load_config(const Checkpoint& checkpoint) {
  TrainConfig config;
  read_config(config, checkpoint.file(kConfigFile));
  return config;
}

}  // namespace lab
