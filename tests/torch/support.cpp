#include "support.hpp"

namespace torch_test {
namespace {

DType dtype_of_tensor(const at::Tensor& t) {
  switch (t.scalar_type()) {
    case at::kDouble:
      return DType::f64;
    case at::kBFloat16:
      return DType::bf16;
    case at::kHalf:
      return DType::f16;
    default:
      return DType::f32;
  }
}

TensorView view(const at::Tensor& t) {
  return {t.data_ptr(), {t.sizes().data(), t.sizes().size()}, dtype_of_tensor(t)};
}

}  // namespace

std::unique_ptr<came::torch::Options> make_options(const std::string& word, const Settings& settings) {
  std::unique_ptr<came::torch::Options> made;
  came::torch::for_each_options([&](const auto& options) {
    using Options = std::decay_t<decltype(options)>;
    if (options.core().word() == word) made = make_options_of<Options>(settings);
  });
  return made;
}

std::unique_ptr<came::torch::Optimizer> make_optimizer(const std::string& word,
                                                       const std::vector<OptimizerParamGroup>& groups,
                                                       const Settings& settings) {
  std::unique_ptr<came::torch::Optimizer> made;
  const auto given = make_options(word, settings);
  came::torch::for_each_options([&](const auto& options) {
    using Options = std::decay_t<decltype(options)>;
    if (options.core().word() != word) return;
    made = std::make_unique<came::torch::OptimizerOf<Options>>(groups, static_cast<Options&>(*given));
  });
  return made;
}

ModelImpl::ModelImpl(uint64_t seed, at::ScalarType dtype) {
  torch::manual_seed(seed);
  conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 12, 3).padding(1)));
  qkv = register_module("qkv", torch::nn::Linear(12, 36));
  out = register_module("out", torch::nn::Linear(12, 12));
  up = register_module("up", torch::nn::Linear(12, 40));
  down = register_module("down", torch::nn::Linear(40, 12));
  head = register_module("head", torch::nn::Linear(12, 10));
  norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({12})));
  gain = register_parameter("gain", torch::ones({}));
  to(dtype);
  images_ = torch::randn({4, 8, 3, 6, 6}).to(dtype);
  labels_ = torch::randint(10, {4, 8});
}

at::Tensor ModelImpl::forward(at::Tensor images) {
  at::Tensor x = torch::relu(conv(images)).flatten(2).transpose(1, 2);
  const auto parts = qkv(norm(x)).chunk(3, -1);
  x = x + out(torch::softmax(parts[0].matmul(parts[1].transpose(1, 2)) * 0.3, -1).matmul(parts[2]));
  x = x + down(torch::gelu(up(x)));
  return head(x.mean(1)) * gain;
}

at::Tensor ModelImpl::loss(int k) {
  return torch::nn::functional::cross_entropy(forward(images_[k % 4]).to(at::kFloat), labels_[k % 4]);
}

double compute_gradients(Model& model, int k) {
  model->zero_grad();
  at::Tensor loss = model->loss(k);
  loss.backward();
  return loss.item<double>();
}

Twin::Twin(const std::vector<at::Tensor>& params, const std::vector<came::Options>& options,
           const std::vector<int>& groups) {
  std::vector<TensorSpec> tensors;
  for (size_t k = 0; k < params.size(); ++k) {
    params_.push_back(params[k].detach().clone());
    TensorSpec spec;
    spec.shape = params[k].sizes().vec();
    spec.dtype = dtype_of_tensor(params[k]);
    spec.group = groups[k];
    spec.id = k;
    tensors.push_back(spec);
  }
  plan_ = std::make_unique<Plan>(options, tensors);
  specs_ = plan_->state();
  for (const StateSpec& spec : specs_) states_.emplace_back((spec.bytes + 7) / 8, 0);
  steps_.assign(params.size(), 0);
  workspace_.resize(static_cast<size_t>(plan_->memory().workspace_bytes + 7) / 8);
  reductions_.resize(static_cast<size_t>(plan_->memory().reduction_bytes + 7) / 8);
}

void Twin::step(const std::vector<at::Tensor>& params, const std::vector<double>& rates) {
  std::vector<TensorView> own, grads, states;
  std::vector<uint8_t> active;
  for (size_t k = 0; k < params.size(); ++k) {
    own.push_back(view(params_[k]));
    const at::Tensor& grad = params[k].grad();
    active.push_back(grad.defined() ? 1 : 0);
    grads.push_back(view(grad.defined() ? grad : params_[k]));
  }
  for (size_t k = 0; k < specs_.size(); ++k) {
    states.emplace_back(static_cast<void*>(states_[k].data()), std::span<const int64_t>(specs_[k].shape),
                        specs_[k].dtype);
  }
  const auto count = static_cast<int64_t>(params.size()), group_count = static_cast<int64_t>(rates.size());
  const TensorView counters(steps_.data(), {&count, 1}), lr(rates.data(), {&group_count, 1});
  Step call;
  call.set_tensors(own, grads);
  call.set_states(states);
  call.set_buffers(workspace_, reductions_);
  call.step = &counters;
  call.active = active.data();
  call.lr = &lr;
  plan_->step(call);
}

void Twin::expect_equal(const std::vector<at::Tensor>& params, const came::torch::Optimizer& optimizer) const {
  std::vector<size_t> next(params.size(), 0);
  for (size_t k = 0; k < params.size(); ++k) {
    EXPECT_TRUE(same_bits(params[k], params_[k])) << "parameter " << k;
    const auto found = optimizer.state().find(params[k].unsafeGetTensorImpl());
    const int64_t step =
        found == optimizer.state().end() ? 0 : static_cast<came::torch::ParamState&>(*found->second).step;
    EXPECT_EQ(step, steps_[k]) << "parameter " << k;
  }
  for (size_t s = 0; s < specs_.size(); ++s) {
    const auto found = optimizer.state().find(params[static_cast<size_t>(specs_[s].tensor)].unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;
    const at::Tensor& tensor = static_cast<came::torch::ParamState&>(*found->second).at(specs_[s].name);
    ASSERT_EQ(static_cast<int64_t>(tensor.nbytes()), specs_[s].bytes) << specs_[s].name;
    EXPECT_EQ(std::memcmp(tensor.data_ptr(), states_[s].data(), tensor.nbytes()), 0)
        << specs_[s].name << " of parameter " << specs_[s].tensor;
  }
}

}  // namespace torch_test
