// Tensors of all sizes on the CUDA backend, three steps beside the reference: many, wide, tall, tiny, none.
#include "gpu/near_reference.hpp"

namespace came::test {
namespace {

class CudaShapes : public testing::TestWithParam<std::string> {
 protected:
  static void expect_close(const std::vector<Sizes>& shapes, DType dtype, int steps = 3,
                           Placement placement = Placement::aligned) {
    std::vector<TensorSpec> specs;
    for (const Sizes& shape : shapes) {
      specs.push_back(spec_of(shape, dtype));
      specs.back().id = specs.size();
    }
    Options o(GetParam());
    o.lr = rate_of(GetParam());
    Pair pair({o}, specs, placement);
    for (int step = 0; step < steps; ++step) pair.step();
  }
};

// Far more than the arguments of one kernel can name.
TEST_P(CudaShapes, ManyTensors) {
  const std::vector<Sizes> kinds{{64, 64}, {7, 5, 3}, {33}, {5, 1}, {}, {1, 9}, {3, 67}};
  std::vector<Sizes> shapes;
  for (size_t k = 0; k < 1500; ++k) shapes.push_back(kinds[k % kinds.size()]);
  expect_close(shapes, DType::f32);
}

TEST_P(CudaShapes, TinyAndEmpty) {
  const std::vector<Sizes> shapes{{1, 1}, {0},    {},     {0, 4},    {3, 0, 2},   {1},
                                  {4, 0}, {2, 1}, {1, 2}, {7, 5, 3}, {5, 3, 3, 3}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) expect_close(shapes, dtype);
}

TEST_P(CudaShapes, NothingButEmptyTensors) {
  Trial none({Options(GetParam())}, {}, nullptr, core::cuda_backend());
  EXPECT_NO_THROW(none.run());
  Trial empty({Options(GetParam())}, {spec_of({0}), spec_of({0, 4})}, nullptr, core::cuda_backend());
  EXPECT_NO_THROW(empty.run());
  EXPECT_EQ(empty.counters, (std::vector<int64_t>{1, 1}));
}

TEST_P(CudaShapes, WiderThan100000Columns) { expect_close({{3, 100001}, {1, 131072}, {100003}}, DType::f32); }

TEST_P(CudaShapes, OneColumnAnd20000Rows) { expect_close({{20000, 1}, {20001, 2}}, DType::f32); }

TEST_P(CudaShapes, BatchesOfMatrices) {
  expect_close({{3, 300, 130}, {7, 5, 3}, {40, 64, 3}, {2, 4, 65, 66}, {64, 3, 7, 7}}, DType::f32);
}

TEST_P(CudaShapes, SeveralTilesEachWay) { expect_close({{300, 5000}, {1025, 129}}, DType::f32, 2); }

TEST_P(CudaShapes, OfATransformerInBf16) { expect_close({{256, 11008}}, DType::bf16, 2); }

TEST_P(CudaShapes, OfAConvolution) { expect_close({{96, 512, 3, 3}}, DType::f32, 2); }

TEST_P(CudaShapes, OfAnEmbedding) { expect_close({{270, 20000}}, DType::f32, 2); }

TEST_P(CudaShapes, AtOddAddresses) {
  const std::vector<Sizes> shapes{{270, 301}, {3, 16401}, {67, 65}, {63, 65}, {301}, {2, 65, 66}, {}};
  for (const DType dtype : {DType::f32, DType::bf16}) expect_close(shapes, dtype, 3, Placement::odd);
}

TEST(CudaTiles, AreFewUnlessRowsAreWideOrVeryMany) {
  const auto tiles = [](const Sizes& shape) {
    const Options o = Options::came();
    return core::make_plan({o}, {spec_of(shape, DType::f32)}, core::cuda_backend(), 0, nullptr).tensors[0].tiles.count;
  };
  EXPECT_EQ(tiles({1024, 1024}), 4);
  EXPECT_EQ(tiles({4096, 1024}), 16);
  EXPECT_EQ(tiles({512, 512, 3, 3}), 16);
  EXPECT_EQ(tiles({4096, 11008}), 16);
  EXPECT_EQ(tiles({30522, 1024}), 33);
}

INSTANTIATE_TEST_SUITE_P(All, CudaShapes, testing::ValuesIn(all_words()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace came::test
