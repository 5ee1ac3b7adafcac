// Where a dataset may be put: never in the place of something else, and never half.
#include "data/output_folder.hpp"

#include <sys/wait.h>

#include <csignal>
#include <cstdlib>

#include "support.hpp"

namespace lab_test {
namespace {

using lab::OutputFolder;

/// A folder that `came-lab data` might have written.
fs::path make_dataset(const fs::path& place, const std::string& tokens = "old") {
  write(place / "data.json", "{\"format\": \"came-lab dataset\", \"version\": 1}");
  write(place / "train.tokens", tokens);
  return place;
}

/// What comes of putting a dataset there.
std::string put(const fs::path& place, const std::vector<fs::path>& inputs = {}, bool exchange = true) {
  return error_of([&] {
    OutputFolder folder(place, inputs, true);
    make_dataset(folder.path(), "new");
    folder.commit(exchange);
  });
}

/// Changes the current folder, and back.
class Inside {
 public:
  explicit Inside(const fs::path& folder) : before_(fs::current_path()) { fs::current_path(folder); }
  ~Inside() { fs::current_path(before_); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  fs::path before_;
};

/// Sets HOME, and back.
class Home {
 public:
  explicit Home(const fs::path& folder) {
    if (const char* before = std::getenv("HOME")) before_ = before;
    ::setenv("HOME", folder.c_str(), 1);
  }
  ~Home() { ::setenv("HOME", before_.c_str(), 1); }
  Home(const Home&) = delete;
  Home& operator=(const Home&) = delete;

