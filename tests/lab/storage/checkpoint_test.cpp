// Checkpoints: what is found, what is refused and with which words, what stays.
#include "storage/checkpoint.hpp"

#include <fcntl.h>
#include <sys/wait.h>

#include <cmath>

#include "folder.hpp"
#include "storage/crc32c.hpp"
#include "storage/manifest.hpp"

namespace lab_test {
namespace {

namespace fs = std::filesystem;
using lab::CheckpointWriter;
using lab::RunLock;

fs::path save(RunLock& lock, int64_t step, const nlohmann::json& about = nlohmann::json::object(),
              const std::string& text = "weights") {
  CheckpointWriter writer(lock, step);
  write(writer.file("model.safetensors"), text + std::to_string(step));
  write(writer.file("optimizer.safetensors"), "");
  return writer.commit(about);
}

std::vector<int64_t> steps(const fs::path& run) {
  std::vector<int64_t> found;
  for (const auto& entry : lab::list_checkpoints(run)) found.push_back(entry.step);
  return found;
}

std::string refusal(const fs::path& run) {
  return error_of([&] { (void)lab::open_latest_checkpoint(run); });
}

using Steps = std::vector<int64_t>;

TEST(Checkpoint, GivesBackWhatWasCommitted) {
  const Folder run;
  EXPECT_TRUE(steps(run.path()).empty());
  RunLock lock(run.path());
  const nlohmann::json about{{"loss", 0.1}, {"tokens", 1LL << 53}, {"nan", std::nan("")}, {"text", "\u00e9\n"}};
  EXPECT_EQ(save(lock, 1200, about), run.path() / "checkpoints" / "step-00001200");
  save(lock, 90);
  save(lock, 123456789012);
  EXPECT_EQ(steps(run.path()), (Steps{90, 1200, 123456789012}));
  EXPECT_EQ(lab::open_latest_checkpoint(run.path()).step, 123456789012);
  const lab::Checkpoint found = lab::open_checkpoint(run.path() / "checkpoints" / "step-00001200" / "");
  EXPECT_EQ(found.step, 1200);
  EXPECT_EQ(found.about.at("loss"), 0.1);
  EXPECT_EQ(found.about.at("tokens"), 1LL << 53);
  EXPECT_TRUE(found.about.at("nan").is_null());
  EXPECT_EQ(found.about.at("text"), "\u00e9\n");
  EXPECT_EQ(read(found.file("model.safetensors")), "weights1200");
  EXPECT_EQ(found.files, (std::set<std::string>{"model.safetensors", "optimizer.safetensors"}));
  EXPECT_TRUE(says(error_of([&] { (void)found.file("rng"); }), {"step-00001200", "\"rng\"", "optimizer.safetensors"}));
}

TEST(Checkpoint, LeavesNothingWithoutCommit) {
  const Folder run;
  RunLock lock(run.path());
  { write(CheckpointWriter(lock, 1).file("a"), "x"); }
  EXPECT_TRUE(names_in(run.path() / "checkpoints").empty());
  CheckpointWriter writer(lock, 2);
  EXPECT_TRUE(says(error_of([&] { CheckpointWriter(lock, 3); }), {"being written already"}));
  writer.file("missing");
  EXPECT_TRUE(says(error_of([&] { writer.commit(nlohmann::json::object()); }), {"missing: was to be in"}));
  write(writer.file("missing").parent_path() / "stranger", "");
  EXPECT_TRUE(says(error_of([&] { writer.commit(nlohmann::json::object()); }), {"stranger"}));
  EXPECT_TRUE(says(error_of([&] { writer.commit(7); }), {"object", "number"}));
  EXPECT_TRUE(steps(run.path()).empty());
  for (const char* name : {"", ".", "..", "a/b", ".hidden", "manifest.json"}) {
    EXPECT_TRUE(says(error_of([&] { writer.file(name); }), {"not a name"})) << name;
  }
}

TEST(Checkpoint, NegativeStepsAreRefused) {
  const Folder run;
  RunLock lock(run.path());
  EXPECT_TRUE(says(error_of([&] { CheckpointWriter(lock, -1); }), {"step -1"}));
}

TEST(Checkpoint, SaysWhatIsDamagedAndWhatIsIntact) {
  const Folder run;
  RunLock lock(run.path());
  save(lock, 1);
  const fs::path older = save(lock, 2);
  const fs::path newest = save(lock, 3);
  const fs::path file = newest / "model.safetensors";
  const std::string intact = "--resume " + older.string();
  const std::string whole = read(file);

  write(file, whole.substr(1));
  EXPECT_TRUE(says(refusal(run.path()), {file.string() + ": 7 bytes, but 8 were written", intact}));
  std::string flipped = whole;
  flipped[3] = static_cast<char>(flipped[3] ^ 1);
  write(file, flipped);
  EXPECT_TRUE(says(refusal(run.path()), {file.string() + ": damaged: its CRC-32C is ", intact}));
  fs::remove(file);
  EXPECT_TRUE(says(refusal(run.path()), {file.string() + ": missing; 8 bytes", intact}));
  write(file, whole);
  write(newest / "model2.safetensors", "x");
  EXPECT_TRUE(says(refusal(run.path()), {"model2.safetensors: not a file of this checkpoint", intact}));
  fs::remove(newest / "model2.safetensors");
  EXPECT_EQ(lab::open_latest_checkpoint(run.path()).step, 3);

  // The one before is damaged, too; nothing was deleted on the way.
  write(file, "");
  write(older / "model.safetensors", "");
  EXPECT_TRUE(says(refusal(run.path()), {file.string(), "--resume", "step-00000001"}));
  fs::remove(run.path() / "checkpoints" / "step-00000001" / "manifest.json");
  EXPECT_TRUE(says(refusal(run.path()), {file.string(), "no other checkpoint of this run is intact"}));
  EXPECT_EQ(steps(run.path()), (Steps{1, 2, 3}));
}

TEST(Checkpoint, AManifestThatIsNotItsOwnIsRefused) {
  const Folder run;
  RunLock lock(run.path());
  const fs::path folder = save(lock, 5, {{"loss", 1.25}});
  const fs::path path = folder / "manifest.json";
  const std::string manifest = read(path);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = manifest;
    EXPECT_NE(text.find(from), std::string::npos);
    write(path, text.replace(text.find(from), from.size(), to));
    return refusal(run.path());
  };
  EXPECT_TRUE(says(with("1.25", "1.26"), {path.string() + ": its own CRC-32C"}));
  EXPECT_TRUE(says(with("\"size\": 8", "\"size\": 9"), {path.string() + ": its own CRC-32C"}));
  EXPECT_TRUE(says(with("checkpoint 1", "checkpoint 2"), {path.string(), "not a checkpoint of came-lab"}));
  EXPECT_TRUE(says(with("{", "[{"), {path.string(), "not valid JSON"}));
  write(path, manifest.substr(0, manifest.size() / 2));
  EXPECT_TRUE(says(refusal(run.path()), {path.string(), "not valid JSON"}));
  write(path, "");
  EXPECT_TRUE(says(refusal(run.path()), {path.string(), "not valid JSON"}));
  fs::remove(path);
  EXPECT_TRUE(says(refusal(run.path()), {path.string(), "No such file"}));
  write(path, manifest);
  fs::rename(folder, run.path() / "checkpoints" / "step-00000006");
  EXPECT_TRUE(says(refusal(run.path()), {"step-00000006: its manifest is that of step 5"}));
}

TEST(Checkpoint, AManifestWithNumbersThatAreNoCountsIsRefused) {
  const Folder run;
  RunLock lock(run.path());
  const fs::path path = save(lock, 5) / "manifest.json";
  const auto manifest = nlohmann::json::parse(read(path));
  const auto with = [&](const std::string& place, const nlohmann::json& value) {
    nlohmann::json changed = manifest;
    changed[nlohmann::json::json_pointer(place)] = value;
    changed.erase("crc32c");
    changed["crc32c"] = fmt::format("{:08x}", lab::crc32c(bytes(changed.dump())));
    write(path, changed.dump());
    return refusal(run.path());
  };
  const std::string file = "/files/" + manifest["files"].begin().key();
  for (const nlohmann::json& number : {nlohmann::json(-1), nlohmann::json(1e300), nlohmann::json(5.0),
                                       nlohmann::json(true), nlohmann::json(uint64_t{1} << 63U)}) {
    EXPECT_TRUE(says(with("/step", number), {path.string() + ": \"step\" is no whole number"})) << number;
    EXPECT_TRUE(says(with(file + "/size", number), {path.string() + ": \"size\" is no whole number"})) << number;
  }
  EXPECT_TRUE(says(with("/about", 3), {path.string() + ": \"about\" or \"files\" is no object"}));
  EXPECT_TRUE(says(with("/files", nlohmann::json::array({manifest["files"].front()})), {"is no object"}));
}

TEST(Checkpoint, AManifestCannotLeadOutOfItsFolder) {
  const Folder run;
  RunLock lock(run.path());
  const fs::path folder = save(lock, 5);
  write(run.path() / "secret", "x");
  for (const char* name : {"../../secret", "/etc/hostname", "."}) {
    const lab::detail::Manifest manifest{5, nlohmann::json::object(), {{name, {1, 2}}}};
    write(folder / "manifest.json", lab::detail::write_manifest(manifest));
    EXPECT_TRUE(says(refusal(run.path()), {"manifest.json", "no plain file"})) << name;
  }
}

TEST(Checkpoint, SaysWhereThereIsNone) {
  const Folder run;
  EXPECT_TRUE(says(refusal(run.path()), {run.path().string(), "no checkpoint"}));
  EXPECT_TRUE(says(error_of([&] { (void)lab::open_checkpoint(run.path() / "step-00000001"); }), {"no such folder"}));
  fs::create_directories(run.path() / "checkpoints" / "step-1");
  fs::create_directories(run.path() / "checkpoints" / "notes");
  EXPECT_TRUE(steps(run.path()).empty());
}

TEST(Checkpoint, KeepsTheLastOnesAndTheBest) {
  const Folder run;
  RunLock lock(run.path());
  const lab::KeepPolicy policy{2, "valid_loss"};
  const std::vector<nlohmann::json> losses{3.0, 2.0, 2.5, nullptr, 2.0, "low", 4.0};
  std::vector<Steps> kept;
  for (size_t k = 0; k < losses.size(); ++k) {
    const auto step = static_cast<int64_t>(k) + 1;
    save(lock, step, {{"valid_loss", losses[k]}});
    lab::prune_checkpoints(lock, policy, step);
    kept.push_back(steps(run.path()));
  }
  // Of two that are equally good, the newer.
  EXPECT_EQ(kept, (std::vector<Steps>{{1}, {1, 2}, {2, 3}, {2, 3, 4}, {4, 5}, {5, 6}, {5, 6, 7}}));
  EXPECT_EQ(names_in(run.path() / "checkpoints").size(), 3U);
}

TEST(Checkpoint, NeverPrunesTheOneJustWrittenNorADamagedOne) {
  const Folder run;
  RunLock lock(run.path());
  for (const int64_t step : {10, 20, 30}) save(lock, step, {{"loss", step}});
  write(save(lock, 40) / "manifest.json", "");
  save(lock, 5, {{"loss", 99}});
  lab::prune_checkpoints(lock, {1, "loss"}, 5);
  EXPECT_EQ(steps(run.path()), (Steps{5, 10, 30, 40}));
  lab::prune_checkpoints(lock, {0, ""}, 5);
  EXPECT_EQ(steps(run.path()), (Steps{5, 40}));
}

TEST(Checkpoint, DropsThoseOfAnAbandonedFuture) {
  const Folder run;
  RunLock lock(run.path());
  for (const int64_t step : {1, 2, 3, 4}) save(lock, step);
  lab::drop_checkpoints_after(lock, 2);
  EXPECT_EQ(steps(run.path()), (Steps{1, 2}));
}

TEST(Checkpoint, ASecondOneOfTheSameStepTakesThePlaceOfTheFirst) {
  const Folder run;
  RunLock lock(run.path());
  save(lock, 7, {{"try", 1}}, "first");
  save(lock, 7, {{"try", 2}}, "second");
  const lab::Checkpoint found = lab::open_latest_checkpoint(run.path());
  EXPECT_EQ(found.about.at("try"), 2);
  EXPECT_EQ(read(found.file("model.safetensors")), "second7");
  EXPECT_EQ(names_in(run.path() / "checkpoints"), std::vector<std::string>{"step-00000007"});
}

TEST(Checkpoint, FoldersAreReplacedAlsoWhereTheyCannotBeExchanged) {
  const Folder folder;
  for (const bool exchange : {true, false}) {
    fs::create_directories(folder / "old");
    fs::create_directories(folder / "new");
    write(folder / "old" / "a", "1");
    write(folder / "new" / "a", "2");
    lab::detail::replace_folder(folder / "new", folder / "old", folder / "aside", exchange);
    EXPECT_EQ(read(folder / "old" / "a"), "2");
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"old"});
  }
}

