// The table of options: names, ranges, and which optimizers have them.  Defaults: src/core/optimizers/.
#include "core/options.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>

#include "core/dtype.hpp"
#include "core/message.hpp"
#include "core/optimizers/descriptor.hpp"

namespace came::core {
namespace {

constexpr unsigned bit(Algorithm a) { return 1U << static_cast<unsigned>(a); }
constexpr unsigned kCame = bit(Algorithm::came);
constexpr unsigned kAdafactor = bit(Algorithm::adafactor);
constexpr unsigned kAdam = bit(Algorithm::adam) | bit(Algorithm::adamw);
constexpr unsigned kLamb = bit(Algorithm::lamb);
constexpr unsigned kSm3 = bit(Algorithm::sm3);
constexpr unsigned kAll = kCame | kAdafactor | kAdam | kLamb | kSm3;

/// What values a real option takes.
enum class Rule { beta, positive, threshold, non_negative, non_positive };

struct Real {
  const char* name;
  double came_options::*field;
  Rule rule;
  unsigned users;
  unsigned may_be_zero = 0;  ///< Users for which `positive` includes 0.
};

struct Flag {
  const char* name;
  int32_t came_options::*field;
  unsigned users;
};

constexpr Real kReals[] = {
    {"lr", &came_options::lr, Rule::non_negative, kAll},
    {"beta1", &came_options::beta1, Rule::beta, kAll},
    {"beta2", &came_options::beta2, Rule::beta, kAll & ~kSm3},
    {"beta3", &came_options::beta3, Rule::beta, kCame},
    {"eps", &came_options::eps, Rule::positive, kAdam | kLamb | kSm3, kAdam},
    {"eps1", &came_options::eps1, Rule::positive, kCame | kAdafactor},
    {"eps2", &came_options::eps2, Rule::positive, kCame | kAdafactor, kAdafactor},
    {"clip_threshold", &came_options::clip_threshold, Rule::threshold, kCame | kAdafactor},
    {"weight_decay", &came_options::weight_decay, Rule::non_negative, kAll},
    {"max_grad_norm", &came_options::max_grad_norm, Rule::non_negative, kAll},
    {"beta2_decay", &came_options::beta2_decay, Rule::non_positive, kAdafactor},
};

constexpr Flag kFlags[] = {
    {"bias_correction", &came_options::bias_correction, kCame | kLamb},
    {"confidence_1d", &came_options::confidence_1d, kCame},
    {"cautious", &came_options::cautious, kAll},
    {"stochastic_rounding", &came_options::stochastic_rounding, kAll},
    {"maximize", &came_options::maximize, kAll},
    {"relative_step", &came_options::relative_step, kAdafactor},
    {"warmup_init", &came_options::warmup_init, kAdafactor},
    {"scale_parameter", &came_options::scale_parameter, kAdafactor},
    {"lr_in_momentum", &came_options::lr_in_momentum, kAdafactor},
};

struct Word {
  const char* name;
  int32_t value;
};

/// An option whose values have names.
struct Choice {
  const char* name;
  int32_t came_options::*field;
  std::span<const Word> words;
  bool is_dtype;
  unsigned users;
};

constexpr Word kViews[] = {{"auto", CAME_VIEW_AUTO}, {"fold", CAME_VIEW_FOLD}, {"last_two", CAME_VIEW_LAST_TWO}};
constexpr Word kMomentumTypes[] = {{"default", CAME_DTYPE_DEFAULT}, {"f64", CAME_DTYPE_F64}, {"f32", CAME_DTYPE_F32},
                                   {"bf16", CAME_DTYPE_BF16},       {"int8", CAME_DTYPE_I8}, {"int4", CAME_DTYPE_I4}};
constexpr Word kSecondMomentTypes[] = {{"default", CAME_DTYPE_DEFAULT}, {"int8", CAME_DTYPE_I8}};
constexpr Word kBooleans[] = {{"true", 1}, {"false", 0}, {"1", 1}, {"0", 0}};

constexpr Choice kChoices[] = {
    {"view", &came_options::view, kViews, false, kCame | kAdafactor | kSm3},
    {"momentum_dtype", &came_options::momentum_dtype, kMomentumTypes, true, kAll},
    {"second_moment_dtype", &came_options::second_moment_dtype, kSecondMomentTypes, true, kAdam | kLamb},
};

const char* expectation(Rule rule) {
  switch (rule) {
    case Rule::beta:
      return "a number in [0, 1)";
    case Rule::positive:
      return "a finite number > 0";
    case Rule::threshold:
      return "a number > 0 (infinity: never clip)";
    case Rule::non_negative:
      return "a finite number >= 0";
    case Rule::non_positive:
      return "a finite number <= 0";
  }
  return "";
}

bool obeys(double value, Rule rule) {
  switch (rule) {
    case Rule::beta:
      return value >= 0 && value < 1;
    case Rule::positive:
      return std::isfinite(value) && value > 0;
    case Rule::threshold:
      return value > 0;
    case Rule::non_negative:
      return std::isfinite(value) && value >= 0;
    case Rule::non_positive:
      return std::isfinite(value) && value <= 0;
  }
  return false;
}

template <class Table>
std::string names_of(const Table& table) {
  std::string names;
  for (const auto& entry : table) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

bool is_value_of(std::span<const Word> table, int32_t value) {
  return std::any_of(table.begin(), table.end(), [&](const Word& w) { return w.value == value; });
}

int32_t parse_word(std::span<const Word> table, const std::string& name, const std::string& text) {
  for (const Word& word : table) {
    if (text == word.name) return word.value;
  }
  invalid("option ", name, ": '", text, "' given, expected one of ", names_of(table));
}

template <class Number>
Number parse_number(const std::string& name, const std::string& text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) {
    invalid("option ", name, ": '", text, "' given, expected a ",
            std::is_unsigned_v<Number> ? "whole number >= 0" : "number");
  }
  return value;
}

[[noreturn]] void not_an_option(const std::string& what, const char* name, const char* word) {
  invalid(what, ": ", name, " is set, but ", word, " has no such option");
}

}  // namespace

Algorithm checked_algorithm(came_algorithm algorithm) {
  if (algorithm < 0 || algorithm >= kAlgorithms) {
    const came_algorithm last = kAlgorithms - 1;
    invalid("algorithm: ", algorithm, " given, expected 0 (came) to ", last, " (",
            descriptor(static_cast<Algorithm>(last)).word, ")");
  }
  return static_cast<Algorithm>(algorithm);
}

came_options default_options(Algorithm algorithm) {
  came_options options{};
  options.struct_size = sizeof(came_options);
  options.algorithm = static_cast<came_algorithm>(algorithm);
  descriptor(algorithm).set_defaults(options);
  return options;
}

void validate_options(const came_options& options, const std::string& what) {
  const Algorithm algorithm = checked_algorithm(options.algorithm);
  const char* word = descriptor(algorithm).word;
  const unsigned user = bit(algorithm);
  for (const Real& real : kReals) {
    const double value = options.*real.field;
    if ((real.users & user) == 0) {
      if (value != 0) not_an_option(what, real.name, word);
      continue;
    }
    const Rule rule = (real.may_be_zero & user) != 0 ? Rule::non_negative : real.rule;
    if (!obeys(value, rule)) invalid(what, ": ", real.name, " is ", value, ", expected ", expectation(rule));
  }
  for (const Flag& flag : kFlags) {
    const int32_t value = options.*flag.field;
    if ((flag.users & user) == 0 && value != 0) not_an_option(what, flag.name, word);
    if (value != 0 && value != 1) invalid(what, ": ", flag.name, " is ", value, ", expected 0 or 1");
  }
  for (const Choice& choice : kChoices) {
    const int32_t value = options.*choice.field;
    if ((choice.users & user) == 0 && value != 0) not_an_option(what, choice.name, word);
    if (is_value_of(choice.words, value)) continue;
    const std::string number = std::to_string(value);
    invalid(what, ": ", choice.name, " is ",
            choice.is_dtype ? dtype_name(static_cast<DType>(value)) + (" (" + number + ")") : number,
            ", expected one of ", names_of(choice.words));
  }
  if (options.warmup_init != 0 && options.relative_step == 0) {
    invalid(what, ": warmup_init is set, expected relative_step with it");
  }
  if (algorithm == Algorithm::came && options.beta1 == 0) {
    invalid(what, ": beta1 is 0, expected > 0: confidence is measured by how far updates are from the momentum");
  }
  if (options.cautious != 0 && options.beta1 == 0) {
    invalid(what, ": cautious is set with beta1 0, expected beta1 > 0: it compares momentum with gradient");
  }
}

void set_option(came_options& options, const std::string& name, const std::string& value) {
  for (const Real& real : kReals) {
    if (name == real.name) {
      options.*real.field = parse_number<double>(name, value);
      return;
    }
  }
  for (const Flag& flag : kFlags) {
    if (name == flag.name) {
      options.*flag.field = parse_word(kBooleans, name, value);
      return;
    }
  }
  for (const Choice& choice : kChoices) {
    if (name == choice.name) {
      options.*choice.field = parse_word(choice.words, name, value);
      return;
    }
  }
  if (name != "seed") {
    invalid("option '", name, "' is unknown, expected one of ", names_of(kReals), ", ", names_of(kFlags), ", ",
            names_of(kChoices), ", seed");
  }
  options.seed = parse_number<uint64_t>(name, value);
}

}  // namespace came::core
