// What a GPU would have to be in a certain state for: memory that it does not have, launches that it refuses.
#include "displacement.hpp"
#include "gpu/cuda_support.hpp"

namespace came::test {
namespace {

/// The device as it was, once a test is over.
class EmulatedDevice : public testing::Test {
 protected:
  void TearDown() override { emulated() = before_; }

 private:
  Emulated before_ = emulated();
};

/// Small matrices, whose columns a block holds in shared memory: 32 KB of the second one in f64.
std::vector<TensorSpec> small_matrices(DType dtype) { return {spec_of({9, 400}, dtype), spec_of({2, 128}, dtype)}; }

TEST_F(EmulatedDevice, IsAskedForMemoryBeforeTheFirstStepAndAlwaysForAsMuch) {
  emulated().allowed.clear();
  Trial large({Options::came()}, small_matrices(DType::f64), nullptr, core::cuda_backend());
  Trial small({Options::came()}, {spec_of({9, 400}, DType::f64)}, nullptr, core::cuda_backend());
  for (Trial* run : {&large, &small}) {
    start(*run);
    run->fill_grads(1);
    run->upload();
  }
  EXPECT_GT(emulated().questions, 0);
  emulated().questions = 0;
  for (Trial* run : {&large, &small, &large}) run->run();
  EXPECT_EQ(emulated().questions, 0);
  for (const auto& [kernel, sizes] : emulated().allowed) EXPECT_EQ(sizes.size(), 1U);
}

TEST_F(EmulatedDevice, RefusesAPlanWhoseBlocksNeedMoreMemoryThanItHas) {
  emulated().shared_memory = size_t{48} << 10;
  const auto prepare = [](DType dtype) {
    core::Plan plan = core::make_plan({Options::came()}, small_matrices(dtype), core::cuda_backend());
    core::prepare(plan);
  };
  prepare(DType::f32);
  expect_error([&] { prepare(DType::f64); }, "a kernel needs", "bytes of shared memory in a block",
               "the device takes at most 49152");
}

/// Resident matrices, one of them in more pieces than it has room for at once, and others.
std::vector<TensorSpec> resident_specs() {
  std::vector<TensorSpec> list;
  for (const Sizes& shape : std::vector<Sizes>{{270, 512}, {70, 1024}, {230, 1024}, {37, 2048}, {64, 64}, {301}}) {
    list.push_back(spec_of(shape, DType::f32));
    list.back().id = list.size();
  }
  return list;
}

struct Left {
  Bytes image;
  int64_t together;  ///< Launches of blocks side by side.
};
Left left_by_steps(const std::vector<TensorSpec>& specs = resident_specs()) {
  const int64_t before = emulated().together;
  Trial run({Options::came()}, specs, nullptr, core::cuda_backend());
  start(run);
  for (uint64_t step = 0; step < 2; ++step) {
    run.fill_grads(step);
    run.run();
  }
  return {run.image(), emulated().together - before};
}

/// Does the environment leave launches of blocks side by side on?
bool is_wanted() {
  const char* given = std::getenv("CAME_CUDA_RESIDENT");
  return given == nullptr || std::string(given) != "0";
}

TEST_F(EmulatedDevice, WithoutRoomForBlocksSideBySideTakesTheSameStep) {
  const bool wanted = is_wanted();
  const Left usual = left_by_steps();
  EXPECT_EQ(usual.together, wanted ? 4 : 0);  // of the large one and of the others, in each step
  emulated().sms = 1;
  const Left refused = left_by_steps();
  EXPECT_EQ(refused.together, 0);
  EXPECT_EQ(refused.image, usual.image);
  emulated().cooperative = false;
  const Left unable = left_by_steps();
  EXPECT_EQ(unable.together, 0);
  EXPECT_EQ(unable.image, usual.image);
}

/// An SM has four places for blocks that take vectors, and the longest vector has five tiles: blocks that shared it
/// would wait for ever for one that has not begun.
TEST_F(EmulatedDevice, WithoutRoomForBlocksSideBySideSharesNoVectors) {
  std::vector<TensorSpec> vectors{spec_of({20000}, DType::f32), spec_of({301}, DType::f32)};
  std::vector<TensorSpec> with_matrices = resident_specs();
  for (size_t k = 0; k < vectors.size(); ++k) vectors[k].id = with_matrices.size() + 1 + k;
  with_matrices.insert(with_matrices.end(), vectors.begin(), vectors.end());
  for (const auto& specs : {vectors, with_matrices}) {
    emulated().sms = cuda::kMostPieces;
    emulated().cooperative = true;
    const Left usual = left_by_steps(specs);
    // In each of two steps that of vectors, or those of matrices: see above.
    EXPECT_EQ(usual.together, !is_wanted() ? 0 : specs.size() == vectors.size() ? 2 : 4);
    emulated().sms = 1;
    for (const bool cooperative : {true, false}) {
      emulated().cooperative = cooperative;
      const Left alone = left_by_steps(specs);
      EXPECT_EQ(alone.together, 0);
      EXPECT_EQ(alone.image, usual.image);
    }
  }
}

/// Tensors of every kind of kernel.
std::vector<TensorSpec> specs_of_all_kinds() {
  std::vector<TensorSpec> list = resident_specs();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Sizes& shape : std::vector<Sizes>{{67, 128}, {2, 33, 64}, {20, 512}, {1028}, {9}, {3, 16400}}) {
      list.push_back(spec_of(shape, dtype));
      list.back().id = list.size();
    }
  }
  return list;
}

