// A step on a device is only enqueued: it waits for nothing, allocates nothing, and uses no stream but its own.
#include <thread>

#include "displacement.hpp"
#include "gpu/cuda_support.hpp"

namespace came::test {
namespace {

using std::chrono::seconds;

class CudaStream : public testing::TestWithParam<std::string> {
 protected:
  /// Enough for every phase, for kernels of every owner and for more than one tile.
  static std::vector<TensorSpec> specs() {
    return in_every_type({{5, 7}, {270, 300}, {2, 65, 66}, {3, 16400}, {40001}, {}});
  }
  static std::vector<Options> variants() {
    const std::vector<Options> all = option_variants(GetParam());
    return {all[0], all[1], all[3]};
  }
  /// A trial with everything on the device, and kernels loaded.
  static std::unique_ptr<Trial> warm(const Options& o) {
    auto run = std::make_unique<Trial>(std::vector<Options>{o}, specs(), nullptr, core::cuda_backend());
    start(*run);
    run->fill_grads(1);
    run->run();
    run->upload();
    return run;
  }
};

TEST_P(CudaStream, AStepReturnsWhileItsStreamIsHeldUp) {
  for (const Options& o : variants()) {
    const std::unique_ptr<Trial> run = warm(o);
    const std::unique_ptr<Trial> expected = warm(o);
    const Stream stream;
    run->step.stream = stream.get();
    {
      HeldUp held(stream.get());
      for (int step = 0; step < 3; ++step) run->launch();
      EXPECT_TRUE(held.holds()) << "the step waited for its stream";
      EXPECT_FALSE(is_idle(stream.get()));
    }
    run->download();
    for (int step = 0; step < 3; ++step) expected->launch();
    expected->download();
    EXPECT_EQ(run->image(), expected->image());
  }
}

TEST_P(CudaStream, AStepUsesItsOwnStreamOnly) {
  for (const Options& o : variants()) {
    const std::unique_ptr<Trial> run = warm(o);
    const Stream stream;
    run->step.stream = stream.get();
    const auto bytes = static_cast<size_t>(run->mirror().arena_bytes());
    void* early = nullptr;
    check(cudaMallocHost(&early, bytes));
    {
      HeldUp held(cudaStreamLegacy);
      run->launch();
      check(cudaMemcpyAsync(early, run->mirror().arena(), bytes, cudaMemcpyDeviceToHost, stream.get()));
      const bool done = holds_within(seconds(5), [&] { return is_idle(stream.get()); });
      EXPECT_TRUE(done && held.holds()) << "the step waits for the default stream";
    }
    // What the default stream held up would come after the copy.
    std::string late(bytes, '\0');
    device::download(late.data(), run->mirror().arena(), static_cast<int64_t>(bytes));
    EXPECT_TRUE(std::memcmp(early, late.data(), bytes) == 0) << "part of the step is on the default stream";
    check(cudaFreeHost(early));
    const Bytes before = run->image();
    run->download();
    EXPECT_NE(run->image(), before);
  }
}

TEST_P(CudaStream, OnePlanServesTwoStreamsAtOnce) {
  constexpr int kSteps = 20;
  for (const Options& o : variants()) {
    const std::unique_ptr<Trial> first = warm(o);
    const std::unique_ptr<Trial> second = warm(o);
    const std::unique_ptr<Trial> expected = warm(o);
    for (int step = 0; step < kSteps; ++step) expected->launch();
    expected->download();
    const Stream streams[2];
    Trial* const runs[2] = {first.get(), second.get()};
    std::vector<std::thread> threads;
    for (size_t k = 0; k < 2; ++k) {
      runs[k]->step.stream = streams[k].get();
      // The memory of each, the plan of the first.
      threads.emplace_back([&first, run = runs[k]] {
        for (int step = 0; step < kSteps; ++step) core::run_step(first->plan, run->memory_step());
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (Trial* run : runs) {
      run->download();
      EXPECT_EQ(run->image(), expected->image());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaStream, testing::ValuesIn(all_words()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace came::test
