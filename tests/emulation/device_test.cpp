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

}  // namespace
}  // namespace came::test
