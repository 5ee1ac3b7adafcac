// What lies in a run's folder, and how a run takes the place of what was there.
//
// Nothing is deleted before there is something better: a new run has taken its first step, one that goes back to a
// checkpoint has taken a step from it.  A kill at any moment leaves the old run or the new one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "storage/checkpoint.hpp"

namespace lab {

/// Names of the files in a run's folder, beside config.toml.
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kTimingFile = "timing.jsonl";
inline constexpr const char* kResultFile = "result.json";

/// Whether a run began in this folder.
[[nodiscard]] bool has_run(const std::filesystem::path& folder);

/// Makes the folder that of a new run with this config.toml: checkpoints, metrics and results of an old one are
/// deleted.  After a kill settle_run ends it.
void begin_run(RunLock& lock, const std::string& config);
/// Ends what a begin_run began that was killed, and removes files that were half written; call it before anything else
/// is done to a run.
void settle_run(RunLock& lock);

/// Deletes the checkpoints after `step` and, unless the run is done with it, the result.
void go_back(RunLock& lock, int64_t step, bool done);

}  // namespace lab
