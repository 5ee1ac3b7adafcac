// Bad input: an error that names the tensor and the argument, and not a byte written.
#include <functional>
#include <limits>

#include "support.hpp"

namespace came::test {
namespace {

class BadStep : public testing::Test {
 protected:
  BadStep() : run({Options::came()}, specs()) {
    run.fill_params(1);
    run.fill_grads(2);
    run.run();  // so that the state is not all zero
  }
  static std::vector<TensorSpec> specs() {
    TensorSpec first = spec_of({3, 4}, DType::f32);
    first.name = "first";
    TensorSpec second = spec_of({5}, DType::bf16);
    second.name = "second";
    second.grad_dtype = DType::f32;
    return {first, second};
  }
  /// Expects the step to fail with a message that has these parts, and nothing to change.
  template <class... Parts>
  void expect_refusal(const Parts&... parts) {
    const Bytes before = run.image();
    expect_error([&] { run.run(); }, parts...);
    for (int phase = 0; phase < 3; ++phase) {
      expect_error([&] { run.run_phase(phase); }, parts...);
    }
    EXPECT_EQ(run.image(), before);
  }
  Trial run;
};

TEST_F(BadStep, NullParameter) {
  run.param_views[0].data = nullptr;
  expect_refusal("tensor 0 'first'", "param.data is null");
}

TEST_F(BadStep, NullGradient) {
  run.grad_views[1].data = nullptr;
  expect_refusal("tensor 1 'second'", "grad.data is null");
}

TEST_F(BadStep, NullState) {
  run.state_views[2].data = nullptr;
  expect_refusal("tensor 0 'first'", "exp_avg_sq_col.data is null");
}

TEST_F(BadStep, NullShape) {
  run.grad_views[0].shape = nullptr;
  expect_refusal("tensor 0 'first'", "grad", "shape is null");
}

TEST_F(BadStep, WrongParameterType) {
  run.param_views[0].dtype = CAME_DTYPE_F16;
  expect_refusal("tensor 0 'first'", "param is f16, expected f32");
}

TEST_F(BadStep, WrongGradientType) {
  run.grad_views[1].dtype = CAME_DTYPE_BF16;
  expect_refusal("tensor 1 'second'", "grad is bf16, expected f32");
}

TEST_F(BadStep, WrongStateType) {
  run.state_views[0].dtype = CAME_DTYPE_BF16;
  expect_refusal("tensor 0 'first'", "exp_avg is bf16, expected f32");
}

TEST_F(BadStep, MismatchedGradientShape) {
  const std::vector<int64_t> shape{4, 3};
  run.grad_views[0].shape = shape.data();
  expect_refusal("tensor 0 'first'", "grad has shape [4, 3], expected [3, 4]");
}

TEST_F(BadStep, MismatchedNumberOfDimensions) {
  run.param_views[0].ndim = 1;
  expect_refusal("tensor 0 'first'", "param has shape [3], expected [3, 4]");
}

TEST_F(BadStep, MisalignedState) {
  run.state_views[1].data = static_cast<char*>(run.state_views[1].data) + 1;
  expect_refusal("tensor 0 'first'", "exp_avg_sq_row.data", "multiple of 4 bytes");
}

TEST_F(BadStep, MisalignedBuffers) {
  run.step.workspace = static_cast<char*>(run.step.workspace) + 4;
  expect_refusal("workspace", "multiple of 8 bytes");
}

TEST_F(BadStep, WrongDevice) {
  run.param_views[0].device = CAME_DEVICE_CUDA;
  expect_refusal("tensor 0 'first'", "param is on cuda:0, expected cpu:0");
}

TEST_F(BadStep, WrongDeviceOfAGradientOrAState) {
  run.grad_views[1].device = CAME_DEVICE_CUDA;
  expect_refusal("tensor 1 'second'", "grad is on cuda:0, expected cpu:0");
  run.grad_views[1].device = CAME_DEVICE_CPU;
  run.state_views[0].device_index = 1;
  expect_refusal("tensor 0 'first'", "exp_avg is on cpu:1, expected cpu:0");
}

TEST_F(BadStep, MoreDimensionsThanCanBe) {
  run.param_views[0].ndim = 1000000;  // refused before the sizes are read: there are only two
  expect_refusal("tensor 0 'first'", "ndim is 1000000, expected 0 to 64");
}

TEST_F(BadStep, ReservedFields) {
  run.grad_views[0].reserved = 1;
  expect_refusal("tensor 0 'first'", "grad.reserved is 1");
  run.grad_views[0].reserved = 0;
  run.step.reserved = 1;
  expect_refusal("step: reserved is 1");
}

TEST_F(BadStep, ScalarsAndBuffersOfAnUncheckedStep) {
  const Bytes before = run.image();
  const auto expect_unchecked_refusal = [&](const char* part) {
    expect_error([&] { core::run_step(run.plan, run.step, core::CheckTensors::no); }, part);
    EXPECT_EQ(run.image(), before);
  };
  run.counters[1] = -1;
  const Bytes broken = run.image();
  expect_error([&] { core::run_step(run.plan, run.step, core::CheckTensors::no); }, "step[1] is -1");
  EXPECT_EQ(run.image(), broken);
  run.counters[1] = 1;
  double lr = -1;
  TensorView view(&lr);
  run.step.lr = &view;
  expect_unchecked_refusal("lr of group 0 is -1");
  run.step.lr = nullptr;
  run.step.workspace_bytes = 1;
  expect_unchecked_refusal("workspace has 1 bytes");
  run.step.state_count = 1;
  expect_unchecked_refusal("state_count is 1");
}

// Scalars are checked in the first phase; later ones look at what they write and at buffers.
TEST_F(BadStep, ScalarsAndBuffersOfAnUncheckedPhase) {
  const auto expect_unchecked_refusal = [&](int phase, const char* part) {
    expect_error([&] { core::run_phase(run.plan, phase, run.step, core::CheckTensors::no); }, part);
  };
  const Bytes before = run.image();
  double lr = -1;
  TensorView view(&lr);
  run.step.lr = &view;
  expect_unchecked_refusal(0, "lr of group 0 is -1");
  run.step.workspace_bytes = 1;
  expect_unchecked_refusal(1, "workspace has 1 bytes");
  run.step.tensor_count = 1;
  expect_unchecked_refusal(1, "tensor_count is 1");
  expect_unchecked_refusal(9, "phase: 9 given");
  EXPECT_EQ(run.image(), before);
}

TEST_F(BadStep, ScalarOnTheWrongDevice) {
  double lr = 1;
  TensorView view(&lr);
  view.device = CAME_DEVICE_CUDA;
  run.step.lr = &view;
  expect_refusal("lr is on cuda, expected cpu");
}

TEST_F(BadStep, PlanOfAnotherTensorList) {
  run.step.tensor_count = 1;
  expect_refusal("tensor_count is 1, expected 2", "another tensor list");
  run.step.tensor_count = 2;
  run.step.state_count = 6;
  expect_refusal("state_count is 6, expected 7", "another tensor list");
}

TEST_F(BadStep, TensorsInAnotherOrder) {
  std::swap(run.param_views[0], run.param_views[1]);
  expect_refusal("tensor 0 'first'", "param has shape [5], expected [3, 4]");
}

TEST_F(BadStep, NullLists) {
  run.step.params = nullptr;
  expect_refusal("params is null");
  run.step.set_tensors(run.param_views, run.grad_views);
  run.step.grads = nullptr;
  expect_refusal("grads is null");
  run.step.set_tensors(run.param_views, run.grad_views);
  run.step.states = nullptr;
  expect_refusal("states is null");
}

TEST(BadReductions, NotProvidedOrTooSmall) {
  Options clipped = Options::came();
  clipped.max_grad_norm = 1;  // the norm of the gradient is reduced by every backend
  Trial run({clipped}, {spec_of({5, 7})});
  const Bytes before = run.image();
  run.step.reduction_bytes -= 1;
  expect_error([&] { run.run(); }, "reductions has", "expected at least");
  run.step.reductions = nullptr;
  expect_error([&] { run.run(); }, "reductions is null", std::to_string(run.plan.memory.reduction_bytes) + " bytes");
  EXPECT_EQ(run.image(), before);
}

TEST_F(BadStep, WorkspaceNotProvided) {
  run.step.workspace = nullptr;
  expect_refusal("workspace is null");
}

TEST_F(BadStep, StructOfANewerAbi) {
  run.grad_views[1].struct_size += 8;
  expect_refusal("tensor 1 'second'", "grad.struct_size", "newer ABI");
}

TEST_F(BadStep, StepCounterMissingOrWrong) {
  run.step.step = nullptr;
  expect_refusal("step is null", "1 or 2 counters");
  for (const double bad : {-1.0, 0.5, 1e300, std::numeric_limits<double>::infinity(), 0x1p53}) {
    double count = bad;
    const TensorView view(&count);
    run.step.step = &view;
    expect_refusal("step[0] is", "whole number");
  }
  float full = 0x1p24F;  // adding one changes nothing
  const TensorView view(&full);
  run.step.step = &view;
  expect_refusal("step[0] is 1.67772e+07", "whole number");
  int64_t counts[3] = {0, 0, 0};
  const int64_t three = 3;
  const TensorView other(counts, {&three, 1});
  run.step.step = &other;
  expect_refusal("step has shape [3], expected [1 or 2]");
  run.counter_view.dtype = CAME_DTYPE_BF16;
  run.step.step = &run.counter_view;
  expect_refusal("step is bf16, expected i64 or f32 or f64");
}

TEST_F(BadStep, LearningRateOutOfRange) {
  for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    double lr = bad;
    const TensorView view(&lr);
    run.step.lr = &view;
    expect_refusal("lr of group 0 is", ">= 0");
  }
}

TEST_F(BadStep, LearningRatesOfAnotherNumberOfGroups) {
  double lrs[2] = {1, 1};
  const int64_t two = 2;
  const TensorView view(lrs, {&two, 1});
  run.step.lr = &view;
  expect_refusal("lr has shape [2], expected [1]");
}

TEST_F(BadStep, GradScaleOutOfRange) {
  double scale = 0;
  const TensorView view(&scale);
  run.step.grad_scale = &view;
  expect_refusal("grad_scale is 0", "> 0");
}

TEST_F(BadStep, PhaseOutOfRange) {
  const Bytes before = run.image();
  expect_error([&] { run.run_phase(3); }, "phase: 3 given, expected 0 to 2");
  expect_error([&] { run.run_phase(-1); }, "phase: -1 given");
  EXPECT_EQ(run.image(), before);
}

// ---- Plans

void expect_no_plan(const std::function<void(TensorSpec&)>& change, const std::vector<std::string>& parts) {
  TensorSpec spec = spec_of({3, 4}, DType::f32);
  change(spec);
  for (const std::string& part : parts) {
    expect_error([&] { Plan({Options::came()}, {spec_of({2}), spec}); }, "tensor 1 'w'", part);
  }
}

TEST(BadPlan, NegativeSize) {
  expect_no_plan([](TensorSpec& s) { s.shape = {3, -4}; }, {"shape[1] is -4"});
}

TEST(BadPlan, MoreElementsThanInt64) {
  const int64_t big = int64_t{1} << 32;
  expect_no_plan([&](TensorSpec& s) { s.shape = {big, big}; }, {"[4294967296, 4294967296]", "int64"});
  expect_no_plan([&](TensorSpec& s) { s.shape = {0, big, big}; }, {"int64"});
}

TEST(BadPlan, MoreInAllThanInt64) {
  const int64_t large = (int64_t{1} << 58) - 1;
  const auto expect_overflow = [](const std::vector<TensorSpec>& specs) {
    expect_error([&] { Plan({Options::came()}, specs); }, "'w'", "beyond int64");
  };
  // Each tensor alone can be counted; states, parameters or slots of all cannot.
  expect_overflow(std::vector<TensorSpec>(20, spec_of({large}, DType::f32)));
  expect_overflow(std::vector<TensorSpec>(5, spec_of({large}, DType::f32)));  // the state alone: 8 bytes an element
  TensorSpec sharded = spec_of({large, 0}, DType::f32);
  sharded.shard = Shard{3, {0, 0}, {0, 0}};
  expect_overflow(std::vector<TensorSpec>(20, sharded));
}

TEST(BadPlan, MoreTilesThanAnyMachineWants) {
  Options o = Options::came();
  o.view = CAME_VIEW_LAST_TWO;
  expect_error([&] { Plan({o}, {spec_of({int64_t{1} << 24, 2, 2100}, DType::f32)}); }, "'w'", "16777216 tiles");
}

TEST(BadPlan, EpsilonThatStatisticsCannotHold) {
  Options o = Options::came();
  o.eps1 = 1e-37;
  expect_error([&] { Plan({o}, {spec_of({2, 2}, DType::f32)}); }, "'w'", "eps1 is 1e-37", "f32");
  EXPECT_NO_THROW(Plan({o}, {spec_of({2, 2}, DType::f64)}));
  o = Options::came();
  o.eps2 = 1e-35;
  expect_error([&] { Plan({o}, {spec_of({2, 2}, DType::bf16)}); }, "'w'", "eps2 is 1e-35", "bf16");
}

TEST(BadPlan, TensorsThatWouldRoundAlike) {
  Options o = Options::came();
  o.stochastic_rounding = 1;
  TensorSpec second = spec_of({2}, DType::bf16);
  second.id = 7;
  EXPECT_NO_THROW(Plan({o}, {spec_of({2}), spec_of({2})}));  // nothing here is rounded to 16 bits
  expect_error([&] { Plan({o}, {spec_of({2}), second, second}); }, "tensor 2 'w'", "id is 7 as that of tensor 1 'w'");
  EXPECT_NO_THROW(Plan({o}, {spec_of({2}), second}));
}

TEST(BadPlan, DeviceIndex) {
  expect_error([] { Plan({Options::came()}, {}, Backend::reference, 1); }, "device_index: 1 given, expected 0");
}

TEST(BadPlan, ElementTypes) {
  expect_no_plan([](TensorSpec& s) { s.dtype = DType::i64; }, {"dtype is i64", "f64, f32, bf16 or f16"});
  expect_no_plan([](TensorSpec& s) { s.grad_dtype = DType::i64; }, {"grad_dtype is i64"});
  expect_no_plan([](TensorSpec& s) { s.dtype = static_cast<DType>(99); }, {"dtype is unknown (99)"});
}

TEST(BadPlan, Group) {
  expect_no_plan([](TensorSpec& s) { s.group = 1; }, {"group is 1, expected 0 to 0"});
  expect_error([] { Plan({}, {spec_of({2})}); }, "groups: none given");
  expect_error([] { Plan({Options::came(), Options::adam()}, {spec_of({2})}); }, "group 1", "adam", "came");
}

TEST(BadPlan, OptionOutOfRange) {
  Options o = Options::came();
  o.beta2 = 1;
  expect_error([&] { Plan({Options::came(), o}, {spec_of({2})}); }, "group 1", "beta2 is 1", "[0, 1)");
}

TEST(BadPlan, MomentumWiderThanTheParameter) {
  Options o = Options::came();
  o.momentum_dtype = CAME_DTYPE_F64;
  expect_error([&] { Plan({o}, {spec_of({2}, DType::f32)}); }, "tensor 0 'w'", "momentum_dtype is f64");
}

TEST(BadPlan, Shards) {
  expect_no_plan([](TensorSpec& s) { s.shard = Shard{1, {2, 0}, {2, 4}}; }, {"shard of dimension 0", "[0, 3)"});
  expect_no_plan([](TensorSpec& s) { s.shard = Shard{1, {-1, 0}, {2, 4}}; }, {"shard of dimension 0"});
  expect_no_plan([](TensorSpec& s) { s.shard = Shard{1, {0, 0}, {2, 3}}; }, {"3 of 4 in dimension 1"});
  expect_no_plan([](TensorSpec& s) { s.shard = Shard{4, {0, 0}, {3, 4}}; }, {"split_dims is 4"});
  expect_no_plan([](TensorSpec& s) { s.shard = Shard{1, {0, 0}, {2, 4}, -1}; }, {"reduce_group is -1"});
  TensorSpec spec = spec_of({3, 4});
  spec.shard = Shard{1, {0}, {2}};
  expect_error([&] { Plan({Options::came()}, {spec}); }, "'w'", "1 offsets and 1 extents, expected 2");
}

TEST(BadPlan, Backends) {
#ifndef CAME_TEST_CUDA
  expect_error([] { Plan({Options::came()}, {spec_of({2})}, Backend::cuda); }, "backend: cuda", "without CUDA");
#endif
  expect_error([] { Plan({Options::came()}, {spec_of({2})}, static_cast<Backend>(9)); }, "backend: 9 given");
}

}  // namespace
}  // namespace came::test
