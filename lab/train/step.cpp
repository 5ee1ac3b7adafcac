// The loss is a sum divided by the whole batch's number of predicted tokens, so that micro-batches give the
// gradient of the whole.
#include "train/step.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <vector>

#include "train/device.hpp"
#include "train/schedule.hpp"

namespace lab {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::vector<Batch> micro_batches_of(const Batches& batches, const TrainConfig& config, int64_t step) {
  std::vector<Batch> all;
  const int64_t first = (step - 1) * config.batch;
  for (int64_t done = 0; done < config.batch; done += config.micro_batch_size())
    all.push_back(batches.batch(first + done, config.micro_batch_size()));
  return all;
}

// Mixup's weight and partners for one micro-batch of a step; the same ones whenever that step is taken.
Mix draw_mix(const TrainConfig& config, int64_t step, int64_t micro_batch, int64_t sequences, c10::Device device) {
  std::seed_seq seeds{config.seed, static_cast<uint64_t>(step), static_cast<uint64_t>(micro_batch)};
  std::mt19937_64 random(seeds);
  std::gamma_distribution<double> gamma(config.mixup);
  const double a = gamma(random), b = gamma(random);
  std::vector<int64_t> partner(static_cast<size_t>(sequences));
  std::iota(partner.begin(), partner.end(), 0);
  std::shuffle(partner.begin(), partner.end(), random);
  return {a + b > 0 ? a / (a + b) : 0.5, at::tensor(partner, at::kLong).to(device)};
}

std::vector<at::Tensor> gradients_of(const Model& model) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model.parameters()) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

// Scales the gradients where their norm is above the bound; the norm stays on the device.
at::Tensor clip(const std::vector<at::Tensor>& gradients, double bound) {
  const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients)));
  if (bound > 0) at::_foreach_mul_(gradients, at::clamp_max(bound / (norm + 1e-6), 1.0));
  return norm;
}

}  // namespace

StepResult take_step(Model& model, torch::optim::Optimizer& optimizer, const Batches& batches,
                     const TrainConfig& config, int64_t step, c10::Device device, bool measure) {
  if (measure) wait_for(device);
  const auto start = Clock::now();
  const std::vector<Batch> micro_batches = micro_batches_of(batches, config, step);
  int64_t predicted = 0;
  for (const Batch& batch : micro_batches) predicted += batch.predicted();

  StepResult result;
  result.loss = at::zeros({}, at::TensorOptions(device).dtype(at::kFloat));
  optimizer.zero_grad();
  for (size_t k = 0; k < micro_batches.size(); ++k) {
    const Batch batch = micro_batches[k].to(device);
    Mix mix;
    if (config.mixup > 0) mix = draw_mix(config, step, static_cast<int64_t>(k), batch.sequences(), device);
    at::Tensor loss;
    {
      const Precision precision(device, config.precision == "bf16");
      const Loss sums = model.loss(batch, config.mixup > 0 ? &mix : nullptr);
      loss = sums.tokens / static_cast<double>(predicted);
      result.loss += loss.detach();
      if (sums.next.defined()) loss = loss + sums.next / static_cast<double>(config.batch);
    }
    loss.backward();
    result.tokens += batch.tokens();
  }
  const at::NoGradGuard no_grad;
  result.grad_norm = clip(gradients_of(model), config.clip);

  if (measure) wait_for(device);
  const auto stepped = Clock::now();
  for (auto& group : optimizer.param_groups()) group.options().set_lr(config.lr * rate_factor(config, step));
  optimizer.step();
  if (measure) {
    wait_for(device);
    result.optimizer_seconds = seconds_since(stepped);
    result.seconds = seconds_since(start);
  }
  return result;
}

}  // namespace lab
