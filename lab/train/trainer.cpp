#include "train/trainer.hpp"

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "data/tokenizer.hpp"
#include "error.hpp"
#include "say.hpp"
#include "storage/event_file.hpp"
#include "storage/file.hpp"
#include "storage/json_lines.hpp"
#include "train/device.hpp"
#include "train/evaluate.hpp"
#include "train/optimizers.hpp"
#include "train/progress.hpp"
#include "train/run_files.hpp"
#include "train/schedule.hpp"
#include "train/signals.hpp"
#include "train/snapshot.hpp"
#include "train/step.hpp"

namespace lab {
namespace {

using Clock = std::chrono::steady_clock;
using Scalars = std::vector<std::pair<std::string, double>>;

constexpr const char* kMetric = "valid_loss";

int64_t parameter_count(const Model& model) {
  int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  return count;
}

class Run {
 public:
  Run(const TrainConfig& config, RunLock& lock, const std::optional<Checkpoint>& from)
      : config_(config),
        lock_(lock),
        device_(device_of(config.device)),
        dataset_(config.data),
        training_(dataset_.batches(Dataset::Half::train, config.batch_options())),
        validation_(dataset_.batches(Dataset::Half::valid, config.validation_options())),
        model_(make_model(config.model_config(dataset_.info().vocabulary))) {
    if (config.threads > 0) at::set_num_threads(static_cast<int>(config.threads));
    torch::manual_seed(config.seed);
    if (!from) model_->initialize();
    model_->to(device_);
    optimizer_ = make_optimizer(config.optimizer, config.lr, config.options, *model_);
    if (from) resume(*from);
  }

  RunEnd train();

 private:
  void resume(const Checkpoint& from);
  void begin();
  void log(const StepResult& result);
  void expect_finite(const StepResult& result) const;
  [[noreturn]] void diverged(const std::string& what) const;
  void evaluate_now();
  void save();
  void finish();
  [[nodiscard]] nlohmann::json median_of(const char* key) const;

  TrainConfig config_;
  RunLock& lock_;
  c10::Device device_;
  Dataset dataset_;
  std::unique_ptr<Batches> training_, validation_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  // Open once the folder is this run's.
  std::optional<JsonLines> metrics_, timing_;
  std::optional<EventFile> events_;

