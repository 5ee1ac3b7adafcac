// A run takes the place of another: whenever it is killed on the way, the old one is there, untouched, or the new one.
// This program's own rename, unlink and remove stand before the C library's and count down to the kill.
#include "train/run_files.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "remove_folder.hpp"

namespace {

int calls_to_live = -1;  // -1: for ever

void count_down() {
  if (calls_to_live >= 0 && calls_to_live-- == 0) ::raise(SIGKILL);
}

template <class Function>
Function* next_one(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int rename(const char* from, const char* to) noexcept {
  count_down();
  return next_one<int(const char*, const char*)>("rename")(from, to);
}
extern "C" int unlink(const char* path) noexcept {
  count_down();
  return next_one<int(const char*)>("unlink")(path);
}
extern "C" int remove(const char* path) noexcept {
  count_down();
  return next_one<int(const char*)>("remove")(path);
}

namespace lab {
namespace {

namespace fs = std::filesystem;

class LabRunFiles : public testing::Test {
 protected:
  LabRunFiles() {
    std::string name = (fs::temp_directory_path() / "came-lab-run-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    run = name;
  }
  ~LabRunFiles() override { (void)remove_folder(run); }

  void write(const char* name, const char* text) const { std::ofstream(run / name) << text; }
  void make_old_run() const {
    RunLock lock(run);
    for (const int64_t step : {4, 8}) {
      CheckpointWriter writer(lock, step);
      std::ofstream(writer.file("model")) << step;
      writer.commit(nlohmann::json::object());
    }
    write("config.toml", "old");
    write("metrics.jsonl", "{}\n");
    write("timing.jsonl", "{}\n");
    write("result.json", "{}");
    write("events.out.tfevents.1.host.1", "old");
    write("notes.txt", "mine");
  }
  // Name and bytes of every file that is not hidden.
  [[nodiscard]] std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(run)) {
      const std::string name = entry.path().lexically_relative(run).string();
      if (!entry.is_regular_file() || name.starts_with(".") || name.find("/.") != std::string::npos) continue;
      std::ifstream file(entry.path());
      all[name] = {std::istreambuf_iterator<char>(file), {}};
    }
    return all;
  }
  // Whether a child that does this was killed at its n-th call.
  template <class Function>
  [[nodiscard]] bool killed_at(int n, Function&& function) const {
    const pid_t child = ::fork();
    if (child == 0) {
      RunLock lock(run);
      calls_to_live = n;
      function(lock);
      calls_to_live = -1;
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
  }

  fs::path run;
};

TEST_F(LabRunFiles, ANewRunLeavesNothingOfTheOldOne) {
  make_old_run();
  RunLock lock(run);
  begin_run(lock, "new");
  EXPECT_EQ(contents(), (std::map<std::string, std::string>{{"config.toml", "new"}, {"notes.txt", "mine"}}));
}

TEST_F(LabRunFiles, SettlingRemovesWhatWasHalfWrittenAndNothingElse) {
  make_old_run();
  const auto old = contents();
  for (const char* name : {".config.toml.12.tmp", "..next.toml.12.tmp", ".result.json.12.tmp", ".mine.tmp"})
    write(name, "half");
  RunLock lock(run);
  settle_run(lock);
  EXPECT_EQ(contents(), old);
  EXPECT_EQ(names_in(run), (std::vector<std::string>{".lock", ".mine.tmp", "checkpoints", "config.toml",
                                                     "events.out.tfevents.1.host.1", "metrics.jsonl", "notes.txt",
                                                     "result.json", "timing.jsonl"}));
}

TEST_F(LabRunFiles, AKillLeavesTheOldRunOrTheNewOne) {
  make_old_run();
  const auto old = contents();
  int untouched = 0, replaced = 0;
  for (int n = 0;; ++n) {
    SCOPED_TRACE(n);
    if (!killed_at(n, [](RunLock& lock) { begin_run(lock, "new"); })) break;
    ASSERT_TRUE(has_run(run));
    const bool announced = contents() != old || fs::exists(run / ".next.toml");
    {
      RunLock lock(run);
      settle_run(lock);
    }
    if (announced) {
      EXPECT_EQ(contents(), (std::map<std::string, std::string>{{"config.toml", "new"}, {"notes.txt", "mine"}}));
      ++replaced;
      (void)remove_folder(run);
      make_old_run();
    } else {
      EXPECT_EQ(contents(), old);
      ++untouched;
    }
    ASSERT_EQ(contents(), old);
  }
  // The rename that announces it; then two checkpoints, five files and the last rename, at the least.
  EXPECT_EQ(untouched, 1);
  EXPECT_GE(replaced, 12);
}

TEST_F(LabRunFiles, AKillWhileGoingBackLeavesCheckpointsThatFollowEachOther) {
  make_old_run();
  for (int n = 0; killed_at(n, [](RunLock& lock) { go_back(lock, 4, false); }); ++n) {
    SCOPED_TRACE(n);
    const auto left = list_checkpoints(run);
    ASSERT_FALSE(left.empty());
    EXPECT_EQ(left.front().step, 4);
    for (const auto& entry : left) EXPECT_EQ(open_checkpoint(entry.folder).step, entry.step);
    // A result stands for the last checkpoint.
    EXPECT_TRUE(left.back().step == 8 || !fs::exists(run / "result.json"));
    (void)remove_folder(run);
    make_old_run();
  }
  EXPECT_EQ(list_checkpoints(run).back().step, 4);
  EXPECT_FALSE(fs::exists(run / "result.json"));
  EXPECT_TRUE(fs::exists(run / "metrics.jsonl"));
}

TEST_F(LabRunFiles, GoingBackToTheLastStepKeepsTheResult) {
  make_old_run();
  const auto old = contents();
  RunLock lock(run);
  go_back(lock, 8, true);
  EXPECT_EQ(contents(), old);
}

}  // namespace
}  // namespace lab
