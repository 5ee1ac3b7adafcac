// Sharded matrices on a GPU: of widths that are taken in strips, and tensors whose ranks form several reduce groups.
#include "cuda/tables.hpp"
#include "gpu/near_reference.hpp"
#include "sharding.hpp"

namespace came::test {
namespace {

/// Some rows of matrices; the last one's tiles are so high that the momentum phase halves them.
std::vector<TensorSpec> wide_shards() {
  const std::vector<std::tuple<Sizes, int64_t, int64_t>> shards{
      {{300, 512}, 37, 163}, {{261, 1024}, 0, 130}, {{40, 2048}, 39, 1}, {{70, 4096}, 5, 41}, {{1100, 512}, 250, 600}};
  std::vector<TensorSpec> list;
  for (const auto& [shape, first, count] : shards) {
    list.push_back(spec_of(shape, DType::bf16));
    list.back().id = list.size();
    list.back().shard = Shard{1, {first, 0}, {count, shape[1]}};
  }
  return list;
}

class CudaSharding : public testing::TestWithParam<DType> {};

TEST_P(CudaSharding, OfMatricesInStripsIsNearTheReference) {
  Options o("came");
  o.momentum_dtype = static_cast<came_dtype>(GetParam());
  for (const Placement placement : {Placement::aligned, Placement::odd}) {
    Pair pair({o}, wide_shards(), placement);
    for (int step = 0; step < 2; ++step) pair.step();
    const auto& tables = *static_cast<const cuda::Tables*>(pair.ours.plan.tables.get());
    for (const core::PhaseKind phase : {core::PhaseKind::statistics, core::PhaseKind::momentum}) {
      for (const cuda::Launch& launch : tables.launches[pair.ours.plan.find(phase)]) {
        EXPECT_EQ(launch.work, cuda::Work::strips);
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<DType>& momentum) {
  constexpr const char* kNames[] = {"f32", "bf16", "int8", "int4"};
  return kNames[momentum.index];
}
INSTANTIATE_TEST_SUITE_P(Momenta, CudaSharding, testing::Values(DType::f32, DType::bf16, DType::i8, DType::i4),
                         name_of);

/// Shards of rows and columns, of a vector, and of a tensor that is taken element by element.
std::vector<TensorSpec> narrow_shards(DType dtype) {
  std::vector<TensorSpec> list;
  for (const auto& [shape, d, first, count] : std::vector<std::tuple<Sizes, size_t, int64_t, int64_t>>{
           {{40, 128}, 1, 20, 64}, {{40, 130}, 0, 7, 21}, {{100}, 0, 13, 48}, {{3, 9, 20}, 0, 1, 2}}) {
    list.push_back(spec_of(shape, dtype));
    list.back().id = list.size();
    Shard shard{uint64_t{1} << d, Sizes(shape.size(), 0), shape};
    shard.offset[d] = first;
    shard.extent[d] = count;
    list.back().shard = shard;
  }
  return list;
}

TEST(CudaShardingVariants, TakeWholeVectorsWhereTheLocalPartAllows) {
  for (const std::string& word : all_words()) {
    Options o(word);
    o.stochastic_rounding = 1;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Placement placement : {Placement::aligned, Placement::odd}) {
        Pair pair({o}, narrow_shards(dtype), placement);
        for (int step = 0; step < 2; ++step) pair.step();
        const auto& routes = static_cast<const cuda::Tables*>(pair.ours.plan.tables.get())->routes;
        const bool f32 = dtype == DType::f32;
        const cuda::Variant vectorised = f32 ? cuda::Variant::f32_f32 : cuda::Variant::bf16_f32;
        // Columns that are split: draws of bf16 need the row of each element.
        EXPECT_EQ(routes[0].variant, f32 ? vectorised : cuda::Variant::any32) << word;
        EXPECT_EQ(routes[2].variant, vectorised) << word;
        EXPECT_EQ(routes[3].variant, vectorised) << word;
      }
    }
  }
}

/// Four ranks in a square: the first two tensors are cut along its rows, reduce group 0, the others along its columns,
/// reduce group 1.  Of the batch, slots keep what the last step left unless they are cleared.  One is not cut.
class CudaReduceGroups : public testing::TestWithParam<std::string> {
 protected:
  static std::vector<TensorSpec> specs(int row, int col) {
    const auto part = [&](const Sizes& shape, size_t d, int64_t point, int which, int group) {
      TensorSpec spec = spec_of(shape, DType::f32);
      if (shape[shape.size() - 1] >= 512) spec.grad_dtype = DType::bf16;  // strips
      if (which >= 0) {
        spec.shard = cut(shape, d, {point, shape[d]})[static_cast<size_t>(which)];
        spec.shard->reduce_group = group;
      }
      return spec;
    };
    std::vector<TensorSpec> list{part({130, 1024}, 0, 50, row, 0), part({67, 40}, 1, 13, row, 0),
                                 part({90, 640}, 0, 64, col, 1),   part({6, 700}, 1, 300, col, 1),
                                 part({3, 66, 64}, 0, 2, col, 1),  part({6, 5}, 0, 0, -1, 0)};
    for (size_t k = 0; k < list.size(); ++k) list[k].id = k;
    return list;
  }
};

TEST_P(CudaReduceGroups, GiveWhatWholeTensorsGive) {
  Options o(GetParam());
  o.max_grad_norm = 10;
  Trial whole({o}, specs(-1, -1), nullptr, core::cuda_backend());
  Ranks ranks;
  std::vector<Trial*> rows[2];
  std::vector<Trial*> cols[2];
  for (int k = 0; k < 4; ++k) {
    ranks.push_back(
        std::make_unique<Trial>(std::vector<Options>{o}, specs(k / 2, k % 2), nullptr, core::cuda_backend()));
    rows[k % 2].push_back(ranks.back().get());
    cols[k / 2].push_back(ranks.back().get());
    start(*ranks.back());
  }
  start(whole);
  std::vector<Buffer> before = whole.params;
  for (uint64_t step = 0; step < 3; ++step) {
    whole.fill_grads(step);
    whole.run();
    for (auto& rank : ranks) rank->fill_grads(step);
    for (int phase = 0; phase < static_cast<int>(ranks[0]->plan.phases.size()); ++phase) {
      for (auto& rank : ranks) rank->run_phase(phase);
      for (int k = 0; k < 2; ++k) {
        all_reduce(rows[k], phase, 0);
        all_reduce(cols[k], phase, 1);
      }
    }
  }
  std::vector<double> moved(before.size(), 0.0);
  whole.for_each_element([&](size_t k, int64_t i, int64_t) {
    const core::Cells old{before[k].data(), DType::f32};
    moved[k] = std::max(moved[k], std::abs(whole.param(k).get(i) - old.get(i)));
  });
  Furthest furthest;
  for (auto& rank : ranks) {
    rank->for_each_element([&](size_t k, int64_t i, int64_t element) {
      // Each of the two is within that of what is exact.
      furthest.add(std::abs(rank->param(k).get(i) - whole.param(k).get(element)), 2 * kWithin * moved[k], k, element);
    });
  }
  EXPECT_LE(furthest.ratio, 1.0) << furthest.apart << " apart, tensor " << furthest.index;
  EXPECT_EQ(ranks[0]->params[0].bytes(), ranks[1]->params[0].bytes());
  EXPECT_EQ(ranks[0]->params[2].bytes(), ranks[2]->params[2].bytes());
}

INSTANTIATE_TEST_SUITE_P(All, CudaReduceGroups, testing::ValuesIn(all_words()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace came::test
