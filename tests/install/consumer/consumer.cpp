// Uses an installed library from C++: a step of CAME on f32, and an error that must arrive as an exception.
#include <came/came.hpp>
#include <cmath>
#include <cstdio>

namespace {

bool error_is_thrown() {
  try {
    came::Options::came().set("no_such_option", "1");
  } catch (const came::Error& error) {
    return error.status() == came::Status::invalid_argument && *error.what() != '\0';
  }
  return false;
}

}  // namespace

int main() {
  const std::vector<int64_t> shape{3, 2};
  std::vector<float> w(6, 0.0F), grad(6, 0.5F);
  came::Options options = came::Options::came();
  came::Optimizer optimizer(options, {{"w", {w.data(), shape}, {grad.data(), shape}}});
  optimizer.step();

  // Equal gradients: the clipped update is 1, m = 1 - beta1 = 0.1, the corrected instability (1 - m)^2 = 0.81, so the
  // step is lr * 0.1 / 0.9.  A handful of f32 roundings of 2^-24 each stay below a relative error of 1e-6.
  bool good = error_is_thrown();
  for (const float value : w) good = good && std::abs(static_cast<double>(value) * -9.0 / options.lr - 1.0) < 1e-6;
  std::printf("consumer: w = %.9f, state %lld bytes\n", static_cast<double>(w[0]),
              static_cast<long long>(optimizer.memory().state_bytes));
  return good ? 0 : 1;
}
