// Stands in for GoogleTest on machines that have none and can download nothing, as far as the tests here use it: the
// same macros, filters and sharding.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace testing {

class Test {
 public:
  virtual ~Test() = default;
  virtual void SetUp() {}
  virtual void TearDown() {}
  virtual void TestBody() = 0;
  template <class T>
  static void RecordProperty(const std::string& name, const T& value) {
    std::ostringstream text;
    text << value;
    std::printf("%s: %s\n", name.c_str(), text.str().c_str());
  }
};

template <class T>
class TestWithParam : public Test {
 public:
  using ParamType = T;
  static const T& GetParam() { return *param(); }
  static const T*& param() {
    static const T* current = nullptr;
    return current;
  }
};

template <class T>
struct TestParamInfo {
  T param;
  size_t index;
};

// ---- what a test is ------------------------------------------------------------------------------------------------

struct Case {
  std::string suite, name;
  std::function<std::unique_ptr<Test>()> make;
};
struct State {
  std::vector<Case> cases;
  std::vector<std::function<void()>> expansions;  ///< Of tests with parameters, once all are known.
  bool failed = false, skipped = false;           ///< The one that runs.
  std::string filter = "*";
  bool lists = false, brief = false;
};
inline State& state() {
  static State all;
  return all;
}

template <class Body>
bool add_test(const char* suite, const char* name) {
  state().cases.push_back({suite, name, [] { return std::make_unique<Body>(); }});
  return true;
}

/// Tests of a suite with parameters.
template <class Suite>
std::vector<std::pair<const char*, std::function<std::unique_ptr<Test>()>>>& patterns() {
  static std::vector<std::pair<const char*, std::function<std::unique_ptr<Test>()>>> all;
  return all;
}
template <class Suite, class Body>
bool add_pattern(const char* name) {
  patterns<Suite>().emplace_back(name, [] { return std::make_unique<Body>(); });
  return true;
}
template <class Suite, class Parameters, class Name>
bool instantiate(const char* prefix, const char* suite, const Parameters& parameters, Name name_of) {
  using T = typename Suite::ParamType;
  // They live as long as the program: tests refer to them.
  static std::vector<std::unique_ptr<std::vector<T>>> kept;
  kept.push_back(std::make_unique<std::vector<T>>(parameters));
  const std::vector<T>& all = *kept.back();
  state().expansions.push_back([=, &all] {
    for (const auto& [name, make] : patterns<Suite>()) {
      for (size_t k = 0; k < all.size(); ++k) {
        const std::string full = std::string(name) + "/" + name_of(TestParamInfo<T>{all[k], k});
        state().cases.push_back({std::string(prefix) + "/" + suite, full, [make = make, param = &all[k]] {
                                   Suite::param() = param;
                                   return make();
                                 }});
      }
    }
  });
  return true;
}
template <class Suite, class Parameters>
bool instantiate(const char* prefix, const char* suite, const Parameters& parameters) {
  return instantiate<Suite>(prefix, suite, parameters, [](const auto& info) { return std::to_string(info.index); });
}

template <class... V>
struct ValueList {
  std::tuple<V...> values;
  template <class T>
  operator std::vector<T>() const {
    return std::apply([](const auto&... each) { return std::vector<T>{T(each)...}; }, values);
  }
};
template <class... V>
ValueList<V...> Values(V... values) {
  return {{values...}};
}
template <class C>
auto ValuesIn(const C& values) {
  return std::vector<std::decay_t<decltype(*std::begin(values))>>(std::begin(values), std::end(values));
}
template <class T>
std::vector<T> Range(T begin, T end) {
  std::vector<T> all;
  for (T k = begin; k < end; ++k) all.push_back(k);
  return all;
}

// ---- what is expected ----------------------------------------------------------------------------------------------

template <class T>
void print(std::ostream& out, const T& value) {
  if constexpr (requires { PrintTo(value, &out); }) {
    PrintTo(value, &out);
  } else if constexpr (std::is_same_v<T, std::nullptr_t>) {
    out << "nullptr";
  } else if constexpr (std::is_enum_v<T>) {
    out << static_cast<int64_t>(value);
  } else if constexpr (requires { out << value; }) {
    out.precision(std::numeric_limits<double>::max_digits10);
    out << value;
  } else if constexpr (requires { std::begin(value) != std::end(value); }) {
    const char* between = "{ ";
    for (const auto& each : value) {
      out << std::exchange(between, ", ");
      print(out, each);
    }
    out << " }";
  } else {
    out << sizeof value << " bytes";
  }
}

class Message {
 public:
  template <class T>
  Message& operator<<(const T& value) {
    print(text_, value);
    return *this;
  }
  [[nodiscard]] std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
};

/// Takes what a failed expectation, or a skip, has to say.
struct Report {
  const char* file;
  int line;
  std::string what;
  bool skips = false;
  void operator=(const Message& more) const {
    (skips ? state().skipped : state().failed) = true;
    std::printf("%s:%d: %s\n%s\n%s\n", file, line, skips ? "Skipped" : "Failure", what.c_str(), more.text().c_str());
  }
};

