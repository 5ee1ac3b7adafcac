// came-lab generate: what a causal model writes after a prompt.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "commands/commands.hpp"
#include "data/tokenizer.hpp"
#include "data/utf8.hpp"
#include "error.hpp"
#include "range.hpp"
#include "train/device.hpp"
#include "train/snapshot.hpp"

namespace lab {
namespace {

struct GenerateArguments {
  std::string path, prompt, device = "cpu";
  int64_t tokens = 200, top = 40;
  double temperature = 0.8;
  uint64_t seed = 1;
};

// One token drawn from the scores of the last position; temperature 0 takes the likeliest.
int64_t draw(at::Tensor scores, const GenerateArguments& given, at::Generator& random, int64_t pieces) {
  scores = scores.to(at::kCPU, at::kFloat).slice(0, 0, pieces);
  scores.slice(0, 0, kFirstPiece).fill_(-std::numeric_limits<float>::infinity());  // nothing but text
  if (given.temperature == 0) return scores.argmax().item<int64_t>();
  const auto [best, ids] = scores.topk(std::min(given.top > 0 ? given.top : pieces, pieces));
  const at::Tensor shares = at::softmax(best / given.temperature, 0);
  return ids[at::multinomial(shares, 1, false, random).item<int64_t>()].item<int64_t>();
}

// How many bytes of a text can be shown: all but the beginning of a character whose end may still come.
size_t printable(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) break;
    if (byte >= 0xc0) return back < (byte < 0xe0 ? 2U : byte < 0xf0 ? 3U : 4U) ? text.size() - back : text.size();
  }
  return text.size();
}

// Bytes that make no character, which a model may well draw, as the sign for that.
std::string valid_utf8(std::string text) {
  constexpr std::string_view kReplacement = "\uFFFD";
  for (size_t bad = 0; (bad = find_invalid_utf8(text)) != std::string::npos;) text.replace(bad, 1, kReplacement);
  return text;
}

void run_generate(const GenerateArguments& given) {
  if (const size_t bad = find_invalid_utf8(given.prompt); bad != std::string_view::npos)
    fail("--prompt is not UTF-8 at byte {}", bad);
  // Below 0.01, scores divided by it leave the range in which f32 tells them apart.
  if (given.temperature != 0) expect_range("--temperature", given.temperature, 0.01, 100.0);
  expect_range<int64_t>("--tokens", given.tokens, 1, 1'000'000);
  expect_range<int64_t>("--top", given.top, 0, kLargestVocabulary);
  const Checkpoint checkpoint = find_checkpoint(given.path);
  const TrainConfig config = load_config(checkpoint);
  const c10::Device device = device_of(given.device);
  const auto model = load_model(checkpoint, device);
  if (model->config().objective != Objective::causal)
    fail("{} does not write text; generate wants a run of GPT-2 or of the MLP", config.model);
  const Tokenizer tokenizer(checkpoint.file(kTokenizerFile));
  model->eval();

  const at::NoGradGuard no_grad;
  at::Generator random = at::make_generator<at::CPUGeneratorImpl>(given.seed);
  std::vector<int64_t> tokens = {kEnd};  // a document begins where another one ended
  for (const int64_t token : tokenizer.encode(given.prompt)) tokens.push_back(token);
  fmt::print("{}", given.prompt);
  size_t printed = given.prompt.size();
  const auto window = static_cast<size_t>(config.length);  // positions beyond were never trained
  for (int64_t k = 0; k < given.tokens; ++k) {
    const size_t begin = tokens.size() > window ? tokens.size() - window : 0;
    Batch batch;
    batch.input = at::tensor(at::ArrayRef<int64_t>(tokens).slice(begin), at::kLong).unsqueeze(0).to(device);
    tokens.push_back(draw(model->logits(batch)[0][-1], given, random, tokenizer.size()));
    // Bytes of a character that takes several come out when it is whole.
    const std::string text = tokenizer.decode(tokens);
    const size_t whole = printed + printable(std::string_view(text).substr(printed));
    fmt::print("{}", valid_utf8(text.substr(printed, whole - printed)));
    std::fflush(stdout);
    printed = whole;
  }
  fmt::print("\n");
}

}  // namespace

void add_generate(CLI::App& program) {
  CLI::App* command = program.add_subcommand("generate", "Let a GPT-2 or the MLP write after a prompt");
  command->footer("Example:\n  came-lab generate runs/gpt2-tiny-came --prompt \"Return the\" --tokens 100\n");
  auto given = std::make_shared<GenerateArguments>();
  command->add_option("run", given->path, "folder of a run (its newest checkpoint) or of a checkpoint")->required();
  command->add_option("--prompt", given->prompt, "how the text begins");
  command->add_option("--tokens", given->tokens, "how many to add")->capture_default_str();
  command->add_option("--temperature", given->temperature, "from 0.01 to 100; 0: always the likeliest token")
      ->capture_default_str();
  command->add_option("--top", given->top, "draw from so many of the likeliest; 0: from all")->capture_default_str();
  command->add_option("--seed", given->seed, "of the drawing")->check(kWholeNumber)->capture_default_str();
  command->add_option("--device", given->device, "cpu, cuda or cuda:N")->capture_default_str();
  command->callback([given] { run_generate(*given); });
}

}  // namespace lab
