// Every optimizer, option, type of storage and phase in a few small steps beside the reference: little enough to run
// under tools that watch every access (scripts/sanitize_gpu).  So every buffer is an allocation of its own.
#include "gpu/near_reference.hpp"

namespace came::test {
namespace {

constexpr int kSteps = 2;  // the second begins with a state

class CudaSmall : public testing::TestWithParam<std::string> {
 protected:
  static void expect_close(const std::vector<Options>& groups, const std::vector<TensorSpec>& specs,
                           Placement placement) {
    Pair pair(groups, specs, placement);
    for (int step = 0; step < kSteps; ++step) pair.step();
  }
  static std::vector<TensorSpec> specs() {
    return in_every_type({{5, 7}, {67, 65}, {2, 65, 66}, {4, 3, 3, 3}, {261}, {}, {1, 1}, {3, 1}, {0, 4}});
  }
};

TEST_P(CudaSmall, EveryOptionAndStorage) {
  for (const Options& o : option_variants(GetParam())) expect_close({o}, specs(), Placement::apart);
}

TEST_P(CudaSmall, EveryOptionAndStorageAtOddAddresses) {
  for (const Options& o : option_variants(GetParam())) expect_close({o}, specs(), Placement::odd);
}

// Few, wide rows are owned by columns.
TEST_P(CudaSmall, RowsThatAreOwnedByColumns) {
  Options o(GetParam());
  o.momentum_dtype = CAME_DTYPE_BF16;
  expect_close({Options(GetParam())}, {spec_of({2, 16400}, DType::f32)}, Placement::apart);
  expect_close({o}, {spec_of({3, 16385}, DType::bf16)}, Placement::apart);
}

// CAME keeps those of f32 on the chip, one part of a row to a thread, and four; it takes those of bf16 in strips, one
// to a row, and four.
TEST_P(CudaSmall, MatricesOfSomeSize) {
  expect_close({Options(GetParam())},
               {spec_of({270, 1024}, DType::f32), spec_of({257, 3072}, DType::f32), spec_of({70, 512}, DType::bf16),
                spec_of({33, 3076}, DType::bf16)},
               Placement::apart);
}

// Split both ways, over one rank that holds it all: CAME and Adafactor need one phase more.
TEST_P(CudaSmall, EveryPhaseOfShardedTensors) {
  const auto sharded = [](const Sizes& shape, uint64_t split_dims) {
    TensorSpec spec = spec_of(shape, DType::f32);
    spec.shard = Shard{split_dims, Sizes(shape.size(), 0), shape};
    spec.id = split_dims;
    return spec;
  };
  Options o(GetParam());
  o.max_grad_norm = 1;
  o.cautious = 1;
  expect_close({o}, {sharded({67, 65}, 3), sharded({67, 65}, 1), sharded({33, 9}, 2), sharded({3, 65, 66}, 4)},
               Placement::apart);
}

TEST_P(CudaSmall, GroupsWithOptionsOfTheirOwn) {
  Options other(GetParam());
  other.lr = 3e-3;
  other.cautious = other.maximize = 1;
  other.momentum_dtype = CAME_DTYPE_I8;
  std::vector<TensorSpec> list;
  for (int group = 0; group < 2; ++group) {
    for (const Sizes& shape : std::vector<Sizes>{{5, 7}, {67, 130}, {9}}) {
      list.push_back(spec_of(shape, DType::f32, group));
      list.back().id = list.size();
    }
  }
  expect_close({Options(GetParam()), other}, list, Placement::apart);
}

INSTANTIATE_TEST_SUITE_P(All, CudaSmall, testing::ValuesIn(all_words()), [](const auto& param) { return param.param; });

}  // namespace
}  // namespace came::test
