// Fully sharded training over MPI: each process holds its own rows of every matrix, and the optimizer's state for them.
//
//   mpirun -n 4 build/bin/example_sharded_mpi [OPTIMIZER [STEPS]]        came, 300 steps
//
// A step gathers whole parameters, runs the network on this rank's samples, reduces each gradient to the ranks that
// hold its rows, and runs the optimizer: a list of phases with an MPI_Allreduce of a few doubles per column after each.
// With any number of processes the result is the same but for the order of sums.
#include <mpi.h>

#include <algorithm>
#include <came/came.hpp>
#include <climits>
#include <cmath>
#include <cstdio>

namespace {

constexpr size_t kInputs = 6, kHidden = 37, kOutputs = 3;
constexpr int kSamples = 120;

int rank = 0, ranks = 1;  // of MPI_COMM_WORLD

void all_reduce(double* values, int64_t count, MPI_Op op) {
  if (count > INT_MAX) throw std::length_error("too many doubles for an int; MPI 4 has MPI_Allreduce_c");
  MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), MPI_DOUBLE, op, MPI_COMM_WORLD);
}

/// One parameter: the rows that this rank holds, and room for the whole while the network runs.
struct Parameter {
  Parameter(const char* name, const std::vector<int64_t>& shape, bool split)
      : spec{.name = name, .shape = shape, .dtype = came::DType::f64}, held(shape) {
    const int64_t row = shape.size() == 2 ? shape[1] : 1;
    const int64_t chunk = (shape[0] + ranks - 1) / ranks;  // as torch does: the last rank may hold less, or nothing
    const int64_t first = split ? std::min(shape[0], rank * chunk) : 0;
    if (split) held[0] = std::min(chunk, shape[0] - first);
    for (int64_t r = 0; split && r < ranks; ++r) {
      const int64_t begin = std::min(shape[0], r * chunk), end = std::min(shape[0], begin + chunk);
      counts.push_back(static_cast<int>((end - begin) * row));
      displacements.push_back(static_cast<int>(begin * row));
    }
    if (split) {  // The plan knows the whole shape; the shard says which part of it lies here.
      spec.shard = came::Shard{.split_dims = 1U << 0, .offset = std::vector<int64_t>(shape.size()), .extent = held};
      spec.shard->offset[0] = first;
    }
    for (int64_t k = first * row; k < (first + held[0]) * row; ++k) {
      part.push_back(std::sin(static_cast<double>(k * k + shape[0])) / std::sqrt(static_cast<double>(row)));
    }
    grad.resize(part.size());
    whole.resize(static_cast<size_t>(shape[0] * row));
    whole_grad.resize(whole.size());
  }
  void gather() {
    if (!spec.shard) return void(whole = part);
    MPI_Allgatherv(part.data(), static_cast<int>(part.size()), MPI_DOUBLE, whole.data(), counts.data(),
                   displacements.data(), MPI_DOUBLE, MPI_COMM_WORLD);
  }
  void reduce_gradient() {
    if (!spec.shard) return all_reduce((grad = whole_grad).data(), static_cast<int64_t>(grad.size()), MPI_SUM);
    MPI_Reduce_scatter(whole_grad.data(), grad.data(), counts.data(), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  }

  came::TensorSpec spec;
  std::vector<int64_t> held;               // the shape of what lies here
  std::vector<int> counts, displacements;  // of each rank, in elements
  std::vector<double> part, grad, whole, whole_grad;
};

/// What a sample adds to the mean squared error of y = V tanh(W x + b) + c; adds its gradient.
double add_sample(std::vector<Parameter>& network, int sample) {
  const std::vector<double>&w = network[0].whole, &b = network[1].whole, &v = network[2].whole, &c = network[3].whole;
  std::vector<double>&dw = network[0].whole_grad, &db = network[1].whole_grad;
  std::vector<double>&dv = network[2].whole_grad, &dc = network[3].whole_grad;
  double x[kInputs], h[kHidden], dh[kHidden] = {}, loss = 0;
  for (size_t k = 0; k < kInputs; ++k) x[k] = std::sin((sample + 1) * (static_cast<double>(k) + 3));
  for (size_t i = 0; i < kHidden; ++i) {
    double sum = b[i];
    for (size_t k = 0; k < kInputs; ++k) sum += w[i * kInputs + k] * x[k];
    h[i] = std::tanh(sum);
  }
  for (size_t o = 0; o < kOutputs; ++o) {
    double error = c[o] - x[o] * x[o + 1] - x[o + 2];  // what the network is to learn
    for (size_t i = 0; i < kHidden; ++i) error += v[o * kHidden + i] * h[i];
    const double slope = 2 * error / kSamples;
    loss += error * error / kSamples;
    dc[o] += slope;
    for (size_t i = 0; i < kHidden; ++i) dv[o * kHidden + i] += slope * h[i], dh[i] += slope * v[o * kHidden + i];
  }
  for (size_t i = 0; i < kHidden; ++i) {
    const double slope = dh[i] * (1 - h[i] * h[i]);
    db[i] += slope;
    for (size_t k = 0; k < kInputs; ++k) dw[i * kInputs + k] += slope * x[k];
  }
  return loss;
}

/// The mean squared error over all samples; leaves its gradient with the ranks that hold the rows.
double compute_gradients(std::vector<Parameter>& network) {
  for (Parameter& p : network) {
    p.gather();
    std::fill(p.whole_grad.begin(), p.whole_grad.end(), 0.0);
  }
  double loss = 0;
  for (int sample = rank; sample < kSamples; sample += ranks) loss += add_sample(network, sample);
  for (Parameter& p : network) p.reduce_gradient();
  all_reduce(&loss, 1, MPI_SUM);
  return loss;
}

/// A plan and the memory that it asks for.
struct Optimizer {
  Optimizer(const came::Options& options, std::vector<Parameter>& network)
      : plan({options}, specs(network)),
        states(plan.state()),
        workspace(static_cast<size_t>(plan.memory().workspace_bytes) / sizeof(double)),
        reductions(static_cast<size_t>(plan.memory().reduction_bytes) / sizeof(double)) {
    for (Parameter& p : network) {
      params.emplace_back(p.part.data(), p.held);
      grads.emplace_back(p.grad.data(), p.held);
    }
    for (const came::StateSpec& state : states) {
      memory.emplace_back(static_cast<size_t>(state.bytes));
      state_views.emplace_back(memory.back().data(), state.shape, state.dtype);
    }
    call.set_tensors(params, grads);
    call.set_states(state_views);
    call.set_buffers(workspace, reductions);
    call.step = &counter;
  }
  Optimizer(const Optimizer&) = delete;  // The views point into the object itself.
  Optimizer& operator=(const Optimizer&) = delete;

