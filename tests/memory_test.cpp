// Memory of a step on the CPU backend: bounds on what it holds, and that it touches nothing else.
#include <sys/mman.h>

#include <fstream>

#include "../bench/shapes.hpp"
#include "support.hpp"

namespace came::test {
namespace {

std::vector<TensorSpec> specs_of(const bench::Shapes& shapes) {
  std::vector<TensorSpec> specs;
  for (const auto& shape : shapes) specs.push_back(spec_of(shape, DType::f32));
  return specs;
}

double per_parameter(const came_memory& memory, int64_t bytes) {
  return 4 * static_cast<double>(bytes) / static_cast<double>(memory.parameter_bytes);
}

TEST(Memory, StateOfBertLargeIsAsPromised) {
  const std::vector<TensorSpec> specs = specs_of(bench::bert_large());
  const auto state = [&](Options o, came_dtype momentum) {
    o.momentum_dtype = momentum;
    const came_memory memory = estimate({o}, specs);
    return per_parameter(memory, memory.state_bytes);
  };
  EXPECT_EQ(state(Options::adamw(), CAME_DTYPE_DEFAULT), 8);
  EXPECT_LE(state(Options::came(), CAME_DTYPE_DEFAULT), 4.02);
  EXPECT_LE(state(Options::came(), CAME_DTYPE_BF16), 2.02);
  EXPECT_LE(state(Options::came(), CAME_DTYPE_I8), 1.06);
  EXPECT_LE(state(Options::came(), CAME_DTYPE_I4), 0.56);
}

TEST(Memory, StateOfConvolutionsIsAsPromised) {
  const came_memory memory = estimate({Options::came()}, {spec_of({256, 128, 3, 3}, DType::f32)});
  EXPECT_LE(per_parameter(memory, memory.state_bytes), 4.1);
}

TEST(Memory, BuffersOfBertLargeAreAtMostOnePercentOfTheState) {
  const std::vector<TensorSpec> specs = specs_of(bench::bert_large());
  const came_memory memory = estimate({Options::came()}, specs);
  EXPECT_LE(memory.workspace_bytes + memory.reduction_bytes, memory.state_bytes / 100);
}

#ifndef CAME_TEST_SANITIZED  // a sanitizer's shadow grows with the rest

/// What the process holds in memory; page by page, unlike the counters of /proc/self/status, which lag behind.
int64_t resident_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string word;
  int64_t kilobytes = 0;
  while (file >> word) {
    if (word == "Rss:" && file >> kilobytes) return kilobytes * 1024;
  }
  return -1;
}

TEST(Memory, AStepGrowsTheProcessByItsBuffersAlone) {
  for (const std::string& word : all_words()) {
    Trial run({Options(word)}, std::vector<TensorSpec>(8, spec_of({1024, 1024}, DType::f32)), nullptr,
              core::cpu_backend());
    run.run();  // threads and their stacks are there from now on
    const int64_t bytes = run.plan.memory.workspace_bytes;
    // Far more than the step may touch, so that the page after the last one it needs is there to be found untouched.
    const size_t room = static_cast<size_t>(bytes) + (size_t{1} << 22);
    void* fresh = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(fresh, MAP_FAILED);
    run.step.workspace = fresh;
    const int64_t before = resident_bytes();
    ASSERT_GT(before, 0);
    run.run();
    const int64_t growth = resident_bytes() - before;
    // Whole pages, and a few more of the stacks and of the file that is read.
    constexpr int64_t kSlack = 16 * 4096;
    EXPECT_LE(growth, bytes + kSlack) << word;
    EXPECT_GE(growth, bytes - kSlack) << word;
    munmap(fresh, room);
  }
}

#endif

}  // namespace
}  // namespace came::test
