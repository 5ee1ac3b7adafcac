// Names, sizes and configs of models.
#include "models/support.hpp"

namespace lab_test {
namespace {

using nlohmann::json;

int64_t parameters_of(const ModelConfig& config) {
  int64_t count = 0;
  for (const at::Tensor& p : lab::make_model(config, at::kMeta)->parameters()) count += p.numel();
  return count;
}

// As transformers counts them for the same config; the perceptron by hand.
TEST(LabCatalogue, HasTheSizesOfTheOriginals) {
  const std::map<std::string, int64_t> expected{
      {"bert-tiny", 4416698},  {"bert-mini", 11201594}, {"bert-base", 109514298},  {"bert-large", 335174458},
      {"bert-4b", 4043092922}, {"gpt2-tiny", 7259008},  {"gpt2-small", 124439808}, {"gpt2-medium", 354823168},
      {"t5-tiny", 5031680},    {"t5-small", 60506624},  {"t5-base", 222903552},    {"mlp", 29260945}};
  const auto names = lab::model_names();
  ASSERT_EQ(names.size(), expected.size());
  for (const std::string& name : names) EXPECT_EQ(parameters_of(lab::model_config(name)), expected.at(name)) << name;
}

TEST(LabCatalogue, GoesFromSmallToLargeWithinAFamily) {
  std::map<std::string, int64_t> last;
  for (const std::string& name : lab::model_names()) {
    const ModelConfig config = lab::model_config(name);
    EXPECT_EQ(config.name, name);
    const int64_t count = parameters_of(config);
    EXPECT_GT(count, last[config.family]) << name;
    last[config.family] = count;
  }
}

TEST(LabCatalogue, HasTinyModelsForACpu) {
  for (const char* name : {"bert-tiny", "gpt2-tiny", "t5-tiny", "mlp"}) {
    ModelConfig config = lab::model_config(name);
    config.vocabulary = 8192;
    EXPECT_LT(parameters_of(config), 6'000'000) << name;
  }
}

TEST(LabCatalogue, AnswersAnUnknownNameWithThoseThereAre) {
  const std::string message = error_of([] { (void)lab::model_config("bert-huge"); });
  EXPECT_NE(message.find("'bert-huge'"), std::string::npos) << message;
  for (const std::string& name : lab::model_names()) EXPECT_NE(message.find(name), std::string::npos) << message;
}

TEST(LabConfig, SurvivesTheWayThroughHuggingFace) {
  for (const std::string& name : lab::model_names()) {
    ModelConfig config = lab::model_config(name);
    config.vocabulary = 4321;
    config.dropout = config.family == "mlp" ? 0 : 0.25;
    for (const bool next_sentence : {false, true}) {
      config.next_sentence = next_sentence && config.family == "bert";
      const json written = json::parse(lab::make_model(config, at::kMeta)->huggingface_config().dump());
      const ModelConfig read = lab::model_config_of(written);
      EXPECT_EQ(read.name, config.name);
      EXPECT_EQ(read.family, config.family);
      EXPECT_EQ(read.objective, config.objective);
      EXPECT_EQ(read.vocabulary, config.vocabulary);
      EXPECT_EQ(read.positions, config.positions);
      EXPECT_EQ(read.layers, config.layers);
      EXPECT_EQ(read.width, config.width);
      EXPECT_EQ(read.heads, config.heads);
      EXPECT_EQ(read.head_width, config.head_width);
      EXPECT_EQ(read.inner, config.inner);
      EXPECT_EQ(read.dropout, config.dropout);
      EXPECT_EQ(read.next_sentence, config.next_sentence);
    }
  }
}

TEST(LabConfig, OfHuggingFaceIsRefusedWithTheFieldThatDoesNotFit) {
  const auto refusal = [](const char* name, const char* field, const json& value) {
    json config = lab::make_model(lab::model_config(name), at::kMeta)->huggingface_config();
    if (value.is_discarded()) {
      config.erase(field);
    } else {
      config[field] = value;
    }
    return error_of([&] { (void)lab::model_config_of(config); });
  };
  const json absent(json::value_t::discarded);
  const std::vector<std::tuple<const char*, const char*, json>> cases{{"bert-tiny", "hidden_size", absent},
                                                                      {"bert-tiny", "hidden_act", "relu"},
                                                                      {"bert-tiny", "vocab_size", "many"},
                                                                      {"gpt2-tiny", "n_layer", -1},
                                                                      {"gpt2-tiny", "activation_function", "relu"},
                                                                      {"gpt2-tiny", "attn_pdrop", 0.5},
                                                                      {"t5-tiny", "feed_forward_proj", "gated-gelu"},
                                                                      {"t5-tiny", "num_decoder_layers", 7},
                                                                      {"t5-tiny", "d_kv", absent},
                                                                      {"mlp", "context", absent},
                                                                      {"mlp", "model_type", "llama"},
                                                                      {"bert-tiny", "model_type", absent}};
  for (const auto& [name, field, value] : cases) {
    const std::string message = refusal(name, field, value);
    EXPECT_NE(message.find(field), std::string::npos) << name << ": " << message;
  }
  EXPECT_NE(error_of([] { (void)lab::model_config_of(json::array()); }).find("model_type"), std::string::npos);
}

TEST(LabConfig, ThatMakesNoModelIsRefusedWithTheField) {
  const auto refusal = [](const char* name, auto change) {
    ModelConfig config = lab::model_config(name);
    change(config);
    return error_of([&] { (void)lab::make_model(config, at::kMeta); });
  };
  const std::vector<std::pair<std::string, std::string>> cases{
      {"family", refusal("mlp", [](ModelConfig& c) { c.family = "rnn"; })},
      {"objective", refusal("gpt2-tiny", [](ModelConfig& c) { c.objective = lab::Objective::masked; })},
      {"vocabulary", refusal("gpt2-tiny", [](ModelConfig& c) { c.vocabulary = 0; })},
      {"positions", refusal("t5-tiny", [](ModelConfig& c) { c.positions = -1; })},
      {"layers", refusal("bert-tiny", [](ModelConfig& c) { c.layers = 0; })},
      {"heads", refusal("bert-tiny", [](ModelConfig& c) { c.heads = 3; })},
      {"head_width", refusal("t5-tiny", [](ModelConfig& c) { c.head_width = 0; })},
      {"dropout", refusal("t5-tiny", [](ModelConfig& c) { c.dropout = 1; })},
      {"dropout", refusal("mlp", [](ModelConfig& c) { c.dropout = 0.1; })},
      {"layers", refusal("mlp", [](ModelConfig& c) { c.layers = 2; })},
      {"next_sentence", refusal("gpt2-tiny", [](ModelConfig& c) { c.next_sentence = true; })}};
  for (const auto& [field, message] : cases) EXPECT_NE(message.find(field), std::string::npos) << message;
}

TEST(LabConfig, OfAPerceptronSaysThatTransformersHasNone) {
  const json written = lab::make_model(lab::model_config("mlp"), at::kMeta)->huggingface_config();
  EXPECT_EQ(written.at("architectures"), json::array());
  EXPECT_EQ(written.at("model_type"), "came-mlp");
}

}  // namespace
}  // namespace lab_test