// Where folders cannot be exchanged, a kill between the two renames leaves the old one set aside.
TEST(Checkpoint, OneThatWasSetAsideIsFoundAndGetsItsNameBack) {
  const Folder run;
  RunLock lock(run.path());
  const fs::path folder = save(lock, 7);
  const fs::path aside = folder.parent_path() / ".step-00000007.old";
  fs::rename(folder, aside);
  fs::create_directories(folder.parent_path() / ".step-00000007.tmp");
  EXPECT_EQ(lab::open_latest_checkpoint(run.path()).folder, aside);
  { const CheckpointWriter writer(lock, 8); }
  EXPECT_EQ(names_in(folder.parent_path()), std::vector<std::string>{"step-00000007"});
  EXPECT_EQ(lab::open_latest_checkpoint(run.path()).step, 7);
  // With the new one in place, the old one is rubbish.
  fs::create_directories(aside);
  { const CheckpointWriter writer(lock, 8); }
  EXPECT_EQ(names_in(folder.parent_path()), std::vector<std::string>{"step-00000007"});
}

TEST(Checkpoint, LeavesFoldersAloneThatAreNotItsOwn) {
  const Folder run;
  RunLock lock(run.path());
  const fs::path folder = save(lock, 7).parent_path();
  for (const char* name : {".mine.tmp", ".step-x.tmp", "step-7.tmp", ".step-00000009.bak"}) {
    fs::create_directories(folder / name);
  }
  { const CheckpointWriter writer(lock, 8); }
  EXPECT_EQ(names_in(folder).size(), 5U);
}

TEST(RunLock, ASecondTrainerIsToldOfTheFirst) {
  const Folder run;
  {
    const RunLock lock(run.path() / "new" / "run");
    const auto again = error_of([&] { RunLock second(run.path() / "new" / "run"); });
    EXPECT_TRUE(says(again, {(run.path() / "new" / "run").string(), "process " + std::to_string(::getpid())}));
  }
  RunLock third(run.path() / "new" / "run");
}

TEST(RunLock, EndsWithItsProcess) {
  const Folder run;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(run.path());
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const auto message = error_of([&] { RunLock second(run.path()); });
  EXPECT_TRUE(says(message, {"process " + std::to_string(child) + " is writing"}));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  RunLock lock(run.path());
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace lab_test
