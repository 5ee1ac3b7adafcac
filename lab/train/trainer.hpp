// A training run from its configuration to its last checkpoint.
//
// Its folder: config.toml, metrics.jsonl (what was learned: the same bits however often the run was stopped),
// timing.jsonl (how fast), event files for TensorBoard, checkpoints/, and result.json once it is done.
#pragma once

#include <filesystem>
#include <optional>

#include "storage/checkpoint.hpp"
#include "train/config.hpp"

namespace lab {

/// How a run ended.
struct RunEnd {
  int64_t step = 0;
  int signal = 0;  ///< That stopped it; 0: it is done.
};

/// Throws the Error that train() would throw before its first step: device, data, sizes, options.  Makes no folder.
void check_training(const TrainConfig& config);

/// Trains in the folder `run`, from the beginning or from a checkpoint of it.  What is in the folder stays as it is
/// until the first step has been taken.  A signal ends it after the step that is under way, with a checkpoint.
RunEnd train(const TrainConfig& config, RunLock& run, const std::optional<Checkpoint>& from);

}  // namespace lab
