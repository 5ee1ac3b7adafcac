// came-lab export: a checkpoint as a folder that transformers' from_pretrained loads.
#include <filesystem>
#include <memory>

#include "commands/commands.hpp"
#include "error.hpp"
#include "storage/file.hpp"
#include "train/snapshot.hpp"
#include "train/tensors.hpp"

namespace lab {
namespace {

struct ExportArguments {
  std::string path, output;
};

void run_export(const ExportArguments& given) {
  const Checkpoint checkpoint = find_checkpoint(given.path);
  const auto model = load_model(checkpoint, c10::kCPU);
  const std::filesystem::path output = given.output;
  if (std::filesystem::exists(output) && !std::filesystem::is_empty(output))
    fail("{}: not empty; choose another folder", output.string());
  make_folders(output);
  write_tensors(output / kWeightsFile, parameters_of(*model), {{"format", "pt"}});
  write_file(output / kModelFile, model->huggingface_config().dump(2) + "\n");
  write_file(output / kTokenizerFile, read_file(checkpoint.file(kTokenizerFile)));
  const auto classes = model->huggingface_config().at("architectures");
  if (classes.empty()) {
    fmt::print("{}: weights and config.json; transformers has no such model\n", output.string());
  } else {
    fmt::print("{}: load it with transformers.{}.from_pretrained(\"{}\")\n", output.string(),
               classes[0].get<std::string>(), output.string());
  }
}

}  // namespace

void add_export(CLI::App& program) {
  CLI::App* command = program.add_subcommand("export", "Write a checkpoint for Hugging Face's transformers");
  command->footer("Example:\n  came-lab export runs/bert-tiny-came exported/bert\n");
  auto given = std::make_shared<ExportArguments>();
  command->add_option("run", given->path, "folder of a run (its newest checkpoint) or of a checkpoint")->required();
  command->add_option("output", given->output, "folder to write")->required();
  command->callback([given] { run_export(*given); });
}

}  // namespace lab