/// Empty if it holds.
using Complaint = std::string;

template <class A, class B, class Holds>
Complaint compare(const char* what, const A& a, const B& b, const Holds& holds) {
  if (holds(a, b)) return {};
  Message message;
  message << "Expected: " << what << ", actual: " << a << " and " << b;
  return message.text();
}
inline Complaint expect(const char* what, bool wanted, bool found) {
  return wanted == found ? Complaint{} : std::string("Expected: ") + what + (wanted ? "" : " to be false");
}
inline Complaint near(const char* what, double a, double b, double distance) {
  return compare(what, a, b, [&](double x, double y) { return std::abs(x - y) <= distance; });
}
inline bool within_four_units(float a, float b) {
  const float unit = std::nextafter(std::fmax(std::abs(a), std::abs(b)), std::numeric_limits<float>::infinity()) -
                     std::fmax(std::abs(a), std::abs(b));
  return a == b || std::abs(a - b) <= 4 * unit;
}
inline bool same_text(const char* a, const char* b) {
  return a == b || (a != nullptr && b != nullptr && std::strcmp(a, b) == 0);
}
template <class F>
Complaint throws_nothing(const char* what, const F& f) {
  try {
    f();
    return {};
  } catch (const std::exception& error) {
    return std::string("Expected: ") + what + " throws nothing, actual: " + error.what();
  }
}

// ---- running -------------------------------------------------------------------------------------------------------

inline bool fits(const char* pattern, const char* name) {
  if (*pattern == '\0') return *name == '\0';
  if (*pattern == '*') return fits(pattern + 1, name) || (*name != '\0' && fits(pattern, name + 1));
  return *name != '\0' && (*pattern == '?' || *pattern == *name) && fits(pattern + 1, name + 1);
}
inline bool fits_any(const std::string& patterns, const std::string& name) {
  for (size_t begin = 0; begin <= patterns.size();) {
    const size_t end = std::min(patterns.find(':', begin), patterns.size());
    if (end > begin && fits(patterns.substr(begin, end - begin).c_str(), name.c_str())) return true;
    begin = end + 1;
  }
  return false;
}
inline bool is_chosen(const std::string& name) {
  const std::string& filter = state().filter;
  const size_t dash = std::min(filter.find('-'), filter.size());
  const std::string wanted = dash == 0 ? "*" : filter.substr(0, dash);
  return fits_any(wanted, name) && (dash == filter.size() || !fits_any(filter.substr(dash + 1), name));
}

inline void InitGoogleTest(int* count, char** arguments) {
  for (int k = 1; k < *count; ++k) {
    const std::string argument = arguments[k];
    const std::string filter = "--gtest_filter=";
    if (argument.rfind(filter, 0) == 0) state().filter = argument.substr(filter.size());
    if (argument == "--gtest_list_tests") state().lists = true;
    if (argument == "--gtest_brief=1") state().brief = true;
  }
}

inline void run(const Case& each) {
  try {
    const std::unique_ptr<Test> test = each.make();
    test->SetUp();
    test->TestBody();
    test->TearDown();
  } catch (const std::exception& error) {
    state().failed = true;
    std::printf("thrown: %s\n", error.what());
  }
}

inline int run_all() {
  State& all = state();
  for (const auto& expand : std::exchange(all.expansions, {})) expand();
  const auto number = [](const char* name, int otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoi(text);
  };
  const int shards = number("GTEST_TOTAL_SHARDS", 1);
  const int shard = number("GTEST_SHARD_INDEX", 0);
  int chosen = 0;
  int passed = 0;
  std::vector<std::string> failed;
  std::string suite;
  for (const Case& each : all.cases) {
    const std::string name = each.suite + "." + each.name;
    if (!is_chosen(name)) continue;
    if (all.lists) {
      if (std::exchange(suite, each.suite) != each.suite) std::printf("%s.\n", each.suite.c_str());
      std::printf("  %s\n", each.name.c_str());
      continue;
    }
    if (chosen++ % shards != shard) continue;
    all.failed = all.skipped = false;
    if (!all.brief) std::printf("[ RUN      ] %s\n", name.c_str());
    run(each);
    if (all.failed) failed.push_back(name);
    passed += all.failed || all.skipped ? 0 : 1;
    const char* verdict = all.failed ? "  FAILED  " : all.skipped ? "  SKIPPED " : "       OK ";
    if (!all.brief || all.failed || all.skipped) std::printf("[%s] %s\n", verdict, name.c_str());
    std::fflush(stdout);
  }
  if (all.lists) return 0;
  std::printf("[  PASSED  ] %d tests.\n", passed);
  if (!failed.empty()) std::printf("[  FAILED  ] %zu tests, listed below:\n", failed.size());
  for (const std::string& name : failed) std::printf("[  FAILED  ] %s\n", name.c_str());
  return failed.empty() ? 0 : 1;
}

}  // namespace testing

