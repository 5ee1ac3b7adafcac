#include "train/evaluate.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "train/device.hpp"

namespace lab {
namespace {

constexpr int64_t kCounted = 16384;
constexpr int64_t kAtOnce = 256;  // sequences in memory

// How often each token is a target in the first `sequences`.
at::Tensor count_targets(const Batches& batches, int64_t sequences, int64_t vocabulary) {
  at::Tensor counts = at::zeros({vocabulary}, at::kDouble);
  for (int64_t first = 0; first < sequences; first += kAtOnce) {
    const Batch batch = batches.batch(first, std::min(kAtOnce, sequences - first));
    counts += at::bincount(batch.targets.flatten(), {}, vocabulary);
  }
  return counts;
}

}  // namespace

double unigram_loss(const Batches& training, const Batches& validation, int64_t sequences, int64_t vocabulary) {
  if (sequences == 0 || sequences > validation.pass()) sequences = validation.pass();
  const at::Tensor seen = count_targets(training, std::min(kCounted, training.pass()), vocabulary) + 1;
  const at::Tensor wanted = count_targets(validation, sequences, vocabulary);
  return -(wanted * at::log(seen / seen.sum())).sum().item<double>() / wanted.sum().item<double>();
}

Evaluation evaluate(Model& model, const Batches& batches, int64_t sequences, int64_t micro_batch, c10::Device device,
                    bool bf16) {
  const at::NoGradGuard no_grad;
  const bool training = model.is_training();
  model.eval();
  if (sequences == 0 || sequences > batches.pass()) sequences = batches.pass();
  const auto sum = at::TensorOptions(device).dtype(at::kDouble);
  at::Tensor tokens = at::zeros({}, sum), next = at::zeros({}, sum), correct = at::zeros({}, sum);
  Evaluation made;
  for (int64_t first = 0; first < sequences; first += micro_batch) {
    const Batch batch = batches.batch(first, std::min(micro_batch, sequences - first)).to(device);
    const Precision precision(device, bf16);
    const Loss loss = model.loss(batch);
    tokens += loss.tokens;
    correct += loss.correct;
    if (loss.next.defined()) next += loss.next;
    made.tokens += batch.predicted();
  }
  model.train(training);
  made.loss = tokens.item<double>() / static_cast<double>(made.tokens);
  made.perplexity = std::exp(made.loss);
  made.accuracy = correct.item<double>() / static_cast<double>(made.tokens);
  made.next_loss = next.item<double>() / static_cast<double>(sequences);
  return made;
}

}  // namespace lab
