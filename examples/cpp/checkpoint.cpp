// Save, stop, resume: the run goes on as if it had never stopped, bit for bit.
//
// A checkpoint holds the parameters (yours to save), the optimizer's state by name, and whatever sets the learning
// rate, here the step.  Options are code and stay there.
#include <came/came.hpp>
#include <cstdio>
#include <cstring>
#include <map>

namespace {

const std::vector<int64_t> kShape{6, 40};

/// A parameter in bf16 with gradients in f32, and CAME with an 8-bit momentum.
struct Run {
  std::vector<uint16_t> w = std::vector<uint16_t>(240, 0x3f80);  // ones
  std::vector<float> grad = std::vector<float>(240);
  came::Optimizer optimizer{options(), {{"w", {w.data(), kShape, came::DType::bf16}, {grad.data(), kShape}}}};

  static came::Options options() {
    came::Options o = came::Options::came();
    o.stochastic_rounding = 1;
    return o.set("momentum_dtype", "int8");
  }
  void train(int from, int to) {
    for (int step = from; step < to; ++step) {
      for (size_t k = 0; k < grad.size(); ++k)
        grad[k] = static_cast<float>((k * 7 + static_cast<size_t>(step)) % 11) - 4;
      optimizer.set_lr(1e-3 / (1 + step));
      optimizer.step();
    }
  }
};

using Checkpoint = std::map<std::string, std::vector<char>>;

Checkpoint save(const Run& run) {
  Checkpoint saved;
  const auto* first = reinterpret_cast<const char*>(run.w.data());
  saved["parameter w"].assign(first, first + run.w.size() * sizeof(uint16_t));
  for (const came::NamedTensor& state : run.optimizer.state()) {
    const auto* data = static_cast<const char*>(state.tensor.data);
    saved[state.name].assign(data, data + state.bytes);
  }
  return saved;
}

void load(Run& run, Checkpoint& saved) {
  std::memcpy(run.w.data(), saved["parameter w"].data(), run.w.size() * sizeof(uint16_t));
  std::vector<came::NamedTensor> states = run.optimizer.state();  // names, shapes and types to expect
  for (came::NamedTensor& state : states) state.tensor.data = saved.at(state.name).data();
  run.optimizer.load_state(states);
}

}  // namespace

int main() try {
  Run whole;
  whole.train(0, 30);

  Run before;
  before.train(0, 12);
  Checkpoint saved = save(before);
  Run after;
  load(after, saved);
  after.train(12, 30);

  const bool equal = after.w == whole.w && save(after) == save(whole);
  std::printf("resumed at step 12 of 30: %s\n", equal ? "every bit as if it had not stopped" : "DIFFERENT");
  return equal ? 0 : 1;
} catch (const came::Error& error) {
  std::fprintf(stderr, "checkpoint: %s\n", error.what());
  return 1;
}
