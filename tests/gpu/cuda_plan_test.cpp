// What the CUDA backend's plans refuse, and that their steps allocate nothing.
#include "displacement.hpp"
#include "gpu/cuda_support.hpp"

namespace came::test {
namespace {

// Counts memory of the whole device, so nothing else may run beside it: tests/gpu/CMakeLists.txt.
TEST(CudaMemory, NothingIsAllocatedInAStep) {
  for (const std::string& word : all_words()) {
    for (const Options& o : option_variants(word)) {
      Trial run({o}, mixed_specs(), nullptr, core::cuda_backend());
      start(run);
      run.fill_grads(1);
      run.run();
      run.upload();
      size_t before = 0;
      size_t after = 0;
      size_t total = 0;
      check(cudaMemGetInfo(&before, &total));
      for (int step = 0; step < 10; ++step) run.launch();
      device::synchronize();
      check(cudaMemGetInfo(&after, &total));
      EXPECT_EQ(after, before) << word;
    }
  }
}

TEST(CudaPlan, AnEstimateAllocatesNothing) {
  const Stream stream;
  // While a stream captures, a device refuses to allocate.
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
  const came_memory memory = estimate({Options::came()}, {spec_of({64, 64}, DType::f32)}, Backend::cuda);
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream.get(), &graph));
  check(cudaGraphDestroy(graph));
  EXPECT_EQ(memory.state_bytes, 4 * (64 * 64 + 4 * 64));
  EXPECT_GT(memory.table_bytes, 0);
}

TEST(CudaPlan, NamesATensorOnTheHost) {
  Trial run({Options::came()}, {spec_of({5, 7}), spec_of({9})}, nullptr, core::cuda_backend());
  run.upload();
  const auto refuse = [&](const came_step& step, const char* tensor, const char* role) {
    expect_error([&] { core::run_step(run.plan, step); }, tensor, role, "cpu:0, expected cuda:0");
  };
  refuse(run.step, "tensor 0 'w'", "param is on");
  came_step step = run.memory_step();
  std::vector<TensorView> grads(2);
  for (size_t k = 0; k < 2; ++k) static_cast<came_tensor&>(grads[k]) = step.grads[k];
  grads[1] = run.grad_views[1];
  step.grads = grads.data();
  refuse(step, "tensor 1 'w'", "grad is on");
  step = run.memory_step();
  std::vector<TensorView> states(run.states.size());
  for (size_t k = 0; k < states.size(); ++k) static_cast<came_tensor&>(states[k]) = step.states[k];
  states[2] = run.state_views[2];
  step.states = states.data();
  refuse(step, "tensor 0 'w'", run.plan.tensors[0].states[2].name);
}

TEST(CudaPlan, NamesADeviceThatIsNotThere) {
  expect_error([] { Plan({Options::came()}, {spec_of({5, 7})}, Backend::cuda, 99); }, "99");
  expect_error(
      [] {
        core::Plan plan = core::make_plan({Options::came()}, {spec_of({5, 7})}, core::cuda_backend(), 99);
        core::prepare(plan);
      },
      "99");
}

TEST(CudaPlan, OfThePublicInterfaceTakesTheSameStep) {
  const std::vector<TensorSpec> specs{spec_of({67, 130}, DType::f32), spec_of({9}, DType::bf16)};
  const Plan plan({Options::came()}, specs, Backend::cuda);
  Trial ours({Options::came()}, specs, nullptr, core::cuda_backend());
  Trial expected({Options::came()}, specs, nullptr, core::cuda_backend());
  EXPECT_EQ(plan.memory().workspace_bytes, ours.plan.memory.workspace_bytes);
  for (Trial* run : {&ours, &expected}) {
    start(*run);
    run->fill_grads(1);
  }
  const Bytes before = ours.image();
  ours.upload();
  Step step;
  static_cast<came_step&>(step) = ours.memory_step();
  plan.step(step);
  ours.download();
  expected.run();
  EXPECT_EQ(ours.image(), expected.image());
  EXPECT_NE(ours.image(), before);
}

}  // namespace
}  // namespace came::test
