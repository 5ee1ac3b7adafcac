// TOML with fields looked up in for_each_field; what a file says beyond them is an error.
#include "train/config.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ostream.h>

#include <toml++/toml.h>
#include <algorithm>
#include <set>
#include <type_traits>

#include "error.hpp"
#include "range.hpp"
#include "train/optimizers.hpp"

namespace lab {
namespace {

std::string place(const std::filesystem::path& file, const toml::node& node) {
  return fmt::format("{}:{}", file.string(), node.source().begin.line);
}

template <class T>
constexpr const char* type_word() {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, std::string>) return "a text in quotes";
  if constexpr (std::is_integral_v<T>) return "a whole number";
  return "a number";
}

template <class T>
void read_field(const std::filesystem::path& file, const char* key, const toml::node& node, T& field) {
  if constexpr (std::is_same_v<T, uint64_t>) {
    const auto value = node.value_exact<int64_t>();
    if (!value || *value < 0) fail("{}: {} must be a whole number, not negative", place(file, node), key);
    field = static_cast<uint64_t>(*value);
  } else if constexpr (std::is_same_v<T, double>) {
    if (!node.is_number()) fail("{}: {} must be {}", place(file, node), key, type_word<T>());
    field = *node.value<double>();
  } else {
    const auto value = node.value_exact<T>();
    if (!value) fail("{}: {} must be {}", place(file, node), key, type_word<T>());
    field = *value;
  }
}

// An option of the optimizer as the text that came_options_set reads.
std::string option_text(const std::filesystem::path& file, const std::string& key, const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
  if (const auto whole = node.value_exact<int64_t>()) return std::to_string(*whole);
  if (const auto real = node.value_exact<double>()) return fmt::format("{}", *real);
  fail("{}: {} must be a text, a number, true or false", place(file, node), key);
}

std::string quoted(const std::string& text) { return fmt::format("{}", fmt::streamed(toml::value<std::string>(text))); }

template <class T>
std::string toml_value(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return quoted(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, double>) {
    const auto text = fmt::format("{}", value);
    return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
  } else {
    return fmt::format("{}", value);
  }
}

void expect(bool fine, const char* key, const std::string& given, const char* wanted) {
  if (!fine) fail("{} is {}, but must be {}", key, given, wanted);
}

}  // namespace

void read_config(TrainConfig& config, const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file)) fail("{}: no such file", file.string());
  toml::table root;
  try {
    root = toml::parse_file(file.string());
  } catch (const toml::parse_error& error) {
    fail("{}:{}: {}", file.string(), error.source().begin.line, error.description());
  }
  std::set<std::string> sections;
  for_each_field(config, [&](const char* section, const char*, auto&, const char*) { sections.insert(section); });
  for (const auto& [name, node] : root) {
    if (!sections.contains(std::string(name.str())) || !node.is_table())
      fail("{}: no section [{}]; there are [{}]", place(file, node), name.str(), fmt::join(sections, "], ["));
  }
  for (const auto& [section_name, section_node] : root) {
    for (const auto& [name, node] : *section_node.as_table()) {
      bool known = false;
      std::vector<std::string> keys;
      for_each_field(config, [&](const char* section, const char* key, auto& field, const char*) {
        if (section_name.str() != section) return;
        keys.emplace_back(key);
        if (name.str() != key) return;
        known = true;
        read_field(file, key, node, field);
      });
      if (known) continue;
      if (section_name.str() != "optimizer")
        fail("{}: [{}] has no key {}; it has {}", place(file, node), section_name.str(), name.str(),
             fmt::join(keys, ", "));
      const std::string key(name.str());
      config.options[key] = option_text(file, key, node);
    }
  }
}

std::string config_text(const TrainConfig& config) {
  std::string text, open;
  for_each_field(config, [&](const char* section, const char* key, const auto& field, const char* explanation) {
    if (open != section) text += fmt::format("{}[{}]\n", open.empty() ? "" : "\n", section);
    open = section;
    text += fmt::format("{:<40} # {}\n", fmt::format("{} = {}", key, toml_value(field)), explanation);
  });
  for (const auto& [name, value] : config.options) text += fmt::format("{} = {}\n", name, quoted(value));
  return text;
}

