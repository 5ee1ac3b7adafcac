// Random input through the C interface, most of it wrong: every call answers with a status.  Pointers are real or null;
// everything else is anything.  What a defect here does, the sanitizers show.
#include <array>
#include <limits>

#include "support.hpp"

namespace came::test {
namespace {

class Fuzzer {
 public:
  explicit Fuzzer(uint64_t seed) : engine_(seed) {}

  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }

  /// Mostly small and sound, sometimes at the edges.
  int64_t size() {
    constexpr std::array<int64_t, 8> kEdges{-1,
                                            0,
                                            4097,
                                            int64_t{1} << 31,
                                            int64_t{1} << 58,
                                            std::numeric_limits<int64_t>::max(),
                                            std::numeric_limits<int64_t>::min(),
                                            70};
    return one_in(12) ? kEdges[static_cast<size_t>(below(8))] : 1 + below(9);
  }
  int32_t number(int32_t sound) {
    constexpr std::array<int32_t, 5> kEdges{-1, 7, 65, 1000000000, std::numeric_limits<int32_t>::min()};
    return one_in(15) ? kEdges[static_cast<size_t>(below(5))] : sound;
  }
  double real(double sound) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    constexpr std::array<double, 6> kEdges{0, -1, 1e-300, 1e300, kInf, std::numeric_limits<double>::quiet_NaN()};
    return one_in(30) ? kEdges[static_cast<size_t>(below(6))] : sound;
  }

  came_options options(came_algorithm algorithm) {
    came_options o = CAME_OPTIONS_INIT;
    EXPECT_EQ(came_options_init(&o, algorithm), CAME_STATUS_OK);
    for (double* field : {&o.lr, &o.beta1, &o.beta2, &o.beta3, &o.eps1, &o.clip_threshold, &o.max_grad_norm}) {
      *field = real(*field);
    }
    for (int32_t* flag :
         {&o.cautious, &o.stochastic_rounding, &o.maximize, &o.view, &o.momentum_dtype, &o.second_moment_dtype}) {
      *flag = number(*flag);
    }
    if (one_in(4)) o.momentum_dtype = CAME_DTYPE_I8;
    if (algorithm >= CAME_ALGORITHM_ADAM && algorithm <= CAME_ALGORITHM_LAMB && one_in(3)) {
      o.second_moment_dtype = CAME_DTYPE_I8;
    }
    if (one_in(40)) o.struct_size = static_cast<uint32_t>(below(400));
    return o;
  }

  came_tensor_spec spec(std::array<int64_t, 192>& sizes, int32_t groups) {
    came_tensor_spec s = CAME_TENSOR_SPEC_INIT;
    const auto ndim = static_cast<int32_t>(below(5));
    for (int64_t d = 0; d < 64; ++d) {
      const auto k = static_cast<size_t>(d);
      sizes[k] = size();
      sizes[64 + k] = one_in(8) ? size() : 0;
      sizes[128 + k] = one_in(8) ? size() : sizes[k];
    }
    s.shape = one_in(40) ? nullptr : sizes.data();
    s.ndim = number(ndim);
    s.dtype = number(static_cast<int32_t>(1 + below(4)));
    s.grad_dtype = number(static_cast<int32_t>(below(5)));
    s.group = number(static_cast<int32_t>(below(groups)));
    s.id = static_cast<uint64_t>(below(100));
    s.reduce_group = number(0);
    s.matrix_group = number(1);
    if (one_in(3)) {
      s.split_dims = one_in(20) ? engine_() : static_cast<uint64_t>(below(1 << ndim));
      s.shard_offset = one_in(40) ? nullptr : &sizes[64];
      s.shard_extent = one_in(40) ? nullptr : &sizes[128];
    }
    return s;
  }

  /// Spoils one field of a tensor now and then.
  void spoil(came_tensor& t) {
    if (!one_in(60)) return;
    switch (below(6)) {
      case 0:
        t.data = nullptr;
        break;
      case 1:
        t.ndim = number(1000000000);
        break;
      case 2:
        t.dtype = number(9);
        break;
      case 3:
        t.data = static_cast<char*>(t.data) + 1;
        break;
      case 4:
        t.struct_size = 8;
        break;
      default:
        t.device_index = 3;
    }
  }

 private:
  std::mt19937_64 engine_;
};

