// Metrics files: whole lines, cut back to a checkpoint's length and continued.
#include "storage/json_lines.hpp"

#include <sys/resource.h>

#include <csignal>
#include <limits>

#include "folder.hpp"

namespace lab_test {
namespace {

using lab::JsonLines;
using lab::read_json_lines;

TEST(JsonLines, WritesOneLineForEachObjectInTheOrderOfItsKeys) {
  const Folder folder;
  JsonLines lines(folder / "metrics.jsonl", 0);
  lines.append({{"step", 1}, {"loss", 10.5}});
  lines.append({{"step", 2}, {"loss", std::numeric_limits<double>::quiet_NaN()}, {"note", "a\nb"}});
  const std::string expected = "{\"step\":1,\"loss\":10.5}\n{\"step\":2,\"loss\":null,\"note\":\"a\\nb\"}\n";
  EXPECT_EQ(read(folder / "metrics.jsonl"), expected);
  EXPECT_EQ(lines.size(), static_cast<int64_t>(expected.size()));
  const auto objects = read_json_lines(folder / "metrics.jsonl");
  ASSERT_EQ(objects.size(), 2U);
  EXPECT_EQ(objects[0].at("loss"), 10.5);
  EXPECT_EQ(objects[1].at("note"), "a\nb");
}

TEST(JsonLines, ARunThatWasCutBackGoesOnBitForBit) {
  const Folder folder;
  const auto record = [](int step) {
    return nlohmann::ordered_json{{"step", step}, {"loss", 1.0 / step}, {"seconds", 1e-9 * step}};
  };
  JsonLines straight(folder / "straight.jsonl", 0);
  for (int step = 1; step <= 9; ++step) straight.append(record(step));
  int64_t length = 0;
  {
    JsonLines lines(folder / "stopped.jsonl", 0);
    for (int step = 1; step <= 7; ++step) {
      lines.append(record(step));
      if (step == 4) length = lines.size();
    }
  }
  write(folder / "stopped.jsonl", read(folder / "stopped.jsonl") + "{\"step\": 8, \"lo");  // killed while writing
  EXPECT_EQ(read_json_lines(folder / "stopped.jsonl").size(), 7U);
  JsonLines lines(folder / "stopped.jsonl", length);
  EXPECT_EQ(lines.size(), length);
  for (int step = 5; step <= 9; ++step) lines.append(record(step));
  lines.sync();
  EXPECT_EQ(read(folder / "stopped.jsonl"), read(folder / "straight.jsonl"));
}

TEST(JsonLines, RefusesAFileThatDoesNotReachTheLength) {
  const Folder folder;
  write(folder / "metrics.jsonl", "{}\n");
  const auto path = folder / "metrics.jsonl";
  EXPECT_TRUE(says(error_of([&] { JsonLines(path, 9); }), {path.string(), "3 bytes", "9"}));
  EXPECT_TRUE(says(error_of([&] { JsonLines(path, 2); }), {path.string(), "no line ends at byte 2"}));
  EXPECT_EQ(read(path), "{}\n");
}

TEST(JsonLines, SaysWhatItWouldRefuseWithoutTouchingTheFile) {
  const Folder folder;
  const auto path = folder / "metrics.jsonl";
  write(path, "{}\n{}\n");
  EXPECT_EQ(lab::length_to_keep(path, 3), 3);
  EXPECT_EQ(lab::length_to_keep(path, 6), 6);
  for (const int64_t length : {int64_t{-1}, int64_t{2}, int64_t{7}}) {
    const std::string message = error_of([&] { (void)lab::length_to_keep(path, length); });
    // Nothing that deletes more: neither an earlier checkpoint nor a new run.
    EXPECT_TRUE(says(message, {path.string(), "put the run's own file back, or move this one away"})) << message;
  }
  EXPECT_EQ(read(path), "{}\n{}\n");
  EXPECT_EQ(lab::length_to_keep(folder / "none", 9), 0);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"metrics.jsonl"});
}

TEST(JsonLines, KeepsTheWholeLinesOfAFileThatNobodyHasToHave) {
  const Folder folder;
  const auto path = folder / "timing.jsonl";
  EXPECT_EQ(lab::whole_lines(path, 5), 0);
  write(path, "{}\n{\"a\":1}\n{\"b");
  EXPECT_EQ(lab::whole_lines(path, -1), 0);
  EXPECT_EQ(lab::whole_lines(path, 2), 0);
  EXPECT_EQ(lab::whole_lines(path, 3), 3);
  EXPECT_EQ(lab::whole_lines(path, 10), 3);
  EXPECT_EQ(lab::whole_lines(path, 1000), 11);
}

TEST(JsonLines, ZeroLengthBeginsANewFile) {
  const Folder folder;
  write(folder / "metrics.jsonl", "{\"old\":1}\n");
  JsonLines(folder / "metrics.jsonl", 0).append({{"new", 2}});
  EXPECT_EQ(read(folder / "metrics.jsonl"), "{\"new\":2}\n");
}

TEST(JsonLines, NamesTheLineThatIsNotAnObject) {
  const Folder folder;
  const auto path = folder / "metrics.jsonl";
  for (const std::string line : {"[1]", "{\"a\":1,\"a\":2}", "{", "", "{} {}", "{\"a\":\"\xFF\"}", "{\"a\":1e999}"}) {
    write(path, "{}\n" + line + "\n{}\n");
    EXPECT_TRUE(says(error_of([&] { (void)read_json_lines(path); }), {path.string() + ": line 2: "})) << line;
  }
  EXPECT_TRUE(says(error_of([&] { (void)read_json_lines(folder / "none"); }), {"none", "No such file"}));
}

TEST(JsonLines, RefusesWhatIsNoObjectOrNotUtf8) {
  const Folder folder;
  JsonLines lines(folder / "metrics.jsonl", 0);
  EXPECT_TRUE(says(error_of([&] { lines.append(nlohmann::ordered_json::array()); }), {"object", "array"}));
  EXPECT_TRUE(says(error_of([&] { lines.append({{"a", "\xFF"}}); }), {"UTF-8"}));
  EXPECT_EQ(lines.size(), 0);
}

// A limit on the size of files does what a full disk does: the last write that fits in part is cut short.
TEST(JsonLines, AFullDiskLeavesWholeLines) {
  const Folder folder;
  const auto path = folder / "metrics.jsonl";
  JsonLines lines(path, 0);
  lines.append({{"step", 1}});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit tight{static_cast<rlim_t>(lines.size() + 5), before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const std::string message = error_of([&] { lines.append({{"step", 2}}); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(says(message, {path.string(), "cannot append 11 bytes"}));
  EXPECT_EQ(read(path), "{\"step\":1}\n");
  lines.append({{"step", 3}});
  EXPECT_EQ(read(path), "{\"step\":1}\n{\"step\":3}\n");
}

}  // namespace
}  // namespace lab_test
