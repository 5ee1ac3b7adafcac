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

/// Matrices that stay on the chip, one of them in more pieces than it has room for at once, and others.
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
Left left_by_steps() {
  const int64_t before = emulated().together;
  Trial run({Options::came()}, resident_specs(), nullptr, core::cuda_backend());
  start(run);
  for (uint64_t step = 0; step < 2; ++step) {
    run.fill_grads(step);
    run.run();
  }
  return {run.image(), emulated().together - before};
}

TEST_F(EmulatedDevice, WithoutRoomForBlocksSideBySideTakesTheSameStep) {
  const char* given = std::getenv("CAME_CUDA_RESIDENT");
  const bool wanted = given == nullptr || std::string(given) != "0";
  const Left usual = left_by_steps();
  EXPECT_EQ(usual.together, wanted ? 4 : 0);  // of the large one and of the others, in each step
  emulated().multiprocessors = 1;
  const Left refused = left_by_steps();
  EXPECT_EQ(refused.together, 0);
  EXPECT_EQ(refused.image, usual.image);
  emulated().cooperative = false;
  const Left unable = left_by_steps();
  EXPECT_EQ(unable.together, 0);
  EXPECT_EQ(unable.image, usual.image);
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
  check_steps("came", {spec_of({70, 1024}, DType::f32)});
}

}  // namespace
}  // namespace came::test
