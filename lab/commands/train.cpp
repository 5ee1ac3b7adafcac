// came-lab train: options over a TOML file over defaults; a run goes on with the configuration it was begun with.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "commands/commands.hpp"
#include "commands/exit.hpp"
#include "data/utf8.hpp"
#include "error.hpp"
#include "say.hpp"
#include "storage/file.hpp"
#include "storage/json_lines.hpp"
#include "train/optimizers.hpp"
#include "train/run_files.hpp"
#include "train/snapshot.hpp"
#include "train/trainer.hpp"

namespace lab {
namespace {

constexpr const char* kTrainExample =
    "Examples:\n"
    "  came-lab train gpt2-tiny --optimizer came --lr 2e-3 --steps 500\n"
    "  came-lab train bert-base --device cuda --precision bf16 --batch 4096 --micro-batch 128 --steps 20000 --warmup "
    "1000\n"
    "  came-lab train --config mine.toml --out runs/second\n"
    "  came-lab train --resume runs/second\n";

struct TrainArguments {
  TrainConfig values;  // what options were parsed into
  std::string config, out, resume;
  std::vector<std::string> options;
  bool overwrite = false;
  std::set<std::string> keys;  // fields given on the command line
};

std::string flag_of(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

// NAME=VALUE of -o.
std::pair<std::string, std::string> split_option(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) fail("-o {}: expected NAME=VALUE, such as -o beta3=0.9999", text);
  return {text.substr(0, equals), text.substr(equals + 1)};
}

// The command line's fields over those of `config`.
void override_fields(TrainConfig& config, TrainArguments& given) {
  for_each_field(given.values, [&](const char*, const char* key, auto& value, const char*) {
    if (!given.keys.contains(key)) return;
    for_each_field(config, [&](const char*, const char* other, auto& field, const char*) {
      if constexpr (std::is_same_v<decltype(field), decltype(value)>) {
        if (std::string_view(key) == other) field = value;
      }
    });
  });
  for (const std::string& option : given.options)
    config.options.insert_or_assign(split_option(option).first, split_option(option).second);
}

void report_end(const RunEnd& end, const std::filesystem::path& run) {
  if (end.signal == 0) {
    fmt::print("done; results in {}\n", run.string());
    return;
  }
  if (end.step == 0) {
    say(fmt::format("stopped before the first step; {} is as it was\n", run.string()));
  } else {
    say(fmt::format("stopped and saved after step {}; go on with: came-lab train --resume {}\n", end.step,
                    run.string()));
  }
  throw Exit{128 + end.signal};
}

// A folder that may become this run's: empty but for hidden files, which may be a run's that was killed as it began, or
// a run of ours.
void expect_run_or_nothing(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder)) return;
  if (!is_folder(folder)) fail("{}: not a folder; choose another --out", folder.string());
  if (is_file(folder / kConfigFile)) {
    TrainConfig ignored;
    try {
      read_config(ignored, folder / kConfigFile);
    } catch (const Error& error) {
      fail("{}: a folder of something else, not of a run ({}); choose another --out", folder.string(), error.what());
    }
  } else if (!has_run(folder)) {
    for (const std::string& name : names_in(folder)) {
      if (!name.starts_with(".")) fail("{}: a folder with other things in it; choose another --out", folder.string());
    }
  }
}

// A run's config.toml gives back every text, or the run could not be resumed.
void expect_utf8(const TrainConfig& config) {
  const auto check = [](const std::string& key, const std::string& text) {
    if (const size_t bad = find_invalid_utf8(text); bad != std::string::npos) {
      fail("{} is {}, which is not UTF-8 at byte {}, so that config.toml could not hold it; give it another name", key,
           text, bad);
    }
  };
  for_each_field(config, [&](const char*, const char* key, const auto& field, const char*) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, std::string>) check(key, field);
  });
  for (const auto& [name, value] : config.options) check("-o " + name, name + "=" + value);
}

void start(TrainArguments& given) {
  TrainConfig config;
  if (!given.config.empty()) read_config(config, given.config);
  override_fields(config, given);
  resolve_config(config);
  config.data =
      std::filesystem::absolute(config.data).lexically_normal().string();  // found from wherever it is resumed
  expect_utf8(config);
  check_training(config);
  const std::filesystem::path out = given.out.empty() ? "runs/" + config.model + "-" + config.optimizer : given.out;
  expect_run_or_nothing(out);
  RunLock lock(out);
  settle_run(lock);
  if (has_run(out) && !given.overwrite)
    fail("{0}: there is a run already; go on with --resume {0}, begin again with --overwrite, or choose another --out",
         out.string());
  report_end(train(config, lock, std::nullopt), out);
}

