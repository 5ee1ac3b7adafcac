// Matrices that are resident during a step of CAME: near the reference, and the same bits whether their blocks run
// side by side or one launch after the other, aligned or not, together or one by one.  CudaBits has graphs and scalars.
#include "cuda/resident.hpp"

#include "gpu/cuda_support.hpp"
#include "gpu/near_reference.hpp"

namespace came::test {
namespace {

/// Rows of one, two and four parts, last pieces that are short, widths that leave threads without columns, more
/// waves than teams, and two that all blocks take together, one of them in several turns.
std::vector<TensorSpec> specs() {
  std::vector<TensorSpec> list;
  for (const Sizes& shape : std::vector<Sizes>{{700, 1024},
                                               {300, 768},
                                               {515, 2048},
                                               {290, 4096},
                                               {261, 3072},
                                               {1025, 516},
                                               {4096, 1024},
                                               {1024, 1024},
                                               {1024, 3076},
                                               {4129, 1024},
                                               {9000, 1024}}) {
    list.push_back(spec_of(shape, DType::f32));
    list.back().id = list.size();
  }
  return list;
}

Options options() {
  Options o("came");
  o.lr = rate_of("came");
  o.weight_decay = 0.01;
  return o;
}

/// Has the device room for all blocks at once?
bool has_room() {
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0));
  return device.multiProcessorCount >= cuda::kMostPieces && device.sharedMemPerMultiprocessor >= (size_t{228} << 10);
}

const cuda::Residents* residents_of(const Trial& run) {
  return static_cast<const cuda::Tables*>(run.plan.tables.get())->residents.get();
}

TEST(CudaResident, IsHowTheseMatricesAreTaken) {
  Trial run({options()}, specs(), nullptr, core::cuda_backend());
  run.run();
  const cuda::Residents* residents = residents_of(run);
  if (!has_room()) GTEST_SKIP() << "for devices with more multiprocessors and shared memory";
  ASSERT_NE(residents, nullptr);
  EXPECT_EQ(residents->large, 2);
  EXPECT_GE(residents->waves, 4);
  EXPECT_TRUE(residents->side_by_side);
}

TEST(CudaWaves, HaveEveryPieceOnceInBlocksSideBySide) {
  constexpr int32_t kMost = cuda::kMostPieces;
  std::vector<cuda::TensorTable> tensors;
  for (const int32_t pieces : {1, kMost / 2, kMost, 1, kMost - kMost / 2, kMost + 3, kMost / 2, 1}) {
    cuda::TensorTable t{};
    t.rows = pieces * 32;
    t.cols = 1024;
    t.resident = pieces != 1 || tensors.empty() || tensors.size() == 7;
    tensors.push_back(t);
  }
  const auto [all, residents] = cuda::waves_of(tensors);
  EXPECT_EQ(residents.large, 1);
  EXPECT_EQ(residents.waves, 4);  // two that are full, and half a matrix with two small ones, cut in two
  ASSERT_EQ(all.size(), static_cast<size_t>(1 + 4 * kMost));
  std::vector<int32_t> seen(tensors.size(), 0);
  for (size_t k = 1; k < all.size(); ++k) {
    const cuda::PieceTable& piece = all[k];
    if (piece.tensor < 0) continue;
    const auto block =
        static_cast<int32_t>(k - 1) % kMost + static_cast<int32_t>(k - 1) / kMost % cuda::kWavesAtOnce * kMost;
    EXPECT_EQ(piece.index, seen[static_cast<size_t>(piece.tensor)]++);
    EXPECT_EQ(piece.base + piece.index, block);
  }
  for (size_t k = 0; k < tensors.size(); ++k) {
    const bool in_waves = tensors[k].resident && tensors[k].rows <= kMost * 32;
    EXPECT_EQ(seen[k], in_waves ? tensors[k].rows / 32 : 0) << k;
  }
}

TEST(CudaResident, IsNotHowOthersAreTaken) {
  std::vector<TensorSpec> list = {spec_of({300, 1024}, DType::bf16), spec_of({300, 1024}, DType::f64)};
  for (const Sizes& shape : std::vector<Sizes>{{300, 508}, {300, 4100}, {300, 1022}, {2, 300, 512}}) {
    list.push_back(spec_of(shape, DType::f32));
  }
  for (size_t k = 0; k < list.size(); ++k) list[k].id = k;
  Trial run({options()}, list, nullptr, core::cuda_backend());
  run.run();
  EXPECT_EQ(residents_of(run), nullptr);
}

TEST(CudaResident, IsNearTheReference) {
  for (const bool other : {false, true}) {
    Options o = options();
    o.bias_correction = other;
    o.maximize = other;
    o.clip_threshold = other ? 0.3 : 1e3;
    o.max_grad_norm = other ? 10 : 0;
    Pair pair({o}, specs());
    for (int step = 0; step < 3; ++step) pair.step();
  }
}

TEST(CudaResident, IsNearTheReferenceAtOddAddresses) {
  Pair pair({options()}, specs(), Placement::odd);
  for (int step = 0; step < 2; ++step) pair.step();
}

TEST(CudaResident, GivesTheSameBitsPhaseByPhaseAndAtOddAddresses) { expect_same_bits_in_every_way(options(), specs()); }

TEST(CudaResident, GivesTheSameBitsTogetherOrOneByOne) {
  expect_same_bits_together_or_one_by_one(options(), core::cuda_backend(), specs());
}

}  // namespace
}  // namespace came::test