/// What three steps leave, whole or phase by phase, and how often each kernel was launched.
Bytes bytes_at(Placement placement, const Options& o, bool by_phases, std::map<const void*, int64_t>& launched) {
  Trial run({o}, specs_of_all_kinds(), nullptr, core::cuda_backend());
  run.placement = placement;
  start(run);
  emulated().launched.clear();
  for (uint64_t step = 0; step < 3; ++step) {
    run.fill_grads(step);
    if (!by_phases) run.run();
    const int phases = by_phases ? static_cast<int>(run.plan.phases.size()) : 0;
    for (int phase = 0; phase < phases; ++phase) run.run_phase(phase);
  }
  launched = emulated().launched;
  return run.image();
}

class EmulatedAddresses : public testing::TestWithParam<std::string> {};

TEST_P(EmulatedAddresses, ThatAreNotAlignedSlowNoOtherTensorDownAndChangeNoBits) {
  Options o(GetParam());
  for (const bool other : {false, true}) {
    o.max_grad_norm = other ? 10 : 0;
    if (other && GetParam() != "sm3") o.momentum_dtype = CAME_DTYPE_BF16;
    std::map<const void*, int64_t> aligned;
    std::map<const void*, int64_t> mixed;
    const Bytes expected = bytes_at(Placement::aligned, o, false, aligned);
    EXPECT_EQ(bytes_at(Placement::mixed, o, false, mixed), expected);
    int64_t more = 0;
    for (const auto& [kernel, count] : aligned) EXPECT_GE(mixed[kernel], count);
    for (const auto& [kernel, count] : mixed) more += count - aligned[kernel];
    EXPECT_GT(more, 0);
    EXPECT_EQ(bytes_at(Placement::odd, o, false, mixed), expected);
    EXPECT_EQ(bytes_at(Placement::mixed, o, true, mixed), expected);
  }
}

/// Gradients of another address at every step, as of buckets, and tensors that are not active now and then.
TEST_P(EmulatedAddresses, MayChangeFromStepToStep) {
  const std::vector<TensorSpec> list = specs_of_all_kinds();
  Trial still({Options(GetParam())}, list, nullptr, core::cuda_backend());
  Trial moving({Options(GetParam())}, list, nullptr, core::cuda_backend());
  for (Trial* run : {&still, &moving}) {
    start(*run);
    run->upload();
  }
  for (uint64_t number = 0; number < 5; ++number) {
    std::vector<uint8_t> active(list.size(), 1);
    for (size_t k = 0; k < list.size(); ++k) active[k] = (k + number) % 5 != 0;
    std::vector<std::vector<char>> buckets;
    std::vector<came_tensor> grads;
    for (Trial* run : {&still, &moving}) {
      run->fill_grads(number);
      run->upload_grads();
      came_step step = run->memory_step();
      step.active = active.data();
      for (size_t k = 0; run == &moving && k < list.size(); ++k) {
        const auto bytes = static_cast<size_t>(run->grads[k].size());
        buckets.emplace_back(bytes + 32);
        grads.push_back(run->memory_step().grads[k]);
        const size_t at =
            16 - reinterpret_cast<uintptr_t>(buckets.back().data()) % 16 + ((k + number) % 3 == 0 ? 4 : 0);
        grads.back().data = buckets.back().data() + at;
        std::memcpy(grads.back().data, run->grads[k].data(), bytes);
      }
      if (run == &moving) step.grads = grads.data();
      core::run_step(run->plan, step);
      device::synchronize();
    }
  }
  for (Trial* run : {&still, &moving}) run->download();
  EXPECT_EQ(moving.image(), still.image());
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedAddresses, testing::ValuesIn(all_words()),
                         [](const auto& param) { return param.param; });

