// TOML with fields looked up in for_each_field; what a file says beyond them is an error.
#include "train/config.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ostream.h>

#include <toml++/toml.h>
#include <cmath>
#include <set>
#include <type_traits>

#include "error.hpp"
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
  expect(c.length > 0, "length", number(c.length), "positive");
  expect(c.steps > 0, "steps", number(c.steps), "positive");
  expect(c.batch > 0 && c.batch <= 32768, "batch", number(c.batch), "from 1 to 32768");
  expect(c.micro_batch >= 0, "micro_batch", number(c.micro_batch), "0 or positive");
  if (c.batch % c.piece() != 0)
    fail("batch is {}, which micro_batch {} does not divide; take a micro_batch that does", c.batch, c.micro_batch);
  expect(c.precision == "f32" || c.precision == "bf16", "precision", c.precision, "f32 or bf16");
  expect(c.seed <= INT64_MAX, "seed", number(c.seed), "less than 2^63");
  expect(c.threads >= 0, "threads", number(c.threads), "0 or positive");
  expect(c.clip >= 0 && std::isfinite(c.clip), "clip", number(c.clip), "0 or positive");
  expect(c.mixup >= 0 && std::isfinite(c.mixup), "mixup", number(c.mixup), "0 or positive");
  expect(c.dropout >= 0 && c.dropout < 1, "dropout", number(c.dropout), "at least 0 and less than 1");
  expect(c.mask_rate > 0 && c.mask_rate <= 0.9, "mask_rate", number(c.mask_rate), "above 0 and at most 0.9");
  expect(c.span_length >= 1, "span_length", number(c.span_length), "at least 1");
  expect(c.schedule == "constant" || c.schedule == "linear" || c.schedule == "cosine", "schedule", c.schedule,
         "constant, linear or cosine");
  expect(c.warmup >= 0 && c.warmup <= c.steps, "warmup", number(c.warmup), "from 0 to steps");
  expect(c.final_rate >= 0 && c.final_rate <= 1, "final_rate", number(c.final_rate), "from 0 to 1");
  expect(c.eval_every >= 0, "eval_every", number(c.eval_every), "0 or positive");
  expect(c.eval_sequences >= 0, "eval_sequences", number(c.eval_sequences), "0 or positive");
  expect(c.log_every > 0, "log_every", number(c.log_every), "positive");
  expect(c.checkpoint_every >= 0, "checkpoint_every", number(c.checkpoint_every), "0 or positive");
  expect(c.keep >= 1, "keep", number(c.keep), "at least 1");
  expect(c.lr >= 0 && std::isfinite(c.lr), "lr", number(c.lr), "0 or positive");
  if (c.mixup > 0 && c.piece() == 1)
    fail("mixup is {}, but with micro_batch 1 there is nothing to mix; take at least 2", c.mixup);
  if (c.threads == 0) c.threads = at::get_num_threads();
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
