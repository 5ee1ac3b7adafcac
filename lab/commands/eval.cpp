// came-lab eval: how well a checkpoint predicts validation text.
#include <memory>

#include "commands/commands.hpp"
#include "data/tokenizer.hpp"
#include "error.hpp"
#include "range.hpp"
#include "train/device.hpp"
#include "train/evaluate.hpp"
#include "train/snapshot.hpp"

namespace lab {
namespace {

struct EvalArguments {
  std::string path, data, device = "cpu";
  int64_t sequences = 0, length = 0;
};

void run_eval(const EvalArguments& given) {
  expect_range<int64_t>("--sequences", given.sequences, 0, kMostSteps);
  expect_range<int64_t>("--length", given.length, 0, kLongestSequence);
  const Checkpoint checkpoint = find_checkpoint(given.path);
  TrainConfig config = load_config(checkpoint);
  if (!given.data.empty()) config.data = given.data;
  if (given.length > 0) config.length = given.length;
  const c10::Device device = device_of(given.device);
  const Dataset dataset(config.data);
  const auto model = load_model(checkpoint, device);
  if (Tokenizer(checkpoint.file(kTokenizerFile)).fingerprint() != dataset.tokenizer().fingerprint())
    fail("{} has another tokenizer than the model was trained with; take the data of its own run", config.data);
  (void)config.model_config(dataset.info().vocabulary);  // the length
  const auto batches = dataset.batches(Dataset::Half::valid, config.validation_options());
  const Evaluation found =
      evaluate(*model, *batches, given.sequences, config.micro_batch_size(), device, config.precision == "bf16");
  fmt::print("{} after step {} on {}: loss {:.4f}, perplexity {:.2f}, accuracy {:.2f} % of {} tokens\n", config.model,
             checkpoint.step, config.data, found.loss, found.perplexity, 100 * found.accuracy, found.tokens);
  if (config.next_sentence) fmt::print("next sentence: loss {:.4f}\n", found.next_loss);
}

}  // namespace

void add_eval(CLI::App& program) {
  CLI::App* command = program.add_subcommand("eval", "Evaluate a run or a checkpoint on validation text");
  command->footer("Example:\n  came-lab eval runs/gpt2-tiny-came --sequences 1000\n");
  auto given = std::make_shared<EvalArguments>();
  command->add_option("run", given->path, "folder of a run (its newest checkpoint) or of a checkpoint")->required();
  command->add_option("--data", given->data, "where its dataset is now, if it was moved");
  command->add_option("--length", given->length, "tokens in a sequence; 0: as trained");
  command->add_option("--sequences", given->sequences, "how many; 0: all")->capture_default_str();
  command->add_option("--device", given->device, "cpu, cuda or cuda:N")->capture_default_str();
  command->callback([given] { run_eval(*given); });
}

}  // namespace lab
