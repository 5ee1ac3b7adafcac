// came_memory: optimizer state per parameter of real models, from the estimator, as JSON on standard output.
//
//   build/bin/came_memory > bench/results/memory.json
//   build/bin/came_memory --shapes                      the shapes themselves, for programs that are not C++
//
// These figures follow from shapes alone; they do not depend on the machine.
#include <came/came.hpp>
#include <cstdio>
#include <functional>
#include <string_view>

#include "shapes.hpp"

namespace {

struct Row {
  const char* name;
  came::Options options;
};

came::Options with_int8_moments(came::Options options) {
  options.momentum_dtype = options.second_moment_dtype = CAME_DTYPE_I8;
  return options;
}

std::vector<Row> rows() {
  const auto with = [](came::Options options, const std::function<void(came::Options&)>& change) {
    change(options);
    return options;
  };
  return {
      {"adamw", came::Options::adamw()},
      {"adamw, int8 moments", with_int8_moments(came::Options::adamw())},
      {"lamb", came::Options::lamb()},
      {"lamb, int8 moments", with_int8_moments(came::Options::lamb())},
      {"adafactor", came::Options::adafactor()},
      {"adafactor, no momentum", with(came::Options::adafactor(), [](auto& o) { o.beta1 = 0; })},
      {"sm3", came::Options::sm3()},
      {"sm3, no momentum", with(came::Options::sm3(), [](auto& o) { o.beta1 = 0; })},
      {"came", came::Options::came()},
      {"came, bf16 momentum", with(came::Options::came(), [](auto& o) { o.momentum_dtype = CAME_DTYPE_BF16; })},
      {"came, int8 momentum", with(came::Options::came(), [](auto& o) { o.momentum_dtype = CAME_DTYPE_I8; })},
      {"came, int4 momentum", with(came::Options::came(), [](auto& o) { o.momentum_dtype = CAME_DTYPE_I4; })},
      {"came, view last_two", with(came::Options::came(), [](auto& o) { o.view = CAME_VIEW_LAST_TWO; })},
  };
}

void print_memory(const came::bench::Model& model) {
  std::vector<came::TensorSpec> specs;
  for (const auto& shape : model.shapes) {
    specs.push_back({.name = "", .shape = shape});
    specs.back().id = specs.size();
  }
  const int64_t parameters = came::estimate({came::Options::adamw()}, specs).parameter_bytes / 4;
  std::printf("{\n    \"tensors\": %zu,\n    \"parameters\": %lld,\n    \"bytes_per_parameter\": {\n",
              model.shapes.size(), static_cast<long long>(parameters));
  const std::vector<Row> list = rows();
  for (size_t k = 0; k < list.size(); ++k) {
    const came_memory memory = came::estimate({list[k].options}, specs);
    const auto per = [&](int64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(parameters); };
    std::printf("      \"%s\": {\"state\": %.4f, \"buffers\": %.4f}%s\n", list[k].name, per(memory.state_bytes),
                per(memory.workspace_bytes + memory.reduction_bytes), k + 1 < list.size() ? "," : "");
  }
  std::printf("    }\n  }");
}

void print_shapes(const came::bench::Model& model) {
  const char* before_shape = "[";
  for (const std::vector<int64_t>& shape : model.shapes) {
    const char* before_size = "[";
    std::printf("%s", before_shape);
    for (const int64_t size : shape) {
      std::printf("%s%lld", before_size, static_cast<long long>(size));
      before_size = ", ";
    }
    std::printf("]");
    before_shape = ", ";
  }
  std::printf("]");
}

}  // namespace

int main(int argc, char** argv) {
  const bool shapes = argc == 2 && std::string_view(argv[1]) == "--shapes";
  if (argc > 1 && !shapes) {
    std::fprintf(stderr, "came_memory: argument: given %s, expected none or --shapes\n", argv[1]);
    return 2;
  }
  const char* before = "{\n";
  for (const came::bench::Model& model : came::bench::models()) {
    std::printf("%s  \"%s\": ", before, model.name);
    if (shapes) {
      print_shapes(model);
    } else {
      print_memory(model);
    }
    before = ",\n";
  }
  std::printf("\n}\n");
  return 0;
}
