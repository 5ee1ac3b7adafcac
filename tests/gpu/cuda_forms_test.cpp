// How tensors are taken on a GPU beside whole blocks and the chip: matrices of bf16 gradients in strips, and Adam's
// tensors in chunks.  Near the reference in every storage of the momentum, and the same bits in every way.
#include "cuda/tables.hpp"
#include "gpu/cuda_support.hpp"
#include "gpu/near_reference.hpp"

namespace came::test {
namespace {

std::vector<TensorSpec> numbered(std::vector<TensorSpec> list) {
  for (size_t k = 0; k < list.size(); ++k) list[k].id = k;
  return list;
}

/// One strip to a row, and two, four and eight; widths that leave lanes, vectors or strips without columns; more rows
/// than wait in the lanes of a warp, tiles in halves, and tiles that are taller because they are many.
std::vector<TensorSpec> matrices() {
  std::vector<TensorSpec> list;
  for (const Sizes& shape : std::vector<Sizes>{
           {70, 512}, {300, 768}, {261, 1024}, {130, 1500}, {40, 2048}, {41, 3072}, {20, 4096}, {9000, 516}}) {
    list.push_back(spec_of(shape, DType::bf16));
  }
  list.push_back(spec_of({130, 1022}, DType::bf16));  // not by vectors
  list.push_back(spec_of({2, 70, 640}, DType::bf16));
  return numbered(list);
}

/// Around the size of a chunk, with and without whole vectors.
std::vector<TensorSpec> tensors() {
  std::vector<TensorSpec> list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Sizes& shape : std::vector<Sizes>{
             {}, {3}, {1020}, {1023}, {1024}, {1025}, {5000}, {64, 96}, {33, 7}, {9, 128}, {3, 4, 257}}) {
      list.push_back(spec_of(shape, dtype));
    }
  }
  return numbered(list);
}

Options options(const char* word, DType momentum, bool other) {
  Options o(word);
  o.lr = rate_of(word);
  o.weight_decay = 0.01;
  o.momentum_dtype = static_cast<came_dtype>(momentum);
  o.maximize = other;
  o.max_grad_norm = other ? 10 : 0;  // gradients that are scaled
  return o;
}

constexpr DType kMomenta[] = {DType::f32, DType::bf16, DType::i8, DType::i4};

const cuda::Tables& tables_of(const Trial& run) { return *static_cast<const cuda::Tables*>(run.plan.tables.get()); }

int64_t blocks_of(const Trial& run, core::PhaseKind phase, cuda::Work work) {
  int64_t count = 0;
  for (const cuda::Launch& launch : tables_of(run).launches[run.plan.find(phase)]) {
    count += launch.work == work ? launch.count : 0;
  }
  return count;
}

TEST(CudaStrips, AreHowTheseMatricesAreTaken) {
  Trial run({options("came", DType::bf16, false)}, matrices(), nullptr, core::cuda_backend());
  run.run();
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0));
  if (device.sharedMemPerMultiprocessor < (size_t{160} << 10)) GTEST_SKIP() << "for devices with more shared memory";
  for (const core::PhaseKind phase : {core::PhaseKind::statistics, core::PhaseKind::momentum}) {
    EXPECT_GT(blocks_of(run, phase, cuda::Work::strips), 0);
    EXPECT_EQ(blocks_of(run, phase, cuda::Work::parts), 0);
  }
}

TEST(CudaStrips, AreNotHowOthersAreTaken) {
  Trial run({options("came", DType::bf16, false)},
            numbered({spec_of({300, 508}, DType::bf16), spec_of({300, 4100}, DType::bf16), spec_of({300, 512})}),
            nullptr, core::cuda_backend());
  run.run();
  EXPECT_EQ(blocks_of(run, core::PhaseKind::statistics, cuda::Work::strips), 0);
}

class CudaForms : public testing::TestWithParam<DType> {};

TEST_P(CudaForms, OfMatricesAreNearTheReference) {
  for (const bool other : {false, true}) {
    Pair pair({options("came", GetParam(), other)}, matrices());
    for (int step = 0; step < 3; ++step) pair.step();
  }
}
// In the first step nothing is left of old averages: a row that is not there must not weigh anything.
TEST_P(CudaForms, OfMatricesAreClippedFromTheFirstStepOn) {
  Options o = options("adafactor", GetParam(), false);
  o.beta1 = 0.9;
  o.beta2_decay = -0.8;
  o.relative_step = o.scale_parameter = 0;
  o.clip_threshold = 0.1;
  Pair pair({o}, matrices());
  for (int step = 0; step < 2; ++step) pair.step();
}
TEST_P(CudaForms, OfMatricesAreNearTheReferenceAtOddAddresses) {
  Pair pair({options("came", GetParam(), true)}, matrices(), Placement::odd);
  for (int step = 0; step < 2; ++step) pair.step();
}
TEST_P(CudaForms, OfMatricesGiveTheSameBits) {
  Options o = options("came", GetParam(), false);
  expect_same_bits_in_every_way(o, matrices());
  expect_same_bits_together_or_one_by_one(o, core::cuda_backend(), matrices());
  o.stochastic_rounding = 1;
  expect_same_bits_in_every_way(o, matrices());
}

TEST_P(CudaForms, OfChunksAreNearTheReference) {
  for (const char* word : {"adam", "adamw"}) {
    for (const bool other : {false, true}) {
      Pair pair({options(word, GetParam(), other)}, tensors());
      for (int step = 0; step < 3; ++step) pair.step();
    }
  }
}
TEST_P(CudaForms, OfChunksAreNearTheReferenceAtOddAddresses) {
  Pair pair({options("adamw", GetParam(), true)}, tensors(), Placement::odd);
  for (int step = 0; step < 2; ++step) pair.step();
}
TEST_P(CudaForms, OfChunksGiveTheSameBits) {
  Options o = options("adamw", GetParam(), false);
  expect_same_bits_in_every_way(o, tensors());
  expect_same_bits_together_or_one_by_one(o, core::cuda_backend(), tensors());
  o.stochastic_rounding = 1;
  expect_same_bits_in_every_way(o, tensors());
}
std::string name_of(const testing::TestParamInfo<DType>& momentum) {
  constexpr const char* kNames[] = {"f32", "bf16", "int8", "int4"};
  return kNames[momentum.index];
}
INSTANTIATE_TEST_SUITE_P(Momenta, CudaForms, testing::ValuesIn(kMomenta), name_of);

TEST(CudaChunks, AreHowAdamTakesWhatItCan) {
  const auto blocks = [](Options o, DType dtype, cuda::Work work) {
    Trial run({o}, {spec_of({2050}, dtype)}, nullptr, core::cuda_backend());
    run.run();
    return blocks_of(run, core::PhaseKind::apply, work);
  };
  Options o = options("adamw", DType::automatic, false);
  EXPECT_EQ(blocks(o, DType::f32, cuda::Work::chunks), 3);
  EXPECT_EQ(blocks(o, DType::f32, cuda::Work::parts), 0);
  EXPECT_EQ(blocks(o, DType::f64, cuda::Work::chunks), 0);
  o.cautious = 1;
  EXPECT_EQ(blocks(o, DType::f32, cuda::Work::chunks), 0);
}

}  // namespace
}  // namespace came::test
