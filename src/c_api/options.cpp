// Options in the C interface.
#include "core/options.hpp"

#include <cstring>

#include "c_api/handle.hpp"
#include "core/optimizers/descriptor.hpp"

using namespace came::c_api;
namespace core = came::core;

std::vector<came_options> came::c_api::copy_groups(const came_options* groups, int32_t count) {
  if (count < 0) core::invalid("group_count: ", count, " given, expected at least 1");
  // All are looked at before memory is taken for a count that may be wrong.
  for (int32_t k = 0; k < count; ++k) checked_element(groups, k, "groups");
  return {groups, groups + count};
}

extern "C" {

came_status came_options_init(came_options* options, came_algorithm algorithm) {
  return guarded(
      [&] { checked_struct(options, "options") = core::default_options(core::checked_algorithm(algorithm)); });
}

came_status came_options_validate(const came_options* options) {
  return guarded([&] { core::validate_options(checked_struct(options, "options"), "options"); });
}

came_status came_options_set(came_options* options, const char* name, const char* value) {
  return guarded([&] {
    required(name, "name");
    required(value, "value");
    core::set_option(checked_struct(options, "options"), name, value);
  });
}

came_status came_algorithm_find(const char* name, came_algorithm* algorithm) {
  return guarded([&] {
    required(name, "name");
    required(algorithm, "algorithm");
    std::string known;
    for (came_algorithm k = 0; k < core::kAlgorithms; ++k) {
      if (std::strcmp(name, came_algorithm_name(k)) == 0) {
        *algorithm = k;
        return;
      }
      known += (k > 0 ? ", " : "") + std::string(came_algorithm_name(k));
    }
    core::invalid("algorithm: '", name, "' given, expected one of ", known);
  });
}

const char* came_algorithm_name(came_algorithm algorithm) {
  if (algorithm < 0 || algorithm >= core::kAlgorithms) return nullptr;
  return core::descriptor(static_cast<came::Algorithm>(algorithm)).word;
}

}  // extern "C"