/// Steps a plan on memory of the right size with a few things spoilt.
void step_plan(Fuzzer& fuzzer, const came_plan* plan, const std::vector<came_tensor_spec>& specs) {
  came_memory memory = CAME_MEMORY_INIT;
  ASSERT_EQ(came_plan_memory(plan, &memory), CAME_STATUS_OK);
  const int64_t total = memory.peak_bytes + memory.parameter_bytes + memory.gradient_bytes;
  ASSERT_GE(memory.peak_bytes, 0);
  if (memory.peak_bytes > (1 << 20) || total > (1 << 20)) return;

  came_step step = CAME_STEP_INIT;
  std::vector<Buffer> buffers;
  std::vector<came_tensor> tensors[3];
  buffers.reserve(100);
  const auto add = [&](std::vector<came_tensor>& list, const int64_t* shape, int32_t ndim, came_dtype dtype) {
    int64_t bytes = 8;
    for (int32_t d = 0; d < ndim; ++d) bytes *= shape[d];
    buffers.emplace_back(bytes);
    list.push_back(came_tensor_make(buffers.back().data(), dtype, shape, ndim));
    fuzzer.spoil(list.back());
  };
  for (const came_tensor_spec& s : specs) {
    const int64_t* held = s.split_dims != 0 ? s.shard_extent : s.shape;
    add(tensors[0], held, s.ndim, s.dtype);
    add(tensors[1], held, s.ndim, s.grad_dtype == CAME_DTYPE_DEFAULT ? s.dtype : s.grad_dtype);
  }
  ASSERT_EQ(came_plan_state_count(plan, &step.state_count), CAME_STATUS_OK);
  for (int64_t k = 0; k < step.state_count; ++k) {
    came_state_info info = CAME_STATE_INFO_INIT;
    ASSERT_EQ(came_plan_state(plan, k, &info), CAME_STATUS_OK);
    add(tensors[2], info.shape, info.ndim, info.dtype);
  }
  Buffer workspace(memory.workspace_bytes);
  Buffer reductions(memory.reduction_bytes);
  double count = fuzzer.real(0);
  double scale = fuzzer.real(1);
  const TensorView counter(&count);
  const TensorView grad_scale(&scale);
  step.tensor_count = fuzzer.one_in(40) ? fuzzer.size() : static_cast<int64_t>(specs.size());
  step.params = tensors[0].data();
  step.grads = tensors[1].data();
  step.states = tensors[2].data();
  step.step = fuzzer.one_in(40) ? nullptr : &counter;
  step.grad_scale = &grad_scale;
  step.workspace = workspace.data();
  step.workspace_bytes = fuzzer.one_in(40) ? fuzzer.size() : memory.workspace_bytes;
  step.reductions = reductions.data();
  step.reduction_bytes = fuzzer.one_in(40) ? fuzzer.size() : memory.reduction_bytes;
  EXPECT_LE(came_plan_step(plan, &step), CAME_STATUS_ABI_MISMATCH);
  for (int32_t phase = -1; phase < 6; ++phase) {
    EXPECT_LE(came_plan_run_phase(plan, phase, &step), CAME_STATUS_ABI_MISMATCH);
  }
}

TEST(Fuzz, EveryCallOfTheCInterfaceAnswersWithAStatus) {
  int made = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Fuzzer fuzzer(seed);
    const auto algorithm = static_cast<came_algorithm>(fuzzer.below(6));
    std::vector<came_options> groups;
    for (int64_t k = 0; k <= fuzzer.below(3); ++k) groups.push_back(fuzzer.options(algorithm));
    std::vector<std::array<int64_t, 192>> sizes(5);
    std::vector<came_tensor_spec> specs;
    for (size_t k = 0; k < static_cast<size_t>(fuzzer.below(5)); ++k) {
      specs.push_back(fuzzer.spec(sizes[k], static_cast<int32_t>(groups.size())));
    }
    came_plan* plan = nullptr;
    const came_status status =
        came_plan_create(groups.data(), static_cast<int32_t>(groups.size()), specs.data(),
                         static_cast<int64_t>(specs.size()), fuzzer.number(0), fuzzer.number(0), &plan);
    EXPECT_LE(status, CAME_STATUS_ABI_MISMATCH) << came_error_message();
    if (status == CAME_STATUS_OK) {
      ++made;
      step_plan(fuzzer, plan, specs);
      came_plan_destroy(plan);
    } else {
      EXPECT_NE(std::string(came_error_message()), "");
      EXPECT_EQ(plan, nullptr);
    }
  }
  EXPECT_GT(made, 200) << "too little of the input is sound";
}

}  // namespace
}  // namespace came::test
