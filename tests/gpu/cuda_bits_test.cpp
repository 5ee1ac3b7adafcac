// The CUDA backend gives the same bits: run to run, together or one by one, at any address, from scalars on the host or
// the device, from a captured graph.
#include <limits>

#include "displacement.hpp"
#include "gpu/cuda_support.hpp"

namespace came::test {
namespace {

class CudaBits : public testing::TestWithParam<std::string> {
 protected:
  static std::vector<TensorSpec> small_specs() {
    std::vector<TensorSpec> list = in_every_type({{5, 7}, {67, 130}, {2, 65, 66}, {3, 16400}, {301}, {}});
    // CAME keeps these on the chip: gradients have the parameters' type.
    for (const Sizes& shape : std::vector<Sizes>{{270, 512}, {70, 1024}, {300, 768}}) {
      list.push_back(spec_of(shape, DType::f32));
      list.back().id = 1000 + list.size();
    }
    return list;
  }
};

TEST_P(CudaBits, AreThoseOfTheLastRun) {
  for (const Options& o : option_variants(GetParam())) {
    EXPECT_EQ(bytes_after(o, mixed_specs(), core::cuda_backend()), bytes_after(o, mixed_specs(), core::cuda_backend()));
  }
}

TEST_P(CudaBits, DoNotDependOnAddresses) {
  for (const Options& o : option_variants(GetParam())) {
    const Bytes aligned = bytes_after(o, mixed_specs(), core::cuda_backend());
    EXPECT_EQ(bytes_after(o, mixed_specs(), core::cuda_backend(), Placement::odd), aligned);
    EXPECT_EQ(bytes_after(o, mixed_specs(), core::cuda_backend(), Placement::mixed), aligned);
    EXPECT_EQ(bytes_after(o, mixed_specs(), core::cuda_backend(), Placement::apart), aligned);
  }
}

TEST_P(CudaBits, AreTheSameForTensorsTogetherOrOneByOne) {
  for (const Options& o : option_variants(GetParam())) {
    expect_same_bits_together_or_one_by_one(o, core::cuda_backend());
  }
}

/// What four steps leave with scalars of these types, on the host or the device.
template <class Counter, class Scalar>
Bytes bytes_with_scalars(const Options& o, const std::vector<TensorSpec>& specs, bool on_device, bool one_counter) {
  Options slow = o;
  slow.lr = 0.5 * o.lr;
  std::vector<TensorSpec> list = specs;
  for (size_t k = 0; k < list.size(); ++k) list[k].group = static_cast<int>(k % 2);
  Trial run({o, slow}, list, nullptr, core::cuda_backend());
  run.device_scalars = on_device;
  start(run);
  std::vector<Counter> counters(one_counter ? 1 : list.size(), Counter{3});
  const auto count = static_cast<int64_t>(counters.size());
  const TensorView steps(counters.data(), {&count, 1});
  Scalar rates[2] = {Scalar(1e-2), Scalar(3e-3)};
  const int64_t two = 2;
  const TensorView lr(rates, {&two, 1});
  Scalar scale = 3;
  const TensorView grad_scale(&scale);
  Scalar none = 0;
  const TensorView found_inf(&none);
  run.step.step = &steps;
  run.step.lr = &lr;
  run.step.grad_scale = &grad_scale;
  run.step.found_inf = &found_inf;
  for (uint64_t step = 0; step < 4; ++step) {
    run.fill_grads(step);
    rates[0] *= Scalar(0.7);
    scale *= Scalar(1.3);
    run.run();
  }
  Bytes all = run.image();
  for (const Counter counter : counters) all.data += std::to_string(counter) + ";";
  EXPECT_EQ(counters[0], Counter{7});
  return all;
}

TEST_P(CudaBits, AreTheSameFromScalarsOnTheDevice) {
  for (const Options& o : option_variants(GetParam())) {
    const auto expect_same = [&](auto bytes_with) {
      for (const bool one_counter : {true, false}) {
        EXPECT_EQ(bytes_with(o, small_specs(), true, one_counter), bytes_with(o, small_specs(), false, one_counter));
      }
    };
    expect_same(bytes_with_scalars<int64_t, double>);
    expect_same(bytes_with_scalars<int64_t, float>);
    expect_same(bytes_with_scalars<float, float>);
    expect_same(bytes_with_scalars<double, double>);
  }
}

TEST_P(CudaBits, AreLeftAloneByFoundInfOnTheDevice) {
  for (const Options& o : option_variants(GetParam())) {
    Trial run({o}, small_specs(), nullptr, core::cuda_backend());
    run.device_scalars = true;
    start(run);
    run.fill_grads(1);
    float inf = 0;
    const TensorView found_inf(&inf);
    float scale = 1;
    const TensorView grad_scale(&scale);
    run.step.found_inf = &found_inf;
    run.step.grad_scale = &grad_scale;
    run.run();
    const Bytes before = run.image();
    run.grad(0).set(3, std::numeric_limits<double>::infinity());
    inf = 1;
    scale = 0;  // what a scaler may hold when it overflowed
    run.run();
    EXPECT_EQ(run.image(), before);
    inf = 0;
    scale = 1;
    run.fill_grads(2);
    run.run();
    EXPECT_NE(run.image(), before);
    EXPECT_EQ(run.counters[0], 2);
  }
}

/// One counter of one tensor is its own, though as many tensors share as there are.
TEST_P(CudaBits, OfTheCounterOfASingleTensorFollowWhetherItIsActive) {
  Trial run({Options(GetParam())}, {spec_of({5, 7}, DType::f32)}, nullptr, core::cuda_backend());
  run.device_scalars = true;
  start(run);
  run.fill_grads(1);
  for (const uint8_t active : {uint8_t{0}, uint8_t{1}, uint8_t{0}, uint8_t{1}}) {
    const int64_t before = run.counters[0];
    run.step.active = &active;
    run.run();
    EXPECT_EQ(run.counters[0], before + active);
  }
}

TEST_P(CudaBits, OfInactiveTensorsAreLeftAlone) {
  for (const Options& o : option_variants(GetParam())) {
    const std::vector<TensorSpec> list = small_specs();
    Trial run({o}, list, nullptr, core::cuda_backend());
    run.device_scalars = true;
    start(run);
    run.fill_grads(1);
    std::vector<uint8_t> active(list.size(), 0);
    for (size_t k = 0; k < list.size(); k += 3) active[k] = 1;
    run.step.active = active.data();
    const std::vector<Buffer> params = run.params;
    const std::vector<Buffer> states = run.states;
    run.run();
    for (size_t k = 0; k < list.size(); ++k) {
      EXPECT_EQ(run.counters[k], active[k]);
      if (active[k] != 0) continue;
      EXPECT_EQ(run.params[k].bytes(), params[k].bytes()) << "tensor " << k;
      const core::Tensor& t = run.plan.tensors[k];
      for (size_t s = static_cast<size_t>(t.first_state); s < static_cast<size_t>(t.first_state) + t.states.size();
           ++s) {
        EXPECT_EQ(run.states[s].bytes(), states[s].bytes()) << "tensor " << k;
      }
    }
    EXPECT_NE(run.params[0].bytes(), params[0].bytes());
  }
}

/// A step of a trial with scalars on the device, captured once.  Capturing forbids what a step must not do: allocate,
/// wait, use another stream.
class Graph {
 public:
  explicit Graph(Trial& run) : run_(run) {
    run.device_scalars = true;
    run.upload();
    run.step.stream = stream_.get();
    check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeGlobal));
    run.launch();
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream_.get(), &graph));
    check(cudaGraphInstantiate(&replay_, graph, 0));
    check(cudaGraphDestroy(graph));
  }
  ~Graph() { cudaGraphExecDestroy(replay_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// One step with the gradients and scalars that the trial has now.
  void replay() {
    run_.upload_grads();
    run_.upload_scalars_but_counters();
    check(cudaGraphLaunch(replay_, stream_.get()));
    check(cudaStreamSynchronize(stream_.get()));
  }

 private:
  Trial& run_;
  Stream stream_;
  cudaGraphExec_t replay_ = nullptr;
};

TEST_P(CudaBits, OfACapturedGraphAreThoseOfEagerSteps) {
  for (const Options& o : option_variants(GetParam())) {
    const std::vector<TensorSpec> list = small_specs();
    Trial eager({o}, list, nullptr, core::cuda_backend());
    Trial captured({o}, list, nullptr, core::cuda_backend());
    captured.placement = Placement::mixed;
    double rate = 0;
    float inf = 0;
    const TensorView lr(&rate);
    const TensorView found_inf(&inf);
    for (Trial* run : {&eager, &captured}) {
      start(*run);
      run->step.lr = &lr;
      run->step.found_inf = &found_inf;
    }
    eager.fill_grads(0);
    eager.run();  // loads the kernels
    start(eager);
    for (Buffer& state : eager.states) state.copy(Buffer(state.size()));
    std::fill(eager.counters.begin(), eager.counters.end(), 0);
    Graph graph(captured);
    for (uint64_t step = 0; step < 20; ++step) {
      // The rate changes at every step, and two of them are skipped.
      rate = rate_of(GetParam()) * (1 + 0.1 * static_cast<double>(step));
      inf = step == 5 || step == 11 ? 1.0F : 0.0F;
      eager.fill_grads(step);
      captured.fill_grads(step);
      eager.run();
      graph.replay();
    }
    captured.download();
    EXPECT_EQ(captured.image(), eager.image());
    EXPECT_EQ(captured.counters[0], 18);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaBits, testing::ValuesIn(all_words()), [](const auto& param) { return param.param; });

}  // namespace
}  // namespace came::test
