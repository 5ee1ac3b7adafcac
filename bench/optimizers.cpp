// One step of every optimizer on every backend: ns and bytes of state per parameter.  f32 parameters and gradients.
//
// Names are optimizer/model/backend, so that --benchmark_filter=came/ or =/reference picks a row or a column.
#include <benchmark/benchmark.h>

#include <came/came.hpp>
#include <cmath>

namespace {

/// A list of shapes that is timed as one step.
struct Model {
  const char* name;
  std::vector<std::vector<int64_t>> shapes;
};

struct NamedBackend {
  const char* name;
  came::Backend backend;
};

const std::vector<Model> kModels{
    {"matrix_256x256", {{256, 256}}},
    // A small convolutional network: folded kernels, a 1x1 convolution, biases, a classifier.
    {"convnet", {{64, 3, 3, 3}, {64}, {64, 64, 3, 3}, {64}, {128, 64, 1, 1}, {128}, {10, 128}, {10}}},
};
const std::vector<NamedBackend> kBackends{{"reference", came::Backend::reference}};
const std::vector<const char*> kOptimizers{"came", "adafactor", "adam", "adamw", "lamb", "sm3"};

/// Parameters and gradients of a model; neither zero nor equal, so that no optimizer meets a special case.
struct Buffers {
  explicit Buffers(const Model& model) {
    values.reserve(2 * model.shapes.size());
    for (const std::vector<int64_t>& shape : model.shapes) {
      int64_t size = 1;
      for (const int64_t extent : shape) size *= extent;
      for (int copy = 0; copy < 2; ++copy) {
        std::vector<float>& list = values.emplace_back();
        for (int64_t k = 0; k < size; ++k) list.push_back(std::sin(static_cast<float>(k + copy + 1)));
      }
      parameters.push_back(
          {std::to_string(parameters.size()), {values.end()[-2].data(), shape}, {values.end()[-1].data(), shape}});
      count += size;
    }
  }

  std::vector<std::vector<float>> values;
  std::vector<came::Parameter> parameters;
  int64_t count = 0;
};

void step(benchmark::State& state, const char* optimizer_name, const Model& model, came::Backend backend) {
  Buffers buffers(model);
  came::Options options{std::string(optimizer_name)};
  options.lr = 1e-6;  // Small: parameters stay of order one however long the timing runs.
  came::Optimizer optimizer({options}, buffers.parameters, backend);
  for (auto _ : state) optimizer.step();

  const auto count = static_cast<double>(buffers.count);
  // A rate of parameters, inverted: seconds per parameter.  The table shows it with its own unit, ns.
  state.counters["seconds_per_param"] =
      benchmark::Counter(count, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["state_bytes_per_param"] = static_cast<double>(optimizer.memory().state_bytes) / count;
}

}  // namespace

int main(int argc, char** argv) {
  for (const NamedBackend& backend : kBackends) {
    for (const Model& model : kModels) {
      for (const char* optimizer : kOptimizers) {
        const std::string name = std::string(optimizer) + "/" + model.name + "/" + backend.name;
        benchmark::RegisterBenchmark(name.c_str(), [optimizer, &model, &backend](benchmark::State& state) {
          step(state, optimizer, model, backend.backend);
        })->Unit(benchmark::kMicrosecond);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