void resolve_config(TrainConfig& c) {
  for_each_field(c, [&](const char* section, const char* key, auto&, const char*) {
    if (std::string_view(section) == "optimizer" && c.options.contains(key)) fail("-o {0}=...: say --{0} instead", key);
  });
  const auto number = [](auto value) { return fmt::format("{}", value); };
  expect(c.dropout >= 0 && c.dropout < 1, "dropout", number(c.dropout), "at least 0 and less than 1");
  expect_range<int64_t>("vocabulary", c.vocabulary, 0, kLargestVocabulary);
  expect_range<int64_t>("length", c.length, 1, kLongestSequence);
  expect(c.mask_rate > 0 && c.mask_rate <= 0.9, "mask_rate", number(c.mask_rate), "above 0 and at most 0.9");
  expect_range("span_length", c.span_length, 1.0, 1e6);
  expect_range<int64_t>("steps", c.steps, 1, kMostSteps);
  expect_range<int64_t>("batch", c.batch, 1, 32768);
  expect_range<int64_t>("micro_batch", c.micro_batch, 0, 32768);
  if (c.batch % c.piece() != 0)
    fail("batch is {}, which micro_batch {} does not divide; take a micro_batch that does", c.batch, c.micro_batch);
  expect(c.seed <= INT64_MAX, "seed", number(c.seed), "less than 2^63");
  expect(c.precision == "f32" || c.precision == "bf16", "precision", c.precision, "f32 or bf16");
  expect_range<int64_t>("threads", c.threads, 0, kMostThreads);
  expect_range("clip", c.clip, 0.0, 1e30);
  // The weight is made of two draws from a gamma distribution; below 0.01 both underflow too often.
  expect(c.mixup == 0 || (c.mixup >= 0.01 && c.mixup <= 1000), "mixup", number(c.mixup), "0, or from 0.01 to 1000");
  expect(c.schedule == "constant" || c.schedule == "linear" || c.schedule == "cosine", "schedule", c.schedule,
         "constant, linear or cosine");
  expect_range<int64_t>("warmup", c.warmup, 0, c.steps);
  expect_range("final_rate", c.final_rate, 0.0, 1.0);
  expect_range<int64_t>("eval_every", c.eval_every, 0, kMostSteps);
  expect_range<int64_t>("eval_sequences", c.eval_sequences, 0, kMostSteps);
  expect_range<int64_t>("log_every", c.log_every, 1, kMostSteps);
  expect_range<int64_t>("checkpoint_every", c.checkpoint_every, 0, kMostSteps);
  expect_range<int64_t>("keep", c.keep, 1, kMostSteps);
  expect_range("lr", c.lr, 0.0, 1e30);
  if (c.mixup > 0 && c.piece() == 1)
    fail("mixup is {}, but with micro_batch 1 there is nothing to mix; take at least 2", c.mixup);
  if (c.threads == 0) c.threads = std::min<int64_t>(at::get_num_threads(), kMostThreads);
  if (c.lr == 0) c.lr = default_rate(c.optimizer);
  c.micro_batch = c.piece();
}

ModelConfig TrainConfig::model_config(int64_t pieces) const {
  ModelConfig sizes = lab::model_config(model);
  if (vocabulary != 0 && vocabulary < pieces)
    fail("vocabulary is {}, but the tokenizer in {} has {} pieces; take 0 or at least that", vocabulary, data, pieces);
  sizes.vocabulary = vocabulary != 0 ? vocabulary : pieces;
  sizes.dropout = dropout;
  sizes.next_sentence = next_sentence;
  sizes.activation_checkpoints = activation_checkpoints;
  if (next_sentence && sizes.family != "bert") fail("next_sentence is set, but {} is no BERT", model);
  if (sizes.family != "mlp" && length > sizes.positions)
    fail("length is {}, but {} takes sequences of {} tokens at most; take a smaller length", length, model,
         sizes.positions);
  return sizes;
}

BatchOptions TrainConfig::validation_options() const {
  BatchOptions made = batch_options();
  made.seed = 0;
  return made;
}

BatchOptions TrainConfig::batch_options() const {
  BatchOptions made;
  made.objective = lab::model_config(model).objective;
  made.length = length;
  made.seed = seed;
  made.mask_rate = mask_rate;
  made.span_length = span_length;
  made.next_sentence = next_sentence;
  return made;
}

}  // namespace lab
