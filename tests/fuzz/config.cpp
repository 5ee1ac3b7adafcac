// What must hold of any run configuration: it is refused with an Error, or writing what was read gives a file that
// reads the same.
#include "train/config.hpp"

#include <cmath>
#include <type_traits>

#include "check.hpp"
#include "error.hpp"

namespace came_fuzz {
namespace {

bool same(const lab::TrainConfig& a, const lab::TrainConfig& b) {
  bool equal = a.options == b.options;
  lab::for_each_field(a, [&](const char*, const char* key, const auto& field, const char*) {
    lab::for_each_field(b, [&](const char*, const char* other, const auto& its, const char*) {
      if constexpr (std::is_same_v<decltype(field), decltype(its)>) {
        if (std::string_view(key) != other || field == its) return;
        if constexpr (std::is_same_v<std::decay_t<decltype(field)>, double>) {
          if (std::isnan(field) && std::isnan(its)) return;
        }
        equal = false;
      }
    });
  });
  return equal;
}

}  // namespace

bool check_config(Input input) {
  static const InputFile file("config.toml");
  file.write(input);
  lab::TrainConfig config;
  try {
    within_bounds(input.size(), [&] { lab::read_config(config, file.path()); });
  } catch (const lab::Error& error) {
    require_message(error.what());
    return false;
  }
  file.write(lab::config_text(config));
  lab::TrainConfig again;
  lab::read_config(again, file.path());
  require(same(config, again), "what was written reads otherwise");
  return true;
}

}  // namespace came_fuzz
