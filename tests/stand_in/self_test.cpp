// What stands in for GoogleTest passes what holds, and fails, each by itself, what does not.
#include <gtest/gtest.h>

#include <stdexcept>

namespace {

class Good : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { made = "set up"; }
  std::string made;
};
TEST_P(Good, HasItsParameter) {
  EXPECT_EQ(made, "set up");
  EXPECT_TRUE(GetParam() == "one" || GetParam() == "two");
}
INSTANTIATE_TEST_SUITE_P(All, Good, testing::Values("one", "two"), [](const auto& info) { return info.param; });

class Number : public testing::TestWithParam<int> {};
TEST_P(Number, IsInRange) { EXPECT_LT(GetParam(), 3); }
INSTANTIATE_TEST_SUITE_P(Good, Number, testing::Range(0, 3));
INSTANTIATE_TEST_SUITE_P(Bad, Number, testing::Range(3, 4));

TEST(GoodPlain, Holds) {
  EXPECT_EQ(2, 2.0);
  EXPECT_NE(std::string("a"), "b");
  EXPECT_LE(1, 1);
  EXPECT_GE(1, 1);
  EXPECT_GT(2, 1);
  EXPECT_FALSE(false);
  EXPECT_NEAR(1, 1.1, 0.2);
  EXPECT_FLOAT_EQ(1.0F, 1.0F + 0x1p-23F);
  EXPECT_STREQ("a", "a");
  EXPECT_NO_THROW(static_cast<void>(0));
}
TEST(GoodPlain, AnAssertionLeaves) {
  const auto leaves = [](bool& came_by) {
    ASSERT_EQ(1, 1) << "never said";
    came_by = true;
  };
  bool came_by = false;
  leaves(came_by);
  EXPECT_TRUE(came_by);
}

TEST(Bad, Equal) { EXPECT_EQ(std::vector<int>{1}, std::vector<int>{2}) << "said"; }
TEST(Bad, Named) {
  const std::vector<int> found{1};  // a name that the macros could take for their own
  const std::vector<int>& complaint = found;
  EXPECT_TRUE(found.empty() || complaint.empty());
}
TEST(Bad, NotEqual) { EXPECT_NE(1, 1); }
TEST(Bad, LessOrEqual) { EXPECT_LE(2, 1); }
TEST(Bad, LessOrEqualWithNan) { EXPECT_LE(std::nan(""), 1.0); }
TEST(Bad, Less) { EXPECT_LT(1, 1); }
TEST(Bad, GreaterOrEqual) { EXPECT_GE(0, 1); }
TEST(Bad, Greater) { EXPECT_GT(1, 1); }
TEST(Bad, True) { EXPECT_TRUE(false); }
TEST(Bad, False) { EXPECT_FALSE(true); }
TEST(Bad, Near) { EXPECT_NEAR(1, 2, 0.5); }
TEST(Bad, NearNan) { ASSERT_NEAR(1, std::nan(""), 0.5); }
TEST(Bad, FloatEqual) { EXPECT_FLOAT_EQ(1.0F, 1.00001F); }
TEST(Bad, Text) { EXPECT_STREQ("a", "b"); }
TEST(Bad, NoThrow) { EXPECT_NO_THROW(throw std::runtime_error("thrown")); }
TEST(Bad, Throws) { throw std::runtime_error("thrown"); }
TEST(Bad, Fails) { FAIL() << "on purpose"; }
TEST(Bad, Asserts) {
  ASSERT_TRUE(false);
  std::exit(0);  // not reached, or this would pass
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
