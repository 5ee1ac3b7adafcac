// came::Optimizer on a toy problem: pull a 4x3 matrix towards a target, loss = |W - T|^2 / 2.
#include <came/came.hpp>
#include <cstdio>

int main() try {
  const std::vector<int64_t> shape{4, 3};
  std::vector<float> w(12, 0.0F), grad(12);

  came::Options options = came::Options::came();
  options.lr = 0.01;
  came::Optimizer optimizer(options, {{"w", {w.data(), shape}, {grad.data(), shape}}});

  double first = 0, loss = 0;
  for (int step = 0; step <= 200; ++step) {
    loss = 0;
    for (size_t k = 0; k < w.size(); ++k) {
      grad[k] = w[k] - static_cast<float>(k) / 12;  // The target is 0, 1/12, 2/12, ...
      loss += 0.5 * grad[k] * grad[k];
    }
    if (step == 0) first = loss;
    optimizer.step();
  }
  std::printf("loss %.2e -> %.2e\n", first, loss);
  return loss < first / 100 ? 0 : 1;
} catch (const came::Error& error) {
  std::fprintf(stderr, "minimal: %s\n", error.what());
  return 1;
}