  static std::vector<came::TensorSpec> specs(const std::vector<Parameter>& network) {
    std::vector<came::TensorSpec> list;
    for (const Parameter& p : network) list.push_back(p.spec);
    return list;
  }
  /// All ranks have the same phases and reductions, whatever they hold.  Returns how many doubles were reduced.
  int64_t step() {
    int64_t reduced = 0;
    for (int phase = 0; phase < plan.phases(); ++phase) {
      plan.run_phase(phase, call);
      const came_reduction shared = plan.reduction(phase);
      if (shared.count == 0) continue;
      all_reduce(reductions.data() + shared.offset, shared.count, shared.op == CAME_REDUCE_MAX ? MPI_MAX : MPI_SUM);
      reduced += shared.count;
    }
    return reduced;
  }

  came::Plan plan;
  std::vector<came::StateSpec> states;
  std::vector<double> workspace, reductions;
  std::vector<std::vector<char>> memory;
  std::vector<came::TensorView> params, grads, state_views;
  int64_t steps_done = 0;
  came::TensorView counter{&steps_done};
  came::Step call;
};

void train(const std::string& word, int steps) {
  // The vector c is small: every rank holds all of it and does the same to it.
  std::vector<Parameter> network{{"W", {kHidden, kInputs}, true},
                                 {"b", {kHidden}, true},
                                 {"V", {kOutputs, kHidden}, true},
                                 {"c", {kOutputs}, false}};
  Optimizer optimizer(came::Options(word), network);
  int64_t reduced = 0;
  for (int step = 0; step < steps; ++step) {
    const double loss = compute_gradients(network);
    if (rank == 0 && step % 50 == 0) std::fprintf(stderr, "step %d: loss %.4f\n", step, loss);
    reduced = optimizer.step();
  }
  const double loss = compute_gradients(network);  // it gathers the parameters once more

  std::printf("rank %d: %lld bytes of state, %lld bytes reduced per step\n", rank,
              static_cast<long long>(optimizer.plan.memory().state_bytes), static_cast<long long>(8 * reduced));
  if (rank != 0) return;
  double checksum = 0, at = 0;
  for (const Parameter& p : network) {
    for (const double value : p.whole) checksum += value * std::cos(++at);
  }
  std::printf("loss: %.17g\nchecksum: %.17g\n", loss, checksum);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  try {
    train(argc > 1 ? argv[1] : "came", argc > 2 ? std::stoi(argv[2]) : 300);
  } catch (const std::exception& error) {
    // One rank that returned would leave the others waiting in a collective.  MPI's own errors abort likewise.
    std::fprintf(stderr, "sharded_mpi: rank %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
