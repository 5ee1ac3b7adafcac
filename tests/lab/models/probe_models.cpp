// For tests/python/test_lab_models.py: builds a model and computes logits, loss and gradients.
//   came_lab_probe_models FOLDER
// reads FOLDER/request.json (a name, a seed, fields of ModelConfig to change) and FOLDER/batch.pt (a dict of tensors);
// writes FOLDER/config.json for transformers and FOLDER/result.pt: initial.*, parameter.*, gradient.* by names, logits,
// loss, next.
#include <ATen/ATen.h>
#include <torch/csrc/api/include/torch/serialize.h>

#include <fstream>
#include <iostream>
#include <iterator>

#include "models/model.hpp"

namespace {

using Tensors = c10::Dict<std::string, at::Tensor>;

std::vector<char> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

lab::ModelConfig config_of(const nlohmann::json& request) {
  lab::ModelConfig config = lab::model_config(request.at("name"));
  config.vocabulary = request.value("vocabulary", config.vocabulary);
  config.layers = request.value("layers", config.layers);
  config.next_sentence = request.value("next_sentence", false);
  return config;
}

lab::Batch batch_of(const std::string& path) {
  lab::Batch batch;
  const auto tensors = torch::pickle_load(bytes_of(path)).toGenericDict();
  for (const auto& [name, place] : {std::pair{"input", &batch.input},
                                    {"segments", &batch.segments},
                                    {"decoder_input", &batch.decoder_input},
                                    {"positions", &batch.positions},
                                    {"targets", &batch.targets},
                                    {"next", &batch.next}}) {
    if (tensors.contains(name)) *place = tensors.at(name).toTensor();
  }
  return batch;
}

void run(const std::string& folder) {
  const auto request = nlohmann::json::parse(std::ifstream(folder + "/request.json"));
  const lab::Batch batch = batch_of(folder + "/batch.pt");
  const auto model = lab::make_model(config_of(request));
  at::manual_seed(request.at("seed").get<uint64_t>());
  model->initialize();
  model->eval();
  Tensors result;
  for (const auto& item : model->named_parameters()) {
    result.insert("initial." + item.key(), item.value().detach().clone());
    // So that no bias is 0 and no norm 1.
    item.value().detach().add_(at::randn_like(item.value()), 0.1);
    result.insert("parameter." + item.key(), item.value().detach());
  }
  result.insert("logits", model->logits(batch).detach());
  const lab::Loss loss = model->loss(batch);
  (loss.next.defined() ? loss.tokens + loss.next : loss.tokens).backward();
  for (const auto& item : model->named_parameters()) result.insert("gradient." + item.key(), item.value().grad());
  result.insert("loss", loss.tokens.detach());
  if (loss.next.defined()) result.insert("next", loss.next.detach());
  std::ofstream(folder + "/config.json") << model->huggingface_config().dump(2);
  const std::vector<char> bytes = torch::pickle_save(result);
  std::ofstream(folder + "/result.pt", std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: came_lab_probe_models FOLDER\n";
    return 2;
  }
  try {
    run(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "came_lab_probe_models: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
