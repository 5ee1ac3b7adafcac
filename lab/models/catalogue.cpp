// The sizes that have names: the originals', and small ones for a CPU.  Vocabularies are the originals' too; a trainer
// puts its tokenizer's in their place.
#include <fmt/ranges.h>

#include "error.hpp"
#include "models/model.hpp"

namespace lab {
namespace {

struct Size {
  const char* name;
  int64_t positions, layers, width, heads, head_width, inner;
};

// Tiny and mini are Google's small BERTs.  bert-4b continues the table of GPT-3 (Brown et al. 2020), whose rows 2.7B
// and 6.7B both have 32 layers, of widths 2560 and 4096: 32 layers of width 3200 have 12 * 32 * 3200^2 = 3.93e9
// parameters, and 4.03e9 with the embeddings.  Heads have the 80 columns of row 2.7B: 32 heads, as in both rows, would
// have 100, which is no multiple of 8 and keeps fused attention away.
constexpr Size kBert[] = {{"bert-tiny", 512, 2, 128, 2, 64, 512},
                          {"bert-mini", 512, 4, 256, 4, 64, 1024},
                          {"bert-base", 512, 12, 768, 12, 64, 3072},
                          {"bert-large", 512, 24, 1024, 16, 64, 4096},
                          {"bert-4b", 512, 32, 3200, 40, 80, 12800}};
constexpr Size kGpt2[] = {{"gpt2-tiny", 256, 4, 128, 4, 32, 512},
                          {"gpt2-small", 1024, 12, 768, 12, 64, 3072},
                          {"gpt2-medium", 1024, 24, 1024, 16, 64, 4096}};
constexpr Size kT5[] = {{"t5-tiny", 256, 2, 128, 4, 32, 512},
                        {"t5-small", 512, 6, 512, 8, 64, 2048},
                        {"t5-base", 512, 12, 768, 12, 64, 3072}};
constexpr Size kMlp[] = {{"mlp", 8, 0, 64, 0, 0, 512}};

ModelConfig config_of(const Size& size, const char* family, Objective objective, int64_t vocabulary, double dropout) {
  ModelConfig config;
  config.name = size.name;
  config.family = family;
  config.objective = objective;
  config.vocabulary = vocabulary;
  config.positions = size.positions;
  config.layers = size.layers;
  config.width = size.width;
  config.heads = size.heads;
  config.head_width = size.head_width;
  config.inner = size.inner;
  config.dropout = dropout;
  return config;
}

std::vector<ModelConfig> catalogue() {
  std::vector<ModelConfig> all;
  for (const Size& size : kBert) all.push_back(config_of(size, "bert", Objective::masked, 30522, 0.1));
  for (const Size& size : kGpt2) all.push_back(config_of(size, "gpt2", Objective::causal, 50257, 0.1));
  for (const Size& size : kT5) all.push_back(config_of(size, "t5", Objective::spans, 32128, 0.1));
  for (const Size& size : kMlp) all.push_back(config_of(size, "mlp", Objective::causal, 50257, 0));
  return all;
}

}  // namespace

ModelConfig model_config(const std::string& name) {
  for (const ModelConfig& config : catalogue()) {
    if (config.name == name) return config;
  }
  fail("model '{}' is unknown, expected one of {}", name, fmt::join(model_names(), ", "));
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelConfig& config : catalogue()) names.push_back(config.name);
  return names;
}

}  // namespace lab
