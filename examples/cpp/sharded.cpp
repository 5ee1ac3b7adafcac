// One matrix split by rows over three ranks.  Each rank has its own plan, its own rows of the parameter and its own
// state; after each phase the ranks all-reduce a small buffer of doubles and go on.  Here the ranks are three objects
// of one program and `all_reduce` is a loop; with MPI or NCCL it is one collective on the same buffer.
//
// The result must be that of the whole matrix on one rank; only the order of the sums differs.
#include <algorithm>
#include <came/came.hpp>
#include <cmath>
#include <cstdio>

namespace {

constexpr int64_t kRows = 12;
constexpr int64_t kCols = 7;
constexpr int kSteps = 50;

/// The rows [first, first + count) of the matrix: parameter, gradient, state, and the plan of their step.
struct Rank {
  Rank(int64_t first, int64_t count, bool sharded) : plan({came::Options::came()}, {spec(first, count, sharded)}) {
    for (int64_t k = first * kCols; k < (first + count) * kCols; ++k) param.push_back(std::cos(static_cast<double>(k)));
    grad.resize(param.size());
    held = {count, kCols};
    params = {{param.data(), held}};
    grads = {{grad.data(), held}};
    specs = plan.state();
    for (const came::StateSpec& state : specs) {
      memory.emplace_back(static_cast<size_t>(state.bytes));
      states.emplace_back(memory.back().data(), state.shape, state.dtype);
    }
    workspace.resize(static_cast<size_t>(plan.memory().workspace_bytes) / sizeof(double));
    reductions.resize(static_cast<size_t>(plan.memory().reduction_bytes) / sizeof(double));
    step.set_tensors(params, grads);
    step.set_states(states);
    step.set_buffers(workspace, reductions);
    step.step = &counter;
  }
  Rank(const Rank&) = delete;  // The views point into the object itself.
  Rank& operator=(const Rank&) = delete;

  /// The plan knows the whole shape; the shard says which part of it lies here.
  static came::TensorSpec spec(int64_t first, int64_t count, bool sharded) {
    came::TensorSpec spec{.name = "w", .shape = {kRows, kCols}, .dtype = came::DType::f64};
    if (sharded) spec.shard = came::Shard{.split_dims = 1U << 0, .offset = {first, 0}, .extent = {count, kCols}};
    return spec;
  }
  /// Gradient of the sum of p^4 / 4 + p^2 / 2, which every rank knows for its own rows.
  void compute_gradient() {
    for (size_t k = 0; k < param.size(); ++k) grad[k] = param[k] * param[k] * param[k] + param[k];
  }

  came::Plan plan;
  std::vector<double> param, grad, workspace, reductions;
  std::vector<int64_t> held;
  std::vector<came::StateSpec> specs;
  std::vector<std::vector<char>> memory;
  std::vector<came::TensorView> params, grads, states;
  int64_t steps_done = 0;
  came::TensorView counter{&steps_done};
  came::Step step;
};

void all_reduce(const std::vector<Rank*>& ranks, const came_reduction& reduction) {
  for (int64_t k = reduction.offset; k < reduction.offset + reduction.count; ++k) {
    const auto at = static_cast<size_t>(k);
    double all = ranks[0]->reductions[at];
    for (size_t r = 1; r < ranks.size(); ++r) {
      const double mine = ranks[r]->reductions[at];
      all = reduction.op == CAME_REDUCE_MAX ? std::max(all, mine) : all + mine;
    }
    for (Rank* rank : ranks) rank->reductions[at] = all;
  }
}

}  // namespace

int main() try {
  Rank whole(0, kRows, false), upper(0, 5, true), middle(5, 6, true), lower(11, 1, true);
  const std::vector<Rank*> ranks{&upper, &middle, &lower};

  for (int k = 0; k < kSteps; ++k) {
    whole.compute_gradient();
    whole.plan.step(whole.step);

    for (Rank* rank : ranks) rank->compute_gradient();
    for (int phase = 0; phase < upper.plan.phases(); ++phase) {
      for (Rank* rank : ranks) rank->plan.run_phase(phase, rank->step);
      all_reduce(ranks, upper.plan.reduction(phase));
    }
  }

  double largest = 0;
  auto expected = whole.param.begin();
  for (const Rank* rank : ranks) {
    for (const double value : rank->param) largest = std::max(largest, std::abs(value - *expected++));
  }
  std::printf("3 ranks, %d steps: largest difference from one rank %.1e\n", kSteps, largest);
  return largest <= 1e-12 ? 0 : 1;
} catch (const came::Error& error) {
  std::fprintf(stderr, "sharded: %s\n", error.what());
  return 1;
}
