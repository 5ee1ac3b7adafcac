// A new run is announced by .next.toml, its configuration under a hidden name.  As long as that lies there, all the
// rest is an old run's and is to go; when the rest is gone, it becomes config.toml.  So a kill leaves the old run,
// untouched, or an announced one, which whoever opens the run next puts in its place.
#include "train/run_files.hpp"

#include <string_view>

#include "error.hpp"
#include "storage/file.hpp"
#include "train/snapshot.hpp"

namespace lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNextConfig = ".next.toml";

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) fail("{}: cannot delete: {}", path.string(), error.message());
}

// Whether write_file was killed before it gave a file of the run its name.
bool is_leftover(const std::string& name) {
  if (!name.ends_with(".tmp")) return false;
  for (const char* file : {kConfigFile, kNextConfig, kResultFile}) {
    if (name.starts_with(fmt::format(".{}.", file))) return true;
  }
  return false;
}

}  // namespace

bool has_run(const fs::path& folder) { return is_file(folder / kConfigFile) || is_file(folder / kNextConfig); }

void begin_run(RunLock& lock, const std::string& config) {
  write_file(lock.run() / kNextConfig, config);
  settle_run(lock);
}

void settle_run(RunLock& lock) {
  const fs::path& run = lock.run();
  for (const std::string& name : names_in(run)) {
    if (is_leftover(name)) remove_file(run / name);
  }
  if (!is_file(run / kNextConfig)) return;
  remove_file(run / kResultFile);
  drop_checkpoints_after(lock, -1);
  for (const std::string& name : names_in(run)) {
    const bool old = name == kMetricsFile || name == kTimingFile || name.starts_with("events.out.tfevents.");
    if (old) remove_file(run / name);
  }
  sync_path(run);
  rename_path(run / kNextConfig, run / kConfigFile);
  sync_path(run);
}

void go_back(RunLock& lock, int64_t step, bool done) {
  // First the result: a run without one can be asked for it again, a result of checkpoints that are gone is wrong.
  if (!done) remove_file(lock.run() / kResultFile);
  drop_checkpoints_after(lock, step);
}

}  // namespace lab
