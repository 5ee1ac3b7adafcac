// The C interface itself: sizes of structs, null pointers, statuses.
#include "support.hpp"

namespace came::test {
namespace {

void expect_status(came_status given, came_status expected, const std::string& part) {
  EXPECT_EQ(given, expected);
  EXPECT_NE(std::string(came_error_message()).find(part), std::string::npos) << came_error_message();
}

TEST(Abi, StructsHaveTheirPublishedSizes) {
  // Changing one of these is a new CAME_ABI_VERSION.
  EXPECT_EQ(sizeof(came_options), 152U);
  EXPECT_EQ(sizeof(came_tensor), 40U);
  EXPECT_EQ(sizeof(came_tensor_spec), 80U);
  EXPECT_EQ(sizeof(came_state_info), 72U);
  EXPECT_EQ(sizeof(came_matrix_view), 32U);
  EXPECT_EQ(sizeof(came_reduction), 40U);
  EXPECT_EQ(sizeof(came_memory), 64U);
  EXPECT_EQ(sizeof(came_step), 136U);
  EXPECT_EQ(sizeof(came_parameter), 96U);
  EXPECT_EQ(sizeof(came_named_tensor), 64U);
  EXPECT_EQ(came_abi_version(), CAME_ABI_VERSION);
  EXPECT_STREQ(came_version(), CAME_VERSION_STRING);
}

TEST(Abi, StructOfANewerAbiIsRefused) {
  came_options options = CAME_OPTIONS_INIT;
  ASSERT_EQ(came_options_init(&options, CAME_ALGORITHM_CAME), CAME_STATUS_OK);
  options.struct_size += 8;
  expect_status(came_options_init(&options, CAME_ALGORITHM_CAME), CAME_STATUS_ABI_MISMATCH, "newer ABI");
  expect_status(came_options_validate(&options), CAME_STATUS_ABI_MISMATCH, "options.struct_size is 160, expected 152");
  came_plan* plan = nullptr;
  expect_status(came_plan_create(&options, 1, nullptr, 0, CAME_BACKEND_AUTO, 0, &plan), CAME_STATUS_ABI_MISMATCH,
                "newer ABI");
  EXPECT_EQ(plan, nullptr);
  options.struct_size = sizeof options;
  came_tensor_spec spec = CAME_TENSOR_SPEC_INIT;
  spec.struct_size += 8;
  expect_status(came_plan_create(&options, 1, &spec, 1, CAME_BACKEND_AUTO, 0, &plan), CAME_STATUS_ABI_MISMATCH,
                "tensors[0].struct_size");
  ASSERT_EQ(came_plan_create(&options, 1, nullptr, 0, CAME_BACKEND_AUTO, 0, &plan), CAME_STATUS_OK);
  came_step step = CAME_STEP_INIT;
  step.struct_size += 8;
  expect_status(came_plan_step(plan, &step), CAME_STATUS_ABI_MISMATCH, "step.struct_size");
  came_memory memory = CAME_MEMORY_INIT;
  memory.struct_size = 8;
  expect_status(came_plan_memory(plan, &memory), CAME_STATUS_ABI_MISMATCH, "memory.struct_size is 8, expected 64");
  came_plan_destroy(plan);
}

TEST(Abi, NullPointersAreNamed) {
  const came_status invalid = CAME_STATUS_INVALID_ARGUMENT;
  came_options options = CAME_OPTIONS_INIT;
  ASSERT_EQ(came_options_init(&options, CAME_ALGORITHM_CAME), CAME_STATUS_OK);
  came_plan* plan = nullptr;
  came_optimizer* optimizer = nullptr;
  int64_t count = 0;
  expect_status(came_options_init(nullptr, CAME_ALGORITHM_CAME), invalid, "options is null");
  expect_status(came_options_validate(nullptr), invalid, "options is null");
  expect_status(came_options_set(&options, nullptr, "1"), invalid, "name is null");
  expect_status(came_options_set(&options, "lr", nullptr), invalid, "value is null");
  expect_status(came_algorithm_find(nullptr, nullptr), invalid, "name is null");
  expect_status(came_plan_create(nullptr, 1, nullptr, 0, 0, 0, &plan), invalid, "groups is null");
  // Before any memory is taken for so many.
  expect_status(came_plan_create(nullptr, 2147483647, nullptr, 0, 0, 0, &plan), invalid, "groups is null");
  expect_status(came_plan_create(&options, 1, nullptr, 1, 0, 0, &plan), invalid, "tensors is null");
  expect_status(came_plan_create(&options, 1, nullptr, 0, 0, 0, nullptr), invalid, "plan is null");
  expect_status(came_plan_create(&options, -1, nullptr, 0, 0, 0, &plan), invalid, "group_count: -1");
  expect_status(came_plan_create(&options, 1, nullptr, -1, 0, 0, &plan), invalid, "tensor_count: -1");
  expect_status(came_plan_state_count(nullptr, &count), invalid, "plan is null");
  expect_status(came_plan_run_phase(nullptr, 0, nullptr), invalid, "plan is null");
  expect_status(came_plan_step(nullptr, nullptr), invalid, "plan is null");
  expect_status(came_estimate(&options, 1, nullptr, 0, 0, nullptr), invalid, "memory is null");
  expect_status(came_optimizer_create(&options, 1, nullptr, 1, 0, &optimizer), invalid, "parameters is null");
  expect_status(came_optimizer_create(&options, 1, nullptr, 0, 0, nullptr), invalid, "optimizer is null");
  expect_status(came_optimizer_step(nullptr, nullptr, nullptr), invalid, "optimizer is null");
  expect_status(came_optimizer_set_lr(nullptr, 0, 0), invalid, "optimizer is null");
  expect_status(came_nmf_rank1(nullptr, nullptr, nullptr), invalid, "v is null");
  expect_status(came_confidence_update(nullptr, nullptr, 1, nullptr), invalid, "m is null");
  came_plan_destroy(nullptr);
  came_optimizer_destroy(nullptr);
}

TEST(Abi, BadSpecsAreNamed) {
  came_options options = CAME_OPTIONS_INIT;
  ASSERT_EQ(came_options_init(&options, CAME_ALGORITHM_CAME), CAME_STATUS_OK);
  came_plan* plan = nullptr;
  const auto expect_refusal = [&](auto change, const std::string& part) {
    const int64_t shape[2] = {3, 4};
    came_tensor_spec spec = CAME_TENSOR_SPEC_INIT;
    spec.name = "w";
    spec.shape = shape;
    spec.ndim = 2;
    change(spec);
    expect_status(came_plan_create(&options, 1, &spec, 1, 0, 0, &plan), CAME_STATUS_INVALID_ARGUMENT, part);
    EXPECT_EQ(plan, nullptr);
  };
  const int64_t zeros[2] = {0, 0};
  // Refused before the sizes are read: there are only two.
  expect_refusal([](came_tensor_spec& s) { s.ndim = 1000000000; },
                 "tensor 0 'w': ndim is 1000000000, expected 0 to 64");
  expect_refusal([](came_tensor_spec& s) { s.shape = nullptr; }, "tensor 0 'w': shape is null");
  expect_refusal([](came_tensor_spec& s) { s.ndim = -1; }, "tensor 0 'w': ndim is -1, expected 0 to 64");
  expect_refusal([](came_tensor_spec& s) { s.split_dims = 1; }, "tensor 0 'w': shard_offset or shard_extent is null");
  expect_refusal([](came_tensor_spec& s) { s.reserved = 1; }, "tensor 0 'w': reserved is 1, expected 0");
  expect_refusal([&](came_tensor_spec& s) { s.shard_offset = zeros; }, "tensor 0 'w': split_dims is 0 beside a shard");
}

TEST(Abi, IndicesOutOfRangeAreNamed) {
  const Plan plan({Options::came()}, {spec_of({3, 4})});
  expect_error([&] { (void)plan.view(1); }, "tensor: 1 given, expected 0 to 0");
  expect_error([&] { (void)plan.reduction(3); }, "phase: 3 given, expected 0 to 2");
  expect_error([&] { (void)plan.reduction(0, -1); }, "reduce_group: -1 given");
  EXPECT_EQ(plan.reduction(0, 5).count, 0);
  const came_matrix_view view = plan.view(0);
  EXPECT_EQ(view.rows, 3);
  EXPECT_EQ(view.cols, 4);
  EXPECT_EQ(view.factored, 1);
}

TEST(Abi, ErrorsCarryTheirStatus) {
  Options o = Options::came();
  o.view = CAME_VIEW_LAST_TWO;
  try {
    Plan({o}, {spec_of({int64_t{1} << 24, 2, 2100})});  // too many tiles
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::unsupported);
  }
  EXPECT_STREQ(came_status_name(CAME_STATUS_ABI_MISMATCH), "ABI mismatch");
  EXPECT_STREQ(came_status_name(99), "unknown status");
}

}  // namespace
}  // namespace came::test
