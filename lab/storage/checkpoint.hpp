// Checkpoints of a run: RUN/checkpoints/step-00001200/, a folder of files with a manifest of their sizes and CRC-32C.
// A folder of that name is whole, however its writer died: it is written under a hidden name, flushed to disk and
// renamed.  Reading checks every byte and deletes nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "storage/file.hpp"

namespace lab {

/// One run folder, one writer: an advisory lock that the kernel lifts when the process ends, however it ends.
class RunLock {
 public:
  /// Makes the folder where it is missing, and locks it; throws an Error with the process that holds it.
  explicit RunLock(const std::filesystem::path& run);
  ~RunLock() = default;
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  RunLock(RunLock&&) = delete;
  RunLock& operator=(RunLock&&) = delete;

  /// The run's folder.
  [[nodiscard]] const std::filesystem::path& run() const { return run_; }

 private:
  friend class CheckpointWriter;
  std::filesystem::path run_;
  Descriptor file_;
  bool writing_ = false;
};

/// Writes one checkpoint; destroyed without commit, it leaves nothing.  One at a time per lock.
///
///     CheckpointWriter writer(lock, step);
///     write_safetensors(writer.file("model.safetensors"), tensors);
///     writer.commit({{"valid_loss", 3.2}});
///     prune_checkpoints(lock, {.last = 3, .metric = "valid_loss"}, step);
class CheckpointWriter {
 public:
  /// Begins one; what killed writers left behind is removed.
  CheckpointWriter(RunLock& lock, int64_t step);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  CheckpointWriter(CheckpointWriter&&) = delete;
  CheckpointWriter& operator=(CheckpointWriter&&) = delete;

  /// Where the caller writes the file of this name, before commit.
  std::filesystem::path file(const std::string& name);
  /// Writes the manifest with `about`, a JSON object, flushes all to disk and gives the folder its name, in the place
  /// of an earlier checkpoint of the same step.  Returns the folder.
  std::filesystem::path commit(const nlohmann::json& about);

 private:
  RunLock& lock_;
  int64_t step_;
  std::filesystem::path folder_;  // hidden until commit
  std::set<std::string> names_;
  bool committed_ = false;
};

/// A checkpoint that is there; not yet checked.
struct CheckpointEntry {
  int64_t step = 0;
  std::filesystem::path folder;
};

/// A checkpoint whose every byte was checked.
struct Checkpoint {
  int64_t step = 0;
  std::filesystem::path folder;
  nlohmann::json about;  ///< What commit was given.
  std::set<std::string> files;

  /// The path of a file; throws an Error where there is none of this name.
  [[nodiscard]] std::filesystem::path file(const std::string& name) const;
};

/// The folder that keeps a run's checkpoints.
[[nodiscard]] std::filesystem::path checkpoints_folder(const std::filesystem::path& run);

/// The checkpoints of a run, by ascending step; none where there is no such folder.
[[nodiscard]] std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& run);

/// Opens one by its folder and checks it.  The Error names the file, what was expected and found, and the newest other
/// checkpoint of the run that is intact.
[[nodiscard]] Checkpoint open_checkpoint(const std::filesystem::path& folder);

/// Opens a run's newest one, in the same way; throws an Error where there is none.
[[nodiscard]] Checkpoint open_latest_checkpoint(const std::filesystem::path& run);

/// Which checkpoints stay.
struct KeepPolicy {
  int64_t last = 3;    ///< The newest so many.
  std::string metric;  ///< And the one with the lowest number of this name in its `about`; empty: none for that.
};

/// Deletes the others, but never that of step `written`, nor one whose manifest cannot be read.
void prune_checkpoints(RunLock& lock, const KeepPolicy& policy, int64_t written);

/// Deletes those after `step`: for a run that goes on from an older checkpoint, so that the newest is its own.
void drop_checkpoints_after(RunLock& lock, int64_t step);

}  // namespace lab
