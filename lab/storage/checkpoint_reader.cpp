// The side of checkpoints that only reads: which there are, and whether every byte is as it was written.
#include <fcntl.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "error.hpp"
#include "storage/checkpoint.hpp"
#include "storage/json.hpp"
#include "storage/manifest.hpp"

namespace lab {
namespace {

namespace fs = std::filesystem;

/// Opens and checks one; the Error says what is wrong, but not what to do.
Checkpoint check(const fs::path& folder) {
  if (!is_folder(folder)) fail("{}: no such folder", folder.string());
  const detail::Manifest manifest = detail::read_manifest(folder);
  const auto named = detail::parse_step_name(folder.filename().string());
  if (named && *named != manifest.step) fail("{}: its manifest is that of step {}", folder.string(), manifest.step);
  Checkpoint checkpoint{manifest.step, folder, manifest.about, {}};
  for (const std::string& name : names_in(folder)) {
    if (name != detail::kManifest && manifest.files.count(name) == 0) {
      fail("{}: not a file of this checkpoint, whose manifest does not name it: move it away",
           (folder / name).string());
    }
  }
  for (const auto& [name, expected] : manifest.files) {
    const fs::path path = folder / name;
    if (!is_file(path)) fail("{}: missing; {} bytes were written", path.string(), expected.size);
    const int64_t size = Descriptor(path, O_RDONLY).size();
    if (size != expected.size) fail("{}: {} bytes, but {} were written", path.string(), size, expected.size);
    const detail::FileRecord found = detail::record_of(path);
    if (found != expected) {
      fail("{}: damaged: its CRC-32C is {:08x}, but {:08x} was written", path.string(), found.crc, expected.crc);
    }
    checkpoint.files.insert(name);
  }
  return checkpoint;
}

/// What else the run has to go on from.
std::string advice(const fs::path& run, const fs::path& damaged) {
  std::vector<CheckpointEntry> others = list_checkpoints(run);
  std::reverse(others.begin(), others.end());
  for (const CheckpointEntry& other : others) {
    if (other.folder.filename() == damaged.filename()) continue;
    try {
      const std::string intact = check(other.folder).folder.string();
      return fmt::format(
          "the newest intact checkpoint is {0}: --resume {0} goes on from it, which deletes those after it", intact);
    } catch (const Error&) {
      continue;
    }
  }
  return "no other checkpoint of this run is intact: begin a new run";
}

}  // namespace

fs::path checkpoints_folder(const fs::path& run) { return run / "checkpoints"; }

fs::path Checkpoint::file(const std::string& name) const {
  if (files.count(name) == 0) {
    fail("{}: has no {}, but {}: not a checkpoint of this command", folder.string(), quote_name(name),
         fmt::join(files, ", "));
  }
  return folder / name;
}

std::vector<CheckpointEntry> list_checkpoints(const fs::path& run) {
  const fs::path folder = checkpoints_folder(run);
  std::vector<CheckpointEntry> entries;
  if (!is_folder(folder)) return entries;
  for (const std::string& name : names_in(folder)) {
    if (const auto step = detail::parse_step_name(name)) entries.push_back({*step, folder / name});
    // Set aside for another that did not come.
    const auto replaced = detail::parse_hidden_step_name(name, detail::kReplaced);
    if (replaced && !is_folder(folder / detail::step_name(*replaced))) entries.push_back({*replaced, folder / name});
  }
  std::sort(entries.begin(), entries.end(),
            [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.step < b.step; });
  return entries;
}

Checkpoint open_checkpoint(const fs::path& folder) {
  // A path may end in a slash.
  const fs::path path = folder.has_filename() ? folder : folder.parent_path();
  try {
    return check(path);
  } catch (const Error& error) {
    const fs::path run = fs::absolute(path).parent_path().parent_path();
    if (checkpoints_folder(run) != fs::absolute(path).parent_path()) throw;  // a copy elsewhere
    fail("{}; {}", error.what(), advice(run, path));
  }
}

Checkpoint open_latest_checkpoint(const fs::path& run) {
  const std::vector<CheckpointEntry> entries = list_checkpoints(run);
  if (entries.empty()) fail("{}: no checkpoint in {}", run.string(), checkpoints_folder(run).string());
  return open_checkpoint(entries.back().folder);
}

}  // namespace lab