  std::optional<int64_t> from_;                   // the step of the checkpoint that it goes on from
  int64_t metrics_bytes_ = 0, timing_bytes_ = 0;  // of the files, then
  int64_t step_ = 0;                              // done so far
  int64_t saved_ = -1;                            // the last one in a checkpoint
  std::optional<Evaluation> evaluation_;
  int64_t evaluated_ = -1;  // the step of evaluation_
  Clock::time_point logged_at_ = Clock::now();
  int64_t logged_ = 0, tokens_since_ = 0;
  double untimed_ = 0;  // seconds of evaluations and checkpoints since the last entry
  double loss_ = 0, tokens_per_second_ = 0, optimizer_share_ = 0;
};

// Reads and checks all that the run goes on with, and changes nothing on disk.
void Run::resume(const Checkpoint& from) {
  if (Tokenizer(from.file(kTokenizerFile)).fingerprint() != dataset_.tokenizer().fingerprint())
    fail("{} has another tokenizer than the run was begun with; give it its own data back", config_.data);
  load_snapshot(from, config_.optimizer, *model_, *optimizer_, device_);
  from_ = step_ = saved_ = logged_ = from.step;
  const auto file = [&](const char* name) { return lock_.run() / name; };
  try {
    const auto metrics = from.about.at("metrics_bytes").get<int64_t>();
    metrics_bytes_ = length_to_keep(file(kMetricsFile), metrics);
    if (metrics_bytes_ != metrics) say(fmt::format("{}: lost; begins anew\n", file(kMetricsFile).string()));
    const auto timing = from.about.at("timing_bytes").get<int64_t>();
    timing_bytes_ = whole_lines(file(kTimingFile), timing);
    if (timing_bytes_ != timing)
      say(fmt::format("{}: lost, or a part of it; goes on with the rest\n", file(kTimingFile).string()));
    if (const auto found = from.about.find("evaluation"); found != from.about.end()) {
      evaluated_ = found->at("step");
      evaluation_.emplace(Evaluation{found->at("loss"), found->at("perplexity"), found->at("accuracy"),
                                     found->at("next_loss"), found->at("tokens")});
    }
  } catch (const nlohmann::json::exception&) {
    fail("{}: its manifest does not say how far the run was; take another checkpoint", from.folder.string());
  }
  if (step_ >= config_.steps && !evaluation_)
    fail("{}: of the last step, but without an evaluation; take another checkpoint", from.folder.string());
}

// Makes the folder this run's.  From here on an old run in it, or the checkpoints after the one it goes on from, are
// gone.
void Run::begin() {
  if (from_) {
    go_back(lock_, *from_, *from_ >= config_.steps);
  } else {
    begin_run(lock_, config_text(config_));
  }
  metrics_.emplace(lock_.run() / kMetricsFile, metrics_bytes_);
  timing_.emplace(lock_.run() / kTimingFile, timing_bytes_);
  events_.emplace(lock_.run(), from_ ? std::optional(*from_ + 1) : std::nullopt);
  events_->text(from_.value_or(0), "config", "```toml\n" + config_text(config_) + "```\n");
}

RunEnd Run::train() {
  const StopOnSignal stop;
  ProgressLine line(config_.model + " · " + config_.optimizer, config_.steps, step_);
  model_->train();
  logged_at_ = Clock::now();
  while (step_ < config_.steps && !StopOnSignal::flag()) {
    const bool last = step_ + 1 == config_.steps;
    const bool logged = (step_ + 1) % config_.log_every == 0 || last || step_ == 0;
    const StepResult result = take_step(*model_, *optimizer_, *training_, config_, step_ + 1, device_, logged);
    ++step_;
    tokens_since_ += result.tokens;
    if (!metrics_) {
      expect_finite(result);
      const auto reached = Clock::now();
      begin();
      untimed_ += std::chrono::duration<double>(Clock::now() - reached).count();
    }
    if (logged) log(result);
    const auto begun = Clock::now();
    if (last || (config_.eval_every > 0 && step_ % config_.eval_every == 0)) {
      evaluate_now();
      line.print(fmt::format("step {:>6}  validation loss {:.4f}  perplexity {:.2f}  accuracy {:.1f} %", step_,
                             evaluation_->loss, evaluation_->perplexity, 100 * evaluation_->accuracy));
    }
    if (last || (config_.checkpoint_every > 0 && step_ % config_.checkpoint_every == 0)) save();
    untimed_ += std::chrono::duration<double>(Clock::now() - begun).count();
    line.update(step_, fmt::format("step {}  loss {:.3f}  {} tokens/s  optimizer {:.0f} %  {}", step_, loss_,
                                   count_text(tokens_per_second_), 100 * optimizer_share_,
                                   count_text(static_cast<double>(peak_memory(device_)), 1024)));
  }
  line.finish();
  if (step_ < config_.steps) {
    if (metrics_ && saved_ != step_) save();
    return {step_, StopOnSignal::number()};
  }
  if (!metrics_) begin();
  finish();
  return {step_, 0};
}

void Run::diverged(const std::string& what) const {
  fail("{} at step {}; take a smaller lr than {:g}, a longer warmup than {} or a smaller clip{}", what, step_,
       config_.lr, config_.warmup, saved_ > 0 ? fmt::format("; the checkpoint of step {} is kept", saved_) : "");
}

void Run::expect_finite(const StepResult& result) const {
  const double loss = result.loss.item<double>();
  if (!std::isfinite(loss)) diverged(fmt::format("the loss is {}", loss));
}

void Run::log(const StepResult& result) {
  expect_finite(result);
  loss_ = result.loss.item<double>();
  const double rate = config_.lr * rate_factor(config_, step_), norm = result.grad_norm.item<double>();
  metrics_->append({{"step", step_}, {"loss", loss_}, {"lr", rate}, {"grad_norm", norm}});
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - logged_at_).count() - untimed_;
  const auto steps = static_cast<double>(step_ - logged_);
  tokens_per_second_ = static_cast<double>(tokens_since_) / seconds;
  optimizer_share_ = result.optimizer_seconds / result.seconds;
  timing_->append({{"step", step_},
                   {"seconds_per_step", seconds / steps},
                   {"tokens_per_second", tokens_per_second_},
                   {"optimizer_seconds", result.optimizer_seconds},
                   {"optimizer_share", optimizer_share_},
                   {"peak_bytes", peak_memory(device_)}});
  events_->scalars(step_, Scalars{{"loss/train", loss_},
                                  {"lr", rate},
                                  {"grad_norm", norm},
                                  {"speed/tokens_per_second", tokens_per_second_},
                                  {"speed/optimizer_share", optimizer_share_}});
  logged_at_ = now;
  logged_ = step_;
  tokens_since_ = 0;
  untimed_ = 0;
}

void Run::evaluate_now() {
  evaluation_ = evaluate(*model_, *validation_, config_.eval_sequences, config_.micro_batch_size(), device_,
                         config_.precision == "bf16");
  evaluated_ = step_;
  if (!std::isfinite(evaluation_->perplexity)) diverged(fmt::format("the validation loss is {}", evaluation_->loss));
  nlohmann::ordered_json entry = {{"step", step_},
                                  {kMetric, evaluation_->loss},
                                  {"perplexity", evaluation_->perplexity},
                                  {"accuracy", evaluation_->accuracy}};
  Scalars points = {{"loss/valid", evaluation_->loss},
                    {"valid/perplexity", evaluation_->perplexity},
                    {"valid/accuracy", evaluation_->accuracy}};
  if (config_.next_sentence) {
    entry["next_loss"] = evaluation_->next_loss;
    points.emplace_back("loss/next_sentence", evaluation_->next_loss);
  }
  metrics_->append(entry);
  events_->scalars(step_, points);
}

void Run::save() {
  // A checkpoint of broken weights would take the place of good ones.
  for (const auto& parameter : model_->named_parameters()) {
    if (!std::isfinite(parameter.value().detach().sum().item<double>()))
      diverged(fmt::format("{} is no longer finite", parameter.key()));
  }
  metrics_->sync();
  timing_->sync();
  nlohmann::json about = {{"step", step_},
                          {"model", config_.model},
                          {"optimizer", config_.optimizer},
                          {"metrics_bytes", metrics_->size()},
                          {"timing_bytes", timing_->size()}};
  if (evaluation_) {
    about["evaluation"] = {{"step", evaluated_},
                           {"loss", evaluation_->loss},
                           {"perplexity", evaluation_->perplexity},
                           {"accuracy", evaluation_->accuracy},
                           {"next_loss", evaluation_->next_loss},
                           {"tokens", evaluation_->tokens}};
    if (evaluated_ == step_) about[kMetric] = evaluation_->loss;  // the best checkpoint has the least
  }
  save_snapshot(lock_, step_, *model_, *optimizer_, config_, dataset_.tokenizer_file(), device_, about);
  saved_ = step_;
  prune_checkpoints(lock_, {.last = config_.keep, .metric = kMetric}, step_);
}

// The middle entry of timing.jsonl; null where there is none.  A file that was damaged since is no reason to fail a run
// that is done.
nlohmann::json Run::median_of(const char* key) const {
  std::vector<double> values;
  try {
    for (const auto& entry : read_json_lines(lock_.run() / kTimingFile)) {
      if (const auto found = entry.find(key); found != entry.end() && found->is_number()) values.push_back(*found);
    }
  } catch (const Error& error) {
    say(fmt::format("{}\n", error.what()));
  }
  if (values.size() > 1) values.erase(values.begin());  // the first step also builds tables and warms caches
  if (values.empty()) return nullptr;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void Run::finish() {
  const double unigram = unigram_loss(*training_, *validation_, config_.eval_sequences, model_->config().vocabulary);
  const nlohmann::ordered_json result = {{"model", config_.model},
                                         {"optimizer", config_.optimizer},
                                         {"parameters", parameter_count(*model_)},
                                         {"steps", step_},
                                         {kMetric, evaluation_->loss},
                                         {"perplexity", evaluation_->perplexity},
                                         {"accuracy", evaluation_->accuracy},
                                         {"unigram_loss", unigram},
                                         {"seconds_per_step", median_of("seconds_per_step")},
                                         {"optimizer_share", median_of("optimizer_share")},
                                         {"state_bytes", state_bytes(*optimizer_)},
                                         {"peak_bytes", peak_memory(device_)}};
  write_file(lock_.run() / kResultFile, result.dump(2) + "\n");
}

}  // namespace

void check_training(const TrainConfig& config) {
  (void)device_of(config.device);
  const Dataset dataset(config.data);
  const ModelConfig sizes = config.model_config(dataset.info().vocabulary);
  for (const auto half : {Dataset::Half::train, Dataset::Half::valid}) {
    const Batch batch = dataset.batches(half, config.batch_options())->batch(0, 1);
    if (batch.decoder_input.defined() && batch.decoder_input.size(1) > sizes.positions) {
      fail(
          "length {}, mask_rate {} and span_length {} make {} tokens for the decoder, but {} takes {} at most; lower "
          "one",
          config.length, config.mask_rate, config.span_length, batch.decoder_input.size(1), config.model,
          sizes.positions);
    }
  }
  // Shapes without memory.
  const auto model = make_model(sizes, at::kMeta);
  (void)make_optimizer(config.optimizer, config.lr, config.options, *model);
}

RunEnd train(const TrainConfig& config, RunLock& run, const std::optional<Checkpoint>& from) {
  return Run(config, run, from).train();
}

}  // namespace lab