// A checkpoint that was copied here from another run would train something else under this run's name.
void expect_same_run(const std::filesystem::path& run, const Checkpoint& from, TrainConfig saved) {
  TrainConfig own;
  read_config(own, run / kConfigFile);
  if (own.model != saved.model || own.optimizer != saved.optimizer)
    fail("{}: a checkpoint of {} with {}, but the run is of {} with {}; take a checkpoint of this run",
         from.folder.string(), saved.model, saved.optimizer, own.model, own.optimizer);
  saved.device = own.device;
  saved.threads = own.threads;
  if (config_text(saved) != config_text(own))
    fail("{}: the configuration is not that of {}; take a checkpoint of this run", from.folder.string(),
         (run / kConfigFile).string());
}

// A run whose checkpoints were moved away, or lie on a disk that is not there, does not begin again in their place.
void expect_no_lost_checkpoints(const std::filesystem::path& run, const TrainConfig& config) {
  int64_t reached = 0;
  if (is_file(run / kMetricsFile)) {
    for (const auto& entry : read_json_lines(run / kMetricsFile))
      reached = std::max(reached, entry.value("step", int64_t{0}));
  }
  // At checkpoint_every itself it may have been killed before the checkpoint was there.
  if (is_file(run / kResultFile) || (config.checkpoint_every > 0 && reached > config.checkpoint_every))
    fail("{}: the run was at step {}, but its checkpoints are gone; put them back, or begin again with --overwrite",
         checkpoints_folder(run).string(), reached);
}

void resume(TrainArguments& given) {
  static const std::set<std::string> kMayChange = {"device", "threads"};
  for (const std::string& key : given.keys) {
    if (!kMayChange.contains(key))
      fail("{} with --resume: a run goes on with its own configuration; only --device and --threads may change",
           flag_of(key));
  }
  if (!given.config.empty() || !given.out.empty() || !given.options.empty() || given.overwrite)
    fail("--config, --out, --overwrite and -o are not for --resume: a run goes on with its own configuration");
  std::filesystem::path path = given.resume;
  if (!path.has_filename()) path = path.parent_path();  // a slash at the end
  const bool is_checkpoint = is_file(path / "manifest.json");
  if (is_checkpoint) path = std::filesystem::canonical(path);  // a link to one does not lie in its run
  const std::filesystem::path run = is_checkpoint ? path.parent_path().parent_path() : path;
  if (!has_run(run)) fail("{}: no run there; give the folder of a run or of a checkpoint in one", path.string());
  RunLock lock(run);  // before a checkpoint is chosen, so that nobody prunes it
  settle_run(lock);
  std::optional<Checkpoint> from;
  if (is_checkpoint) {
    from = open_checkpoint(path);
  } else if (!list_checkpoints(run).empty()) {
    from = open_latest_checkpoint(run);
  }
  TrainConfig config;
  if (from) {
    config = load_config(*from);
    expect_same_run(run, *from, config);
    say(fmt::format("going on after step {} of {}\n", from->step, config.steps));
  } else {
    read_config(config, run / kConfigFile);
    expect_no_lost_checkpoints(run, config);
    say(fmt::format("{} has no checkpoint yet: begins again\n", run.string()));
  }
  override_fields(config, given);
  resolve_config(config);
  report_end(train(config, lock, from), run);
}

}  // namespace

void add_train(CLI::App& program) {
  CLI::App* command = program.add_subcommand("train", "Train a model");
  auto given = std::make_shared<TrainArguments>();
  command->footer(fmt::format("Models: {}\nOptimizers: {}\n\n{}", fmt::join(model_names(), ", "),
                              fmt::join(optimizer_names(), ", "), kTrainExample));
  for_each_field(given->values, [&](const char* section, const char* key, auto& field, const char* explanation) {
    const bool positional = std::string_view(key) == "model";
    const std::string flag = positional ? "model" : flag_of(key);
    CLI::Option* option = nullptr;
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, bool>) {
      option = command->add_flag(flag + ",!--no-" + flag.substr(2), field, explanation);
    } else {
      option = command->add_option(flag, field, explanation)->capture_default_str()->take_last();
    }
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, uint64_t>) option->check(kWholeNumber);
    option->group(section)->each([given, key](const std::string&) { given->keys.insert(key); });
  });
  command->add_option("-o", given->options, "an option of the optimizer as NAME=VALUE; may be repeated")
      ->group("optimizer")
      ->expected(1)
      ->take_all();
  command->add_option("--config", given->config, "TOML file; options on the command line come before it");
  command->add_option("--out", given->out, "folder of the run; default: runs/MODEL-OPTIMIZER");
  command->add_option("--resume", given->resume, "go on with the run in this folder, or from this checkpoint of one");
  command->add_flag("--overwrite", given->overwrite, "begin again in the folder of an old run");
  command->callback([given] { given->resume.empty() ? start(*given) : resume(*given); });
}

}  // namespace lab
