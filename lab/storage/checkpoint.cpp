// The side of checkpoints that changes the disk.  Every state that a kill can leave is one of: a whole checkpoint under
// its name; hidden folders that the next writer removes; the replaced one under its hidden name, which readers find and
// the next writer gives its name back.
#include "storage/checkpoint.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>

#include "error.hpp"
#include "remove_folder.hpp"
#include "storage/json.hpp"
#include "storage/manifest.hpp"

namespace lab {
namespace {

namespace fs = std::filesystem;

void delete_folder(const fs::path& folder) {
  const std::error_code error = remove_folder(folder);
  if (error) fail("{}: cannot delete: {}", folder.string(), error.message());
}

/// Deletes a checkpoint so that a kill leaves it whole or hidden.
void remove_checkpoint(const CheckpointEntry& entry) {
  const fs::path doomed = entry.folder.parent_path() / detail::hidden_step_name(entry.step, detail::kDoomed);
  delete_folder(doomed);
  rename_path(entry.folder, doomed);
  delete_folder(doomed);
}

/// Removes what killed writers left, and undoes a replacement that was not finished.
void tidy(const fs::path& checkpoints) {
  for (const std::string& name : names_in(checkpoints)) {
    const fs::path path = checkpoints / name;
    const auto replaced = detail::parse_hidden_step_name(name, detail::kReplaced);
    const bool lost = replaced && !is_folder(checkpoints / detail::step_name(*replaced));
    if (lost) {
      rename_path(path, checkpoints / detail::step_name(*replaced));
    } else if (replaced || detail::parse_hidden_step_name(name, detail::kUnfinished) ||
               detail::parse_hidden_step_name(name, detail::kDoomed)) {
      delete_folder(path);
    }
  }
}

}  // namespace

void detail::replace_folder(const fs::path& from, const fs::path& to, const fs::path& aside, bool exchange) {
  if (!is_folder(to)) return rename_path(from, to);
  if (exchange && ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    sync_path(to.parent_path());
    return delete_folder(from);
  }
  // A filesystem that cannot exchange, such as NFS.
  rename_path(to, aside);
  rename_path(from, to);
  sync_path(to.parent_path());
  delete_folder(aside);
}

CheckpointWriter::CheckpointWriter(RunLock& lock, int64_t step)
    : lock_(lock),
      step_(step),
      folder_(checkpoints_folder(lock.run()) / detail::hidden_step_name(step, detail::kUnfinished)) {
  if (step < 0) fail("{}: a checkpoint of step {}: steps are not negative", lock.run().string(), step);
  if (lock.writing_) fail("{}: a checkpoint is being written already", lock.run().string());
  make_folders(folder_.parent_path());
  tidy(folder_.parent_path());
  make_folders(folder_);
  lock_.writing_ = true;
}

CheckpointWriter::~CheckpointWriter() {
  if (!committed_) (void)remove_folder(folder_);
  lock_.writing_ = false;
}

fs::path CheckpointWriter::file(const std::string& name) {
  if (!detail::plain_name(name)) fail("{}: not a name for a file of a checkpoint", quote_name(name));
  names_.insert(name);
  return folder_ / name;
}

fs::path CheckpointWriter::commit(const nlohmann::json& about) {
  if (committed_) fail("{}: committed twice", detail::step_name(step_));
  if (!about.is_object()) fail("what a manifest says about a checkpoint is a JSON object, not {}", about.type_name());
  detail::Manifest manifest{step_, about, {}};
  for (const std::string& name : names_in(folder_)) {
    if (names_.count(name) == 0)
      fail("{}: was written into a checkpoint that does not know it", (folder_ / name).string());
  }
  for (const std::string& name : names_) {
    const fs::path path = folder_ / name;
    if (!is_file(path)) fail("{}: was to be in the checkpoint, but was not written", path.string());
    manifest.files[name] = detail::record_of(path);
    sync_path(path);
  }
  write_file(folder_ / detail::kManifest, detail::write_manifest(manifest));  // flushes the folder, too
  const fs::path parent = folder_.parent_path();
  fs::path final = parent / detail::step_name(step_);
  detail::replace_folder(folder_, final, parent / detail::hidden_step_name(step_, detail::kReplaced), true);
  committed_ = true;
  sync_path(parent);
  return final;
}

void prune_checkpoints(RunLock& lock, const KeepPolicy& policy, int64_t written) {
  struct Candidate {
    CheckpointEntry entry;
    std::optional<double> metric;
  };
  std::vector<Candidate> candidates;  // newest first
  std::vector<CheckpointEntry> entries = list_checkpoints(lock.run());
  std::reverse(entries.begin(), entries.end());
  for (const CheckpointEntry& entry : entries) {
    try {
      const nlohmann::json about = detail::read_manifest(entry.folder).about;
      const auto value = policy.metric.empty() ? about.end() : about.find(policy.metric);
      const bool known = value != about.end() && value->is_number();
      candidates.push_back({entry, known ? std::optional(value->get<double>()) : std::nullopt});
    } catch (const Error&) {
      continue;  // damaged: for its owner to see, and no reason to keep one less of the others
    }
  }
  double best = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates) best = std::min(best, candidate.metric.value_or(best));
  bool best_kept = false;
  for (size_t k = 0; k < candidates.size(); ++k) {
    const Candidate& candidate = candidates[k];
    const bool is_best = !best_kept && candidate.metric == best;
    best_kept = best_kept || is_best;
    if (static_cast<int64_t>(k) < policy.last || is_best || candidate.entry.step == written) continue;
    remove_checkpoint(candidate.entry);
  }
}

void drop_checkpoints_after(RunLock& lock, int64_t step) {
  const fs::path checkpoints = checkpoints_folder(lock.run());
  if (is_folder(checkpoints)) tidy(checkpoints);  // or what a dropped one replaced would come back
  // The newest first: whatever a kill leaves, the newest of it is followed by none.
  const std::vector<CheckpointEntry> all = list_checkpoints(lock.run());
  for (auto entry = all.rbegin(); entry != all.rend() && entry->step > step; ++entry) remove_checkpoint(*entry);
}

}  // namespace lab
