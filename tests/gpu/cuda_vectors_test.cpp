// Vectors that CAME takes through a step in one launch: near the reference, and the same bits as phase by phase.
#include "cuda/begin.hpp"
#include "cuda/resident.hpp"
#include "cuda/tables.hpp"
#include "gpu/near_reference.hpp"

namespace came::test {
namespace {

/// One element, a few, more than a tile, and numbers that no vector of four divides.
std::vector<TensorSpec> specs() {
  std::vector<TensorSpec> list;
  for (const Sizes& shape : std::vector<Sizes>{{}, {3}, {1024}, {4096}, {4097}, {2050}, {20000}, {30522}, {65536}}) {
    list.push_back(spec_of(shape, DType::f32));
    list.back().id = list.size();
  }
  return list;
}

const cuda::Tables& tables_of(const Trial& run) { return *static_cast<const cuda::Tables*>(run.plan.tables.get()); }

TEST(CudaVectors, AreHowTheseTensorsAreTaken) {
  for (const char* momentum : {"default", "int8", "int4"}) {  // codes are for matrices
    Options o("came");
    o.set("momentum_dtype", momentum);
    Trial run({o}, specs(), nullptr, core::cuda_backend());
    run.run();
    // A block for each, and one for each tile of those that are shared.
    constexpr bool kAll = cuda::kMostSharing >= 16 + 8 + 5 + 2;
    const int64_t shared = kAll ? 5 + 16 + 8 + 5 + 2 : 8 + 5;
    EXPECT_EQ(tables_of(run).vector_count, cuda::has_room(0) ? shared : 9) << momentum;
    for (const auto& launches : tables_of(run).launches) {
      for (const cuda::Launch& launch : launches) EXPECT_TRUE(launch.vectors) << momentum;
    }
  }
}

TEST(CudaVectors, AreNotHowOthersAreTaken) {
  std::vector<TensorSpec> list{spec_of({70000}, DType::f32), spec_of({40, 40}, DType::f32), spec_of({100}, DType::bf16),
                               spec_of({100}, DType::f64)};
  for (size_t k = 0; k < list.size(); ++k) list[k].id = k + 1;
  Options cautious("came");
  cautious.cautious = true;
  Options confident("came");
  confident.confidence_1d = true;
  Trial others({Options("came")}, list, nullptr, core::cuda_backend());
  Trial in_doubt({cautious}, specs(), nullptr, core::cuda_backend());
  Trial without({confident}, specs(), nullptr, core::cuda_backend());
  for (Trial* run : {&others, &in_doubt, &without}) {
    run->run();
    EXPECT_EQ(tables_of(*run).vector_count, 0);
  }
}

TEST(CudaVectors, AreNearTheReference) {
  for (const bool other : {false, true}) {
    Options o("came");
    o.lr = rate_of("came");
    o.weight_decay = other ? 0.01 : 0;
    o.maximize = other;
    o.max_grad_norm = other ? 10 : 0;
    o.clip_threshold = other ? 0.3 : 1.0;
    Pair pair({o}, specs());
    for (int step = 0; step < 3; ++step) pair.step();
  }
}

TEST(CudaVectors, GiveTheSameBitsPhaseByPhaseAndAtOddAddresses) {
  for (const Options& o : option_variants("came")) expect_same_bits_in_every_way(o, specs());
}

/// They take the places of the last matrices' blocks as these end.
TEST(CudaVectors, GiveTheSameBitsBesideMatricesThatStay) {
  std::vector<TensorSpec> list = specs();
  for (int k = 0; k < 6; ++k) list.push_back(spec_of({cuda::kMostPieces * 32, 1024}, DType::f32));
  for (size_t k = 0; k < list.size(); ++k) list[k].id = k + 1;
  Trial run({Options("came")}, list, nullptr, core::cuda_backend());
  run.run();
  EXPECT_EQ(tables_of(run).vectors_beside, cuda::has_room(0) && cuda::launches_overlap());
  expect_same_bits_in_every_way(Options("came"), list);
}

/// A step leaves their launches out: what follows in a phase must still wait for the phase before.
TEST(CudaVectors, MayLeadAPhase) {
  std::vector<TensorSpec> wide{spec_of({70, 512}, DType::bf16), spec_of({300, 512}, DType::bf16),
                               spec_of({64}, DType::f32)};
  std::vector<TensorSpec> many(66, spec_of({6, 8}, DType::f32));
  many.push_back(spec_of({64}, DType::f32));
  for (std::vector<TensorSpec>* list : {&wide, &many}) {
    for (size_t k = 0; k < list->size(); ++k) (*list)[k].id = k + 1;
    Trial run({Options("came")}, *list, nullptr, core::cuda_backend());
    run.run();
    for (const auto& launches : tables_of(run).launches) EXPECT_TRUE(launches.empty() || launches[0].vectors);
    expect_same_bits_in_every_way(Options("came"), *list);
  }
}

}  // namespace
}  // namespace came::test
