// Writers that are killed at any moment: what they leave can be read, and the next one clears up.
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <random>

#include "folder.hpp"
#include "storage/checkpoint.hpp"
#include "storage/event_file.hpp"
#include "storage/safetensors.hpp"

namespace lab_test {
namespace {

namespace fs = std::filesystem;

/// What the writer's file of this step holds, so that a mixture of two steps does not pass.
std::string weights(int64_t step) { return std::string(static_cast<size_t>(20000 + step), static_cast<char>(step)); }

void write_one(lab::RunLock& lock, int64_t step) {
  const std::string data = weights(step);
  lab::CheckpointWriter writer(lock, step);
  const lab::StoredTensor tensor{"w", "U8", {static_cast<int64_t>(data.size())}, bytes(data)};
  lab::write_safetensors(writer.file("model.safetensors"), std::span(&tensor, 1));
  write(writer.file("optimizer"), data);
  writer.commit({{"step", step}});
  lab::prune_checkpoints(lock, {2, "step"}, step);
}

/// Commits checkpoints until it is killed: each step twice, so that replacing is interrupted, too.
[[noreturn]] void write_forever(const fs::path& run, int64_t step, int ready) {
  lab::RunLock lock(run);
  if (::write(ready, "x", 1) != 1) ::_exit(8);
  for (;; ++step) {
    write_one(lock, step);
    write_one(lock, step);
  }
}

/// Nanoseconds that one takes on this disk.
long time_of_one() {
  const Folder run;
  lab::RunLock lock(run.path());
  const auto start = std::chrono::steady_clock::now();
  write_one(lock, 1);
  return std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
}

TEST(Kill, LeavesTheNewestCheckpointWholeWheneverItComes) {
  const Folder run;
  std::mt19937 random(7);
  std::uniform_int_distribution<long> nanoseconds(0, std::min(8 * time_of_one(), 900'000'000L));
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  int64_t last = 0;
  int found = 0;
  int leftovers = 0;
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        write_forever(run.path(), last + 1, ready[1]);
      } catch (...) {
        ::_exit(9);
      }
    }
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    const timespec pause{0, nanoseconds(random)};
    ::nanosleep(&pause, nullptr);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer itself failed";

    const auto entries = lab::list_checkpoints(run.path());
    if (!entries.empty()) {
      const lab::Checkpoint newest = lab::open_latest_checkpoint(run.path());
      ++found;
      ASSERT_GE(newest.step, last);
      last = newest.step;
      EXPECT_EQ(newest.about.at("step"), last);
      EXPECT_EQ(read(newest.file("optimizer")), weights(last));
      const lab::SafetensorsFile file(newest.file("model.safetensors"));
      EXPECT_EQ(file.contents().find("w")->data.size(), weights(last).size());
      for (const auto& entry : entries) EXPECT_EQ(lab::open_checkpoint(entry.folder).step, entry.step);
    }
    const fs::path folder = lab::checkpoints_folder(run.path());
    fs::create_directories(folder);
    for (const std::string& name : names_in(folder)) leftovers += name.front() == '.' ? 1 : 0;
    lab::RunLock lock(run.path());
    { const lab::CheckpointWriter next(lock, last + 1); }
    for (const std::string& name : names_in(folder)) EXPECT_TRUE(name.starts_with("step-")) << name;
  }
  // The test is worth something only if writers got somewhere and were interrupted on the way.
  EXPECT_GT(found, 0);
  EXPECT_GT(leftovers, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(Kill, LeavesEveryEventThatWasWritten) {
  const Folder run;
  int count[2];
  ASSERT_EQ(::pipe(count), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    lab::EventFile file(run.path());
    for (int step = 0; step < 10; ++step) file.scalar(step, "loss", step);
    if (::write(count[1], "x", 1) != 1) ::_exit(1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(count[0], &byte, 1), 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_EQ(names_in(run.path()).size(), 1U);
  const std::string file = read(run / names_in(run.path())[0]);
  size_t losses = 0;
  for (size_t at = file.find("loss"); at != std::string::npos; at = file.find("loss", at + 1)) ++losses;
  EXPECT_EQ(losses, 10U);
  ::close(count[0]);
  ::close(count[1]);
}

}  // namespace
}  // namespace lab_test
