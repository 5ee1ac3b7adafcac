// One step of every optimizer on every backend: ns and bytes of state per parameter.
//
// Names are optimizer/model/dtype/backend, so that --benchmark_filter=came/ or =/bf16/ picks a row or a column.  The
// dtype is that of parameters, gradients and momentum; "cpu" is the best backend of this build for host memory.
#include <benchmark/benchmark.h>

#include <bit>
#include <came/came.hpp>
#include <cmath>

#include "shapes.hpp"

namespace {

using came::bench::Model;

struct Storage {
  const char* name;
  came::DType dtype;
  size_t bytes;
};

struct NamedBackend {
  const char* name;
  came::Backend backend;
};

const std::vector<Model> kModels{
    {"matrix_1024", {{1024, 1024}}},                      // larger than the caches a core has to itself
    {"matrices_64", came::bench::Shapes(100, {64, 64})},  // each smaller than any cache
    {"convolution_3x3", {{256, 128, 3, 3}, {256}}},       // folded to 256 x 1152, and a bias
};
const std::vector<Storage> kStorages{{"f32", came::DType::f32, 4}, {"bf16", came::DType::bf16, 2}};
const std::vector<NamedBackend> kBackends{{"cpu", came::Backend::automatic}, {"reference", came::Backend::reference}};

/// Parameters and gradients of a model; neither zero nor equal, so that no optimizer meets a special case.
struct Buffers {
  Buffers(const Model& model, const Storage& storage) {
    memory.reserve(2 * model.shapes.size());
    for (const std::vector<int64_t>& shape : model.shapes) {
      int64_t size = 1;
      for (const int64_t extent : shape) size *= extent;
      void* param = fill(size, 1, storage);
      void* grad = fill(size, 2, storage);
      parameters.push_back(
          {std::to_string(parameters.size()), {param, shape, storage.dtype}, {grad, shape, storage.dtype}});
      count += size;
    }
  }

  void* fill(int64_t size, int64_t first, const Storage& storage) {
    // Words of 32 bits hold either type; a bf16 is the upper half of an f32.
    std::vector<uint32_t>& words = memory.emplace_back((static_cast<size_t>(size) * storage.bytes + 3) / 4);
    for (int64_t k = 0; k < size; ++k) {
      const auto bits = std::bit_cast<uint32_t>(std::sin(static_cast<float>(k + first)));
      const auto at = static_cast<size_t>(k);
      if (storage.bytes == 4) {
        words[at] = bits;
      } else {
        words[at / 2] |= at % 2 == 0 ? bits >> 16 : bits & 0xffff0000;
      }
    }
    return words.data();
  }

  std::vector<std::vector<uint32_t>> memory;
  std::vector<came::Parameter> parameters;
  int64_t count = 0;
};

void step(benchmark::State& state, const std::string& word, const Model& model, const Storage& storage,
          came::Backend backend) {
  Buffers buffers(model, storage);
  came::Options options(word);
  options.lr = 1e-6;  // Small: parameters stay of order one however long the timing runs.
  options.momentum_dtype = static_cast<came_dtype>(storage.dtype);
  if (options.word() == "came") options.bias_correction = 0;  // The paper's Algorithm 2, as in compare.py.
  came::Optimizer optimizer({options}, buffers.parameters, backend);
  for (auto _ : state) optimizer.step();

  const auto count = static_cast<double>(buffers.count);
  // A rate of parameters, inverted: seconds per parameter.  The table shows it with its own unit, ns.
  state.counters["seconds_per_param"] =
      benchmark::Counter(count, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["state_bytes_per_param"] = static_cast<double>(optimizer.memory().state_bytes) / count;
}

void add(const std::string& optimizer, const Model& model, const Storage& storage, const NamedBackend& backend) {
  const std::string name = optimizer + "/" + model.name + "/" + storage.name + "/" + backend.name;
  const auto run = [optimizer, &model, &storage, &backend](benchmark::State& state) {
    step(state, optimizer, model, storage, backend.backend);
  };
  // Real time: that of the calling thread alone would hide what the others do.
  benchmark::RegisterBenchmark(name.c_str(), run)->Unit(benchmark::kMicrosecond)->UseRealTime();
}

}  // namespace

int main(int argc, char** argv) {
  for (const NamedBackend& backend : kBackends) {
    for (const Model& model : kModels) {
      for (const Storage& storage : kStorages) {
        for (const std::string& optimizer : came::algorithm_words()) add(optimizer, model, storage, backend);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