 private:
  std::string before_;
};

/// A process that is gone.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  return child;
}

TEST(LabOutputFolder, NeverTakesThePlaceOfTheCurrentFolderOrOneAboveIt) {
  const TempFolder folder;
  fs::create_directories(folder / "a/b");
  const Inside inside(folder / "a/b");
  for (const fs::path& place : {fs::path("."), folder / "a/b", folder / "a/b/", fs::path("../b"), fs::path("./.")}) {
    EXPECT_TRUE(contains(put(place), "a/b: the current folder, or one above it")) << place;
    EXPECT_TRUE(contains(put(place), "name a new folder, such as " + (folder / "a/b/data").native())) << put(place);
  }
  for (const fs::path& place : {fs::path(".."), folder / "a", fs::path("../../a"), fs::path("../b/..")}) {
    EXPECT_TRUE(contains(put(place), "a: the current folder, or one above it")) << place << put(place);
  }
  EXPECT_EQ(fs::current_path(), folder / "a/b");
  make_dataset(folder / "a/b");
  EXPECT_TRUE(contains(put("."), "the current folder"));
  EXPECT_EQ(read(folder / "a/b/train.tokens"), "old");
  EXPECT_EQ(put("data"), "");
  EXPECT_TRUE(contains(put("/"), "/: the root of the file system"));
}

TEST(LabOutputFolder, NeverTakesThePlaceOfTheHomeFolder) {
  const TempFolder folder;
  fs::create_directories(folder / "home/me");
  const Home home(folder / "home/me");
  EXPECT_TRUE(contains(put(folder / "home/me"), "me: your home folder, or one above it"));
  EXPECT_TRUE(contains(put(folder / "home"), "home: your home folder, or one above it"));
  EXPECT_TRUE(fs::is_empty(folder / "home/me"));
  EXPECT_EQ(put(folder / "home/me/data"), "");
}

TEST(LabOutputFolder, NeverTakesThePlaceOfItsInputs) {
  const TempFolder folder;
  make_dataset(folder / "data");
  const fs::path input = folder / "data/data.json";
  EXPECT_TRUE(contains(put(folder / "data", {input}), input.native() + " of the text is there"));
  EXPECT_TRUE(contains(put(folder / "data", {folder / "data"}), "of the text is there"));
  fs::create_directory_symlink(folder / "data", folder / "link");
  EXPECT_TRUE(contains(put(folder / "data", {folder / "link/train.tokens"}), "of the text is there"));
  EXPECT_EQ(read(folder / "data/train.tokens"), "old");
  EXPECT_EQ(put(folder / "data", {folder / "database"}), "") << "a name that begins alike is another folder";
}

TEST(LabOutputFolder, NeverTakesThePlaceOfWhatIsNoDatasetOfOurs) {
  const TempFolder folder;
  write(folder / "data/data.json", "{\"mine\": 1}");
  EXPECT_TRUE(contains(put(folder / "data"), "is no dataset, and is not replaced"));
  write(folder / "data/data.json", "");
  EXPECT_TRUE(contains(put(folder / "data"), "is no dataset, and is not replaced"));
  EXPECT_EQ(folder.names(), std::vector<std::string>{"data"});
  make_dataset(folder / "linked");
  fs::rename(folder / "linked/train.tokens", folder / "large.tokens");
  fs::create_symlink(folder / "large.tokens", folder / "linked/train.tokens");
  EXPECT_TRUE(contains(put(folder / "linked"), "holds train.tokens, which is not part of a dataset"));
  make_dataset(folder / "deep");
  fs::create_directory(folder / "deep/valid.tokens");
  EXPECT_TRUE(contains(put(folder / "deep"), "holds valid.tokens, which is not part of a dataset"));
}

TEST(LabOutputFolder, LooksAgainBeforeItReplaces) {
  const TempFolder folder;
  make_dataset(folder / "data");
  const std::string message = error_of([&] {
    OutputFolder output(folder / "data", {}, true);
    make_dataset(output.path(), "new");
    write(folder / "data/notes.txt", "mine");
    output.commit();
  });
  EXPECT_TRUE(contains(message, "holds notes.txt")) << message;
  EXPECT_EQ(read(folder / "data/notes.txt"), "mine");
  EXPECT_EQ(read(folder / "data/train.tokens"), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"data"});
}

TEST(LabOutputFolder, FollowsLinksToFolders) {
  const TempFolder folder;
  fs::create_directories(folder / "disk/empty");
  make_dataset(folder / "disk/full");
  for (const char* name : {"empty", "full"}) {
    const fs::path link = folder / (std::string(name) + "-link");
    fs::create_directory_symlink(folder / "disk" / name, link);
    EXPECT_EQ(put(link), "");
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_EQ(fs::canonical(link), folder / "disk" / name);
    EXPECT_EQ(read(link / "train.tokens"), "new");
  }
  fs::create_directory_symlink(folder / "gone", folder / "broken");
  EXPECT_TRUE(contains(put(folder / "broken"), "broken: a link that leads nowhere"));
  fs::create_directory_symlink(folder / "round", folder / "round");
  EXPECT_NE(put(folder / "round"), "");
  write(folder / "mine/notes.txt", "mine");
  fs::create_directory_symlink(folder / "mine", folder / "mine-link");
  EXPECT_TRUE(contains(put(folder / "mine-link"), "holds notes.txt"));
  EXPECT_EQ(folder.names(),
            (std::vector<std::string>{"broken", "disk", "empty-link", "full-link", "mine", "mine-link", "round"}));
}

TEST(LabOutputFolder, ReplacesADatasetWithOrWithoutAnExchangeOfFolders) {
  const TempFolder folder;
  for (const bool exchange : {true, false}) {
    make_dataset(folder / "data");
    write(folder / "data/valid.tokens", "old");
    EXPECT_EQ(put(folder / "data", {}, exchange), "");
    EXPECT_EQ(read(folder / "data/train.tokens"), "new");
    EXPECT_FALSE(fs::exists(folder / "data/valid.tokens"));
    EXPECT_EQ(folder.names(), std::vector<std::string>{"data"});
  }
}

TEST(LabOutputFolder, RemovesWhatKilledProcessesLeft) {
  const TempFolder folder;
  const std::string process = std::to_string(dead_process());
  write(folder / (".data.partial-" + process) / "train.tokens", "half");
  write(folder / (".data.replaced-" + process) / "train.tokens", "older");
  write(folder / (".other.partial-" + process) / "train.tokens", "of another dataset");
  write(folder / ".data.partial-mine" / "notes.txt", "mine");
  make_dataset(folder / "data");
  EXPECT_EQ(put(folder / "data"), "");
  EXPECT_EQ(folder.names(), (std::vector<std::string>{".data.partial-mine", ".other.partial-" + process, "data"}));
}

TEST(LabOutputFolder, GivesADatasetItsNameBackThatAKilledProcessHadSetAside) {
  const TempFolder folder;
  make_dataset(folder / (".data.replaced-" + std::to_string(dead_process())));
  const std::string message = error_of([&] { OutputFolder(folder / "data", {}, false); });
  EXPECT_TRUE(contains(message, "data: is a dataset already")) << message;
  EXPECT_EQ(read(folder / "data/train.tokens"), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"data"});
}

TEST(LabOutputFolder, LeavesTheFoldersOfLiveProcessesAlone) {
  const TempFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const OutputFolder output(folder / "data", {}, true);
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const std::string live = ".data.partial-" + std::to_string(child);
  EXPECT_EQ(put(folder / "data"), "");
  EXPECT_EQ(folder.names(), (std::vector<std::string>{live, "data"}));
  // In another container or on another machine its number is unknown; its lock is not.
  const std::string unknown = ".data.partial-" + std::to_string(dead_process());
  fs::rename(folder / live, folder / unknown);
  EXPECT_EQ(put(folder / "data"), "");
  EXPECT_EQ(folder.names(), (std::vector<std::string>{unknown, "data"}));
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(put(folder / "data"), "");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"data"});
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace lab_test
