// What outlives a power cut: data are flushed to disk before a name points to them, and names after.  This program's
// own fsync and rename stand before the C library's and keep a diary.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "folder.hpp"
#include "storage/checkpoint.hpp"
#include "storage/json_lines.hpp"
#include "storage/safetensors.hpp"

namespace lab_test {
namespace {

std::vector<std::string>& diary() {
  static std::vector<std::string> lines;
  return lines;
}

std::string name_of(const std::filesystem::path& path) { return path.filename().string(); }

}  // namespace
}  // namespace lab_test

extern "C" int fsync(int descriptor) {
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor));
  lab_test::diary().push_back("flush " + lab_test::name_of(path));
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  lab_test::diary().push_back("rename " + lab_test::name_of(from) + " to " + lab_test::name_of(to));
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

extern "C" int renameat2(int, const char* from, int, const char* to, unsigned flags) noexcept {
  lab_test::diary().push_back("exchange " + lab_test::name_of(from) + " and " + lab_test::name_of(to));
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags));
}

namespace lab_test {
namespace {

using Diary = std::vector<std::string>;

TEST(Flush, AFileIsOnDiskBeforeItsName) {
  const Folder folder;
  const std::string data = "abcd";
  const lab::StoredTensor tensor{"t", "U8", {4}, bytes(data)};
  diary().clear();
  lab::write_safetensors(folder / "model", std::span(&tensor, 1));
  const std::string beside = ".model." + std::to_string(::getpid()) + ".tmp";
  EXPECT_EQ(diary(), (Diary{"flush " + beside, "rename " + beside + " to model", "flush " + name_of(folder.path())}));
}

TEST(Flush, ACheckpointIsOnDiskBeforeItsName) {
  const Folder run;
  lab::RunLock lock(run.path());
  const std::string manifest = ".manifest.json." + std::to_string(::getpid()) + ".tmp";
  const std::string hidden = ".step-00000003.tmp";
  const Diary contents{"flush model", "flush " + manifest, "rename " + manifest + " to manifest.json",
                       "flush " + hidden};
  for (const bool again : {false, true}) {
    lab::CheckpointWriter writer(lock, 3);
    write(writer.file("model"), "abc");
    diary().clear();
    writer.commit(nlohmann::json::object());
    Diary expected = contents;
    if (again) {
      expected.push_back("exchange " + hidden + " and step-00000003");
      expected.emplace_back("flush checkpoints");
    } else {
      expected.push_back("rename " + hidden + " to step-00000003");
    }
    expected.emplace_back("flush checkpoints");
    EXPECT_EQ(diary(), expected);
  }
}

TEST(Flush, NewFoldersHaveTheirNamesOnDisk) {
  const Folder folder;
  diary().clear();
  lab::make_folders(folder / "a" / "b");
  EXPECT_EQ(diary(), (Diary{"flush " + name_of(folder.path()), "flush a"}));
}

TEST(Flush, MetricsAreOnDiskWhenAsked) {
  const Folder folder;
  lab::JsonLines lines(folder / "metrics.jsonl", 0);
  lines.append({{"step", 1}});
  diary().clear();
  lines.sync();
  EXPECT_EQ(diary(), Diary{"flush metrics.jsonl"});
}

}  // namespace
}  // namespace lab_test
