// came-lab data: turns text into a dataset and says what is in it.
#include <memory>

#include "commands/commands.hpp"
#include "commands/exit.hpp"
#include "data/prepare.hpp"
#include "error.hpp"
#include "say.hpp"
#include "train/progress.hpp"
#include "train/signals.hpp"

namespace lab {
namespace {

constexpr const char* kDataExample =
    "Examples:\n"
    "  came-lab data runs/data                                   # the default corpus\n"
    "  came-lab data runs/mine my-notes/ more.txt --vocabulary 8000\n"
    "  came-lab data runs/wiki articles.txt --documents blank-line\n"
    "  came-lab data runs/web pages.jsonl --text-key content\n";

// One line per stage of the work.
class Stages {
 public:
  void operator()(const Progress& progress) {
    if (stage_ != progress.stage) {
      if (line_) line_->finish();
      stage_ = progress.stage;
      line_ = std::make_unique<ProgressLine>(stage_, progress.total);
    }
    line_->update(progress.done, count_text(static_cast<double>(progress.done), 1024));
  }
  void finish() {
    if (line_) line_->finish();
  }

 private:
  std::string stage_;
  std::unique_ptr<ProgressLine> line_;
};

void run_data(const PrepareOptions& options) {
  const StopOnSignal stop;
  Stages stages;
  DatasetInfo info;
  try {
    info = prepare(
        options, [&](const Progress& progress) { stages(progress); }, &StopOnSignal::flag());
  } catch (const Error& error) {
    if (!StopOnSignal::flag()) throw;
    say(fmt::format("\ncame-lab: {}\n", error.what()));
    throw Exit{128 + StopOnSignal::number()};
  }
  stages.finish();
  fmt::print("{}: {} tokens of {} documents to train on, {} of {} to validate; vocabulary {}, {:.2f} bytes per token\n",
             options.output.string(), count_text(static_cast<double>(info.train_tokens)), info.train_documents,
             count_text(static_cast<double>(info.valid_tokens)), info.valid_documents, info.vocabulary,
             info.bytes_per_token);
  fmt::print(
      "Unigram baseline (a model that knows only token frequencies): a loss of {:.3f}.\n"
      "Next: came-lab train gpt2-tiny --data {}\n",
      info.unigram_loss, options.output.string());
}

}  // namespace

void add_data(CLI::App& program) {
  CLI::App* command = program.add_subcommand("data", "Turn text into tokens to train on");
  command->footer(kDataExample);
  auto options = std::make_shared<PrepareOptions>();
  const std::map<std::string, DocumentRule> rules = {{"auto", DocumentRule::automatic},
                                                     {"file", DocumentRule::file},
                                                     {"blank-line", DocumentRule::blank_line},
                                                     {"line", DocumentRule::line}};
  command->add_option("output", options->output, "folder to write")->required();
  command->add_option("inputs", options->inputs, "files and folders of text or JSONL; none: the default corpus");
  command->add_option("--vocabulary", options->vocabulary, "pieces of the tokenizer")->capture_default_str();
  command->add_option("--validation", options->validation_share, "share of documents kept for validation")
      ->capture_default_str();
  command->add_option("--documents", options->documents, "where a document ends: auto, file, blank-line or line")
      ->transform(CLI::Transformer(rules, CLI::ignore_case))
      ->option_text("RULE");
  command->add_option("--text-key", options->text_key, "key of the text in a line of JSONL")->capture_default_str();
  command->add_option("--suffixes", options->suffixes, "ending of files in a folder that are read; may be repeated")
      ->capture_default_str()
      ->expected(1)
      ->take_all();
  command->add_option("--sample", options->sample_bytes, "bytes of text that the tokenizer is trained on")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of the split and of the sample")
      ->check(kWholeNumber)
      ->capture_default_str();
  command->add_option("--threads", options->threads, "0: one per core")->capture_default_str();
  command->add_flag("--force", options->force, "replace a dataset that is there");
  command->callback([options] { run_data(*options); });
}

}  // namespace lab
