// Nothing allocates in a step: every operator new of this program counts.
#include <cstdlib>
#include <new>

#include "support.hpp"

namespace {
thread_local int64_t allocations = 0;

void* counted(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace came::test {
namespace {

TEST(Allocation, NothingAllocatesInAStep) {
  for (const std::string& word : all_words()) {
    Options o(word);
    o.cautious = o.stochastic_rounding = 1;
    o.max_grad_norm = 1;
    if (has_second_moment(word)) o.second_moment_dtype = CAME_DTYPE_I8;
    std::vector<TensorSpec> specs{spec_of({5, 7}, DType::bf16), spec_of({2, 3, 4}, DType::f32), spec_of({9})};
    for (size_t k = 0; k < specs.size(); ++k) specs[k].id = k;
    Trial run({o}, specs);
    run.fill_params(1);
    run.fill_grads(2);
    std::vector<Options> now{o};
    now[0].weight_decay = 0.3;
    run.step.set_options(now);
    run.upload();
    (void)run.memory_step();  // the views of the copies
    const int64_t before = allocations;
    run.launch();
    const int64_t during = allocations - before;
    run.download();
    EXPECT_EQ(during, 0) << word;
  }
  const int64_t before = allocations;
  EXPECT_FALSE(error_of([] { Options("none"); }).empty());
  EXPECT_GT(allocations, before) << "the counter does not count";
}

TEST(Allocation, NothingAllocatesInAStepOfTheOptimizer) {
  std::vector<float> w(35, 1);
  std::vector<float> g(35, 1);
  const std::vector<int64_t> shape{5, 7};
  Optimizer optimizer(Options::came(), {{"w", {w.data(), shape}, {g.data(), shape}}});
  const int64_t before = allocations;
  optimizer.step();
  optimizer.step(2.0, false);
  const int64_t during = allocations - before;
  EXPECT_EQ(during, 0);
}

}  // namespace
}  // namespace came::test
