// A plan is immutable: threads may share one.  Error messages belong to the thread that failed.
#include <thread>

#include "support.hpp"

namespace came::test {
namespace {

TEST(Threads, ShareOnePlan) {
  const Plan plan({Options::came()}, {spec_of({30, 20}), spec_of({50})}, public_backend_under_test());
  const auto train = [&](std::vector<double>& out) {
    Trial memory({Options::came()}, {spec_of({30, 20}), spec_of({50})});
    memory.fill_params(1);
    for (uint64_t step = 0; step < 10; ++step) {
      memory.fill_grads(step);
      plan.step(memory.step);
    }
    for (int64_t i = 0; i < 600; ++i) out.push_back(memory.param(0).get(i));
  };
  std::vector<std::vector<double>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { train(result); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(Threads, KeepTheirOwnErrorMessages) {
  came_options options = CAME_OPTIONS_INIT;
  EXPECT_NE(came_options_init(&options, 77), CAME_STATUS_OK);
  const std::string mine = came_error_message();
  std::thread([] {
    EXPECT_STREQ(came_error_message(), "");
    EXPECT_NE(came_options_init(nullptr, 0), CAME_STATUS_OK);
    EXPECT_NE(std::string(came_error_message()).find("options is null"), std::string::npos);
  }).join();
  EXPECT_EQ(came_error_message(), mine);
}

}  // namespace
}  // namespace came::test
