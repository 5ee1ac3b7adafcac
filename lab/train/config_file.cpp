// The TOML side of a configuration: fields looked up in for_each_field; what a file says beyond them is an error. Knows
// nothing of torch.
#include <fmt/format.h>

#include "error.hpp"

// toml++ 3.3 asserts of some bad files, such as one that begins with "[|", that they are good, and lets a release build
// assume so.  Here that is an error.
namespace lab {
[[noreturn]] inline void refuse_toml() { fail("not valid TOML"); }
}  // namespace lab
#undef NDEBUG
#define TOML_ASSERT(expr) ((expr) ? static_cast<void>(0) : lab::refuse_toml())
#include <toml++/impl/forward_declarations.h>
// When it looks for white space outside of texts, it takes letters from U+00A1 to U+0499 to be impossible.
// They are not white space.
#pragma push_macro("TOML_UNREACHABLE")
#undef TOML_UNREACHABLE
#define TOML_UNREACHABLE return false
#include <toml++/impl/unicode.h>
#pragma pop_macro("TOML_UNREACHABLE")
#include <toml++/toml.h>
#include <algorithm>
#include <cctype>
#include <set>
#include <type_traits>

#include "storage/json.hpp"
#include "train/config.hpp"

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

// Whether TOML takes a key without quotes.  Every name of a field or an option is such a key.
bool bare(std::string_view key) {
  const auto plain = [](unsigned char c) { return (c < 0x80 && std::isalnum(c) != 0) || c == '_' || c == '-'; };
  return !key.empty() && key.size() <= 80 && std::all_of(key.begin(), key.end(), plain);
}

// A key as an error message can show it: on one line.
std::string shown(std::string_view key) { return bare(key) ? std::string(key) : quote_name(key); }

// What the parser says of a bad file, which may quote any part of it: on one line, not too long.
std::string one_line(std::string_view text) {
  std::string line(text.substr(0, 300));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  return line;
}

// An option of the optimizer as the text that came_options_set reads.
std::string option_text(const std::filesystem::path& file, const std::string& key, const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
  if (const auto whole = node.value_exact<int64_t>()) return std::to_string(*whole);
  if (const auto real = node.value_exact<double>()) return fmt::format("{}", *real);
  fail("{}: {} must be a text, a number, true or false", place(file, node), key);
}

// A basic text.  What toml++ writes for a text with a line break and ''' it cannot read.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

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

}  // namespace

void read_config(TrainConfig& config, const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file)) fail("{}: no such file", file.string());
  toml::table root;
  try {
    root = toml::parse_file(file.string());
  } catch (const toml::parse_error& error) {
    fail("{}:{}: {}", file.string(), error.source().begin.line, one_line(error.description()));
  } catch (const Error& error) {
    fail("{}: {}", file.string(), error.what());
  }
  std::set<std::string> sections;
  for_each_field(config, [&](const char* section, const char*, auto&, const char*) { sections.insert(section); });
  for (const auto& [name, node] : root) {
    if (!sections.contains(std::string(name.str())) || !node.is_table())
      fail("{}: no section [{}]; there are [{}]", place(file, node), shown(name.str()), fmt::join(sections, "], ["));
  }
  for (const auto& [section_name, section_node] : root) {
    const std::string in_section(section_name.str());
    for (const auto& [name, value] : *section_node.as_table()) {
      const std::string wanted(name.str());
      const toml::node& node = value;
      bool known = false;
      std::vector<std::string> keys;
      for_each_field(config, [&](const char* section, const char* key, auto& field, const char*) {
        if (in_section != section) return;
        keys.emplace_back(key);
        if (wanted != key) return;
        known = true;
        read_field(file, key, node, field);
      });
      if (known) continue;
      if (in_section != "optimizer" || !bare(wanted)) {
        fail("{}: [{}] has no key {}; it has {}", place(file, node), in_section, shown(wanted), fmt::join(keys, ", "));
      }
      config.options[wanted] = option_text(file, wanted, node);
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

}  // namespace lab