inline int RUN_ALL_TESTS() { return testing::run_all(); }

#define CAME_STAND_IN_BODY(suite, name, base) \
  class suite##_##name##_Test : public base { \
   public:                                    \
    void TestBody() override;                 \
  }
#define TEST_F(suite, name)                                                                             \
  CAME_STAND_IN_BODY(suite, name, suite);                                                               \
  static const bool suite##_##name##_added = ::testing::add_test<suite##_##name##_Test>(#suite, #name); \
  void suite##_##name##_Test::TestBody()
#define TEST(suite, name)                                                                               \
  CAME_STAND_IN_BODY(suite, name, ::testing::Test);                                                     \
  static const bool suite##_##name##_added = ::testing::add_test<suite##_##name##_Test>(#suite, #name); \
  void suite##_##name##_Test::TestBody()
#define TEST_P(suite, name)                                                                               \
  CAME_STAND_IN_BODY(suite, name, suite);                                                                 \
  static const bool suite##_##name##_added = ::testing::add_pattern<suite, suite##_##name##_Test>(#name); \
  void suite##_##name##_Test::TestBody()
#define INSTANTIATE_TEST_SUITE_P(prefix, suite, ...) \
  static const bool prefix##_##suite##_made = ::testing::instantiate<suite>(#prefix, #suite, __VA_ARGS__)

// An `else` that follows belongs to none of these.
#define CAME_STAND_IN_CHECK(complaint, fails)                                                                \
  switch (0)                                                                                                 \
  case 0:                                                                                                    \
  default:                                                                                                   \
    if (const ::testing::Complaint came_stand_in_complaint = (complaint); came_stand_in_complaint.empty()) { \
    } else                                                                                                   \
      fails ::testing::Report{__FILE__, __LINE__, came_stand_in_complaint} = ::testing::Message()
#define CAME_STAND_IN_COMPARE(a, b, op, holds, fails) \
  CAME_STAND_IN_CHECK(::testing::compare(#a " " #op " " #b, a, b, std::holds<>()), fails)

#define EXPECT_EQ(a, b) CAME_STAND_IN_COMPARE(a, b, ==, equal_to, )
#define EXPECT_NE(a, b) CAME_STAND_IN_COMPARE(a, b, !=, not_equal_to, )
#define EXPECT_LE(a, b) CAME_STAND_IN_COMPARE(a, b, <=, less_equal, )
#define EXPECT_LT(a, b) CAME_STAND_IN_COMPARE(a, b, <, less, )
#define EXPECT_GE(a, b) CAME_STAND_IN_COMPARE(a, b, >=, greater_equal, )
#define EXPECT_GT(a, b) CAME_STAND_IN_COMPARE(a, b, >, greater, )
#define ASSERT_EQ(a, b) CAME_STAND_IN_COMPARE(a, b, ==, equal_to, return )
#define ASSERT_NE(a, b) CAME_STAND_IN_COMPARE(a, b, !=, not_equal_to, return )
#define ASSERT_LE(a, b) CAME_STAND_IN_COMPARE(a, b, <=, less_equal, return )
#define ASSERT_LT(a, b) CAME_STAND_IN_COMPARE(a, b, <, less, return )
#define ASSERT_GE(a, b) CAME_STAND_IN_COMPARE(a, b, >=, greater_equal, return )
#define ASSERT_GT(a, b) CAME_STAND_IN_COMPARE(a, b, >, greater, return )
#define EXPECT_TRUE(x) CAME_STAND_IN_CHECK(::testing::expect(#x, true, static_cast<bool>(x)), )
#define ASSERT_TRUE(x) CAME_STAND_IN_CHECK(::testing::expect(#x, true, static_cast<bool>(x)), return )
#define EXPECT_FALSE(x) CAME_STAND_IN_CHECK(::testing::expect(#x, false, static_cast<bool>(x)), )
#define EXPECT_NEAR(a, b, by) CAME_STAND_IN_CHECK(::testing::near(#a " near " #b, a, b, by), )
#define ASSERT_NEAR(a, b, by) CAME_STAND_IN_CHECK(::testing::near(#a " near " #b, a, b, by), return )
#define EXPECT_FLOAT_EQ(a, b) \
  CAME_STAND_IN_CHECK(::testing::compare(#a " == " #b, a, b, ::testing::within_four_units), )
#define EXPECT_STREQ(a, b) CAME_STAND_IN_CHECK(::testing::compare(#a " == " #b, a, b, ::testing::same_text), )
#define EXPECT_NO_THROW(...) CAME_STAND_IN_CHECK(::testing::throws_nothing(#__VA_ARGS__, [&] { __VA_ARGS__; }), )
#define FAIL() return ::testing::Report{__FILE__, __LINE__, "Failed"} = ::testing::Message()
#define GTEST_SKIP() return ::testing::Report{__FILE__, __LINE__, "", true} = ::testing::Message()