/// One plan, two streams, each with memory of its own: the device goes from one to the other between any launches.  It
/// does not within one, so that what two of them share shows where a step takes several: without cooperative ones.
void check_two_streams() {
  constexpr int kSteps = 3;
  const auto make = [] {
    auto run =
        std::make_unique<Trial>(std::vector<Options>{Options::came()}, resident_specs(), nullptr, core::cuda_backend());
    start(*run);
    run->fill_grads(1);
    run->upload();
    return run;
  };
  const auto expected = make();
  for (int step = 0; step < kSteps; ++step) expected->launch();
  expected->download();
  const Stream streams[2];
  const std::unique_ptr<Trial> runs[2] = {make(), make()};
  for (int step = 0; step < kSteps; ++step) {
    for (int k = 0; k < 2; ++k) {
      runs[k]->step.stream = streams[k].get();
      core::run_step(runs[0]->plan, runs[k]->memory_step());
    }
  }
  device::synchronize();
  for (const auto& run : runs) {
    run->download();
    EXPECT_EQ(run->image(), expected->image());
  }
}

TEST_F(EmulatedDevice, ServesTwoStreamsWithResidentMatrices) {
  for (const bool cooperative : {true, false}) {
    emulated().cooperative = cooperative;
    check_two_streams();
  }
}

/// Copies memory: what a caller's own kernel sees of a step before it.
struct Copies {
  static constexpr int kMost = 32;
  const came_tensor* from[kMost];
  char* to[kMost];
  int64_t bytes[kMost];
  int count;
};
void copy_kernel(Copies all) {
  for (int k = static_cast<int>(threadIdx.x); k < all.count; k += static_cast<int>(blockDim.x)) {
    std::memcpy(all.to[k], all.from[k]->data, static_cast<size_t>(all.bytes[k]));
  }
}

/// That a kernel which runs beside another one is not over before that one only shows on a GPU.
TEST_F(EmulatedDevice, LetsAProgrammaticLaunchOfTheCallerBeginOnceAStepHasWritten) {
  std::vector<TensorSpec> specs = in_every_type({{5, 7}, {67, 130}, {301}});
  for (const Sizes& shape : std::vector<Sizes>{{70, 1024}, {64, 64}, {301}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      specs.push_back(spec_of(shape, dtype));
      specs.back().id = specs.size();
    }
  }
  const auto check_steps = [](const std::string& word, const std::vector<TensorSpec>& list) {
    Trial run({Options(word)}, list, nullptr, core::cuda_backend());
    start(run);
    run.fill_grads(1);
    run.upload();
    for (int step = 0; step < 6; ++step) {
      run.launch();
      Copies copies{};
      std::vector<std::vector<char>> seen;
      for (const came_tensor* param = run.memory_step().params; seen.size() < list.size(); ++param) {
        seen.emplace_back(static_cast<size_t>(run.params[seen.size()].size()));
        copies.from[copies.count] = param;
        copies.to[copies.count] = seen.back().data();
        copies.bytes[copies.count++] = run.params[seen.size() - 1].size();
      }
      cudaLaunchAttribute early{};
      early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      early.val.programmaticStreamSerializationAllowed = 1;
      const cudaLaunchConfig_t config{.gridDim = dim3(1), .blockDim = dim3(32), .attrs = &early, .numAttrs = 1};
      check(cudaLaunchKernelEx(&config, copy_kernel, copies));
      device::synchronize();
      for (int k = 0; k < copies.count; ++k) {
        EXPECT_EQ(std::memcmp(copies.to[k], copies.from[k]->data, static_cast<size_t>(copies.bytes[k])), 0)
            << word << ", parameter " << k << " of step " << step;
      }
    }
  };
  for (const std::string& word : all_words()) check_steps(word, specs);
  // What may come last in a step of CAME, beside vectors: matrices phase by phase, and resident ones in either way.
  check_steps("came", {spec_of({67, 130}, DType::bf16)});
  for (const bool cooperative : {true, false}) {
    emulated().cooperative = cooperative;
    check_steps("came", {spec_of({70, 1024}, DType::f32)});
  }
}

}  // namespace
}  // namespace came::test
