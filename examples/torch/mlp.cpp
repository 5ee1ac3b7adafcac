// came::torch::CAME in a training loop of libtorch: a small network learns a function of two variables, with no decay
// on its biases, a falling learning rate, and a checkpoint half-way.
#include <torch/torch.h>

#include <came/torch.hpp>
#include <cstdio>
#include <memory>
#include <sstream>
#include <vector>

int main() try {
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(2, 64), torch::nn::Tanh(), torch::nn::Linear(64, 64), torch::nn::Tanh(),
                              torch::nn::Linear(64, 1));
  const torch::Tensor x = torch::rand({512, 2}) * 4 - 2;
  const torch::Tensor y = (x.select(1, 0) * x.select(1, 1)).sin().unsqueeze(1);

  std::vector<torch::Tensor> weights, biases;
  for (const torch::Tensor& p : model->parameters()) (p.dim() > 1 ? weights : biases).push_back(p);

  using came::torch::CAMEOptions;
  // A group keeps what its options were given; the rest comes from the last argument.
  came::torch::CAME optimizer({{weights}, {biases, std::make_unique<CAMEOptions>(CAMEOptions().weight_decay(0))}},
                              CAMEOptions(5e-3).weight_decay(0.01));
  torch::optim::StepLR scheduler(optimizer, /*step_size=*/100, /*gamma=*/0.5);

  double first = 0, last = 0;
  for (int step = 0; step < 400; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss = torch::mse_loss(model->forward(x), y);
    loss.backward();
    optimizer.step();
    scheduler.step();
    last = loss.item<double>();
    if (step == 0) first = last;
    if (step % 100 == 0)
      std::printf("step %3d  loss %.4f  lr %.2e\n", step, last, optimizer.param_groups()[0].options().get_lr());
    if (step == 200) {
      std::stringstream checkpoint;  // Or a file name.
      torch::save(optimizer, checkpoint);
      torch::load(optimizer, checkpoint);
    }
  }
  std::printf("loss %.2e -> %.2e\n", first, last);
  return last < first / 20 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "mlp: %s\n", error.what());
  return 1;
}
