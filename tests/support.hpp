// A plan with memory for everything it needs, filled with seeded numbers: what most tests start from.
//
// Tests see host memory only.  On a device a Trial runs on copies of it (mirror.hpp), taken before and brought back
// after.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "came/came.hpp"
#include "core/backend.hpp"
#include "core/dtype.hpp"
#include "core/plan.hpp"
#include "core/step.hpp"
#include "mirror.hpp"

namespace came::test {

/// A copy of memory that a failed comparison does not print.
struct Bytes {
  std::string data;

  bool operator==(const Bytes&) const = default;
  Bytes& operator+=(const Bytes& more) {
    data += more.data;
    return *this;
  }
  friend Bytes operator+(Bytes a, const Bytes& b) { return a += b; }
  [[nodiscard]] size_t size() const { return data.size(); }
  friend void PrintTo(const Bytes& bytes, std::ostream* out) { *out << bytes.size() << " bytes"; }
};

/// Zeroed memory, aligned for every element type.
class Buffer {
 public:
  explicit Buffer(int64_t bytes) : bytes_(bytes), words_(static_cast<size_t>(bytes + 7) / 8, 0) {}
  [[nodiscard]] void* data() { return words_.data(); }
  [[nodiscard]] int64_t size() const { return bytes_; }
  /// Takes the bytes of a buffer of this size; its own address stays.
  void copy(const Buffer& other) { std::copy(other.words_.begin(), other.words_.end(), words_.begin()); }
  [[nodiscard]] Bytes bytes() const { return {{reinterpret_cast<const char*>(words_.data()), size_t(bytes_)}}; }

 private:
  int64_t bytes_;
  std::vector<uint64_t> words_;
};

inline const std::vector<std::string>& all_words() {
  static const std::vector<std::string> words = algorithm_words();
  return words;
}

/// The optimizers that keep a second moment of every element, and so may keep it in codes.
inline const std::vector<std::string>& words_with_second_moment() {
  static const std::vector<std::string> words{"adam", "adamw", "lamb"};
  return words;
}

inline bool has_second_moment(const std::string& word) {
  const std::vector<std::string>& words = words_with_second_moment();
  return std::find(words.begin(), words.end(), word) != words.end();
}

inline TensorSpec spec_of(std::vector<int64_t> shape, DType dtype = DType::f64, int group = 0) {
  TensorSpec spec;
  spec.name = "w";
  spec.shape = std::move(shape);
  spec.dtype = dtype;
  spec.group = group;
  return spec;
}

/// What CAME_TEST_BACKEND names, "cpu", "cuda" or "reference"; the reference if it is not set.
inline std::string tested_backend_name() {
  const char* name = std::getenv("CAME_TEST_BACKEND");
  return name == nullptr ? "reference" : name;
}

/// The same, as the public interface names it.
inline Backend public_backend_under_test() {
  const std::string name = tested_backend_name();
  if (name == "reference") return Backend::reference;
  if (name == "cpu") return Backend::cpu;
  if (name == "cuda") return Backend::cuda;
  throw std::invalid_argument("CAME_TEST_BACKEND is " + name + ", expected reference, cpu or cuda");
}

inline const core::Backend& backend_under_test() {
  return core::find_backend(static_cast<came_backend>(public_backend_under_test()));
}

/// A plan and its memory.  Gradients and parameters are set as f64 and rounded to the tensors' types.
class Trial {
 public:
  Trial(const std::vector<Options>& groups, const std::vector<TensorSpec>& specs, const core::Tiling* tiling = nullptr,
        const core::Backend& backend = backend_under_test())
      : plan(make_plan(groups, specs, tiling, backend)),
        workspace(plan.memory.workspace_bytes),
        reductions(plan.memory.reduction_bytes),
        counters(specs.size(), 0),
        counter_count_(static_cast<int64_t>(specs.size())) {
    for (const core::Tensor& t : plan.tensors) {
      params.emplace_back(t.local_elements * core::element_size(t.dtype));
      grads.emplace_back(t.local_elements * core::element_size(t.grad_dtype));
      for (const core::State& s : t.states) states.emplace_back(s.bytes);
    }
    for (size_t k = 0; k < plan.tensors.size(); ++k) {
      const core::Tensor& t = plan.tensors[k];
      param_views.emplace_back(params[k].data(), t.local_shape, t.dtype);
      grad_views.emplace_back(grads[k].data(), t.local_shape, t.grad_dtype);
      for (const core::State& s : t.states) {
        state_views.emplace_back(states[state_views.size()].data(), s.shape, s.dtype);
      }
    }
    counter_view = TensorView(counters.data(), {&counter_count_, 1});
    step.set_tensors(param_views, grad_views);
    step.set_states(state_views);
    step.step = &counter_view;
    step.workspace = workspace.data();
    step.workspace_bytes = plan.memory.workspace_bytes;
    step.reductions = reductions.data();
    step.reduction_bytes = plan.memory.reduction_bytes;
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  [[nodiscard]] core::Cells param(size_t k) { return {params[k].data(), plan.tensors[k].dtype}; }
  [[nodiscard]] core::Cells grad(size_t k) { return {grads[k].data(), plan.tensors[k].grad_dtype}; }
  [[nodiscard]] core::Cells state(size_t k) { return {state_views[k].data, static_cast<DType>(state_views[k].dtype)}; }

  /// Calls f(tensor, local element, element of the whole tensor) for everything this rank holds.
  template <class F>
  void for_each_element(F f) const {
    for (size_t k = 0; k < plan.tensors.size(); ++k) {
      const core::Tensor& t = plan.tensors[k];
      int64_t local = 0;
      for (int64_t b = 0; b < t.local.batch.count; ++b) {
        for (int64_t i = 0; i < t.local.rows.count; ++i) {
          for (int64_t j = 0; j < t.local.cols.count; ++j, ++local) {
            const int64_t row = (t.local.batch.begin + b) * t.view.rows + t.local.rows.begin + i;
            f(k, local, row * t.view.cols + t.local.cols.begin + j);
          }
        }
      }
    }
  }
  /// Calls f(state, element) for all state.
  template <class F>
  void for_each_state(F f) const {
    for (size_t s = 0; s < states.size(); ++s) {
      const int64_t size = core::element_size(static_cast<DType>(state_views[s].dtype));
      for (int64_t i = 0; i < states[s].size() / size; ++i) f(s, i);
    }
  }
  /// The parameter that a state tensor belongs to.
  [[nodiscard]] size_t tensor_of_state(size_t s) const {
    size_t k = 0;
    while (k + 1 < plan.tensors.size() && plan.tensors[k + 1].first_state <= static_cast<int64_t>(s)) ++k;
    return k;
  }
  /// Random values by (seed, tensor, element of the whole tensor): every rank sees its part of the same tensor.
  void fill_params(uint64_t seed) {
    for_each_element([&](size_t k, int64_t local, int64_t whole) { param(k).set(local, draw(seed, k, whole)); });
  }
  void fill_grads(uint64_t seed) {
    for_each_element([&](size_t k, int64_t local, int64_t whole) { grad(k).set(local, draw(seed, k + 1000, whole)); });
  }
  void run() {
    in_memory([this](const came_step& s) { core::run_step(plan, s); });
  }
  void run_phase(int phase) {
    in_memory([this, phase](const came_step& s) { core::run_phase(plan, phase, s); });
  }

  // What run() does on a device, in parts.  On the host there is nothing to copy.

  void upload() {
    if (!on_device()) return;
    make_mirror();
    mirror_->upload();
    for_each_scalar([](const came_tensor& host, const came_tensor& copy) {
      device::upload(copy.data, host.data, scalar_bytes(host));
    });
  }
  void upload_grads() {
    for (Buffer& grad : grads) mirror_->upload(grad.data());
  }
  /// What a captured step reads anew: its own counters it raises itself.
  void upload_scalars_but_counters() {
    for_each_scalar([this](const came_tensor& host, const came_tensor& copy) {
      if (&host != step.step) device::upload(copy.data, host.data, scalar_bytes(host));
    });
  }
  void launch() { core::run_step(plan, memory_step()); }
  void download() {
    if (!on_device()) return;
    mirror_->download();
    for_each_scalar([this](const came_tensor& host, const came_tensor& copy) {
      if (&host == step.step) device::download(host.data, copy.data, scalar_bytes(host));
    });
  }
  /// The step over the memory it runs on: once uploaded, the copies on the device.
  [[nodiscard]] const came_step& memory_step() {
    if (!on_device()) return step;
    device_step_ = step;
    const size_t count = plan.tensors.size();
    device_step_.params = to_device(step.params, count, 0, device_params_);
    device_step_.grads = to_device(step.grads, count, count, device_grads_);
    device_step_.states = to_device(step.states, states.size(), 2 * count, device_states_);
    if (step.workspace == workspace.data()) device_step_.workspace = mirror_->workspace();
    device_step_.reductions = mirror_->find(step.reductions, 2 * count + states.size());
    for_each_scalar([this](const came_tensor& host, const came_tensor& copy) {
      if (&host == step.step) device_step_.step = &copy;
      if (&host == step.lr) device_step_.lr = &copy;
      if (&host == step.grad_scale) device_step_.grad_scale = &copy;
      if (&host == step.found_inf) device_step_.found_inf = &copy;
    });
    return device_step_;
  }
  [[nodiscard]] const Mirror& mirror() const { return *mirror_; }

  /// Every byte a step may write.
  [[nodiscard]] Bytes image() const {
    Bytes all;
    for (const Buffer& b : params) all += b.bytes();
    for (const Buffer& b : states) all += b.bytes();
    for (const int64_t c : counters) all.data += std::to_string(c) + ";";
    return all;
  }

  /// A normal number; a generator per element would cost more than the step that is tested.
  static double draw(uint64_t seed, size_t tensor, int64_t element) {
    const uint64_t first =
        algorithms::mix64(algorithms::mix64(seed * 1000003 + tensor) + static_cast<uint64_t>(element));
    const uint64_t second = algorithms::mix64(first + 0x9e3779b97f4a7c15ULL);
    const double radius = std::sqrt(-2 * std::log((static_cast<double>(first >> 11) + 1) * 0x1p-53));
    return radius * std::cos(6.283185307179586 * (static_cast<double>(second >> 11) * 0x1p-53));
  }

  core::Plan plan;
  std::vector<Buffer> params, grads, states;
  Buffer workspace, reductions;
  std::vector<int64_t> counters;  ///< One per tensor.
  std::vector<TensorView> param_views, grad_views, state_views;
  TensorView counter_view;
  Step step;

  // On a device, to be set before the first run.
  Placement placement = Placement::aligned;
  bool device_scalars =
      false;  ///< Copies step, lr, grad_scale and found_inf, too, instead of passing them as they are.

 private:
  static core::Plan make_plan(const std::vector<Options>& groups, const std::vector<TensorSpec>& specs,
                              const core::Tiling* tiling, const core::Backend& backend) {
    core::Tiling cut = tiling != nullptr ? *tiling : backend.tiling;
    cut.reduces_in_place = backend.tiling.reduces_in_place;
    return core::make_plan({groups.begin(), groups.end()}, specs, backend, 0, &cut);
  }

  [[nodiscard]] bool on_device() const { return plan.backend->device != CAME_DEVICE_CPU; }

  template <class F>
  void in_memory(F f) {
    upload();
    try {
      f(memory_step());
    } catch (...) {
      download();  // a refused step must have written nothing there either
      throw;
    }
    download();
  }

  void make_mirror() {
    if (mirror_ != nullptr) return;
    core::prepare(plan);
    mirror_ = std::make_unique<Mirror>(placement);
    for (size_t k = 0; k < params.size(); ++k) {
      mirror_->add(params[k].data(), params[k].size(), core::element_size(plan.tensors[k].dtype));
    }
    for (size_t k = 0; k < grads.size(); ++k) {
      mirror_->add(grads[k].data(), grads[k].size(), core::element_size(plan.tensors[k].grad_dtype));
    }
    for (size_t k = 0; k < states.size(); ++k) {
      mirror_->add(states[k].data(), states[k].size(), core::element_size(static_cast<DType>(state_views[k].dtype)));
    }
    mirror_->add(reductions.data(), reductions.size(), sizeof(double));
    mirror_->place(plan.memory.workspace_bytes, 8 * static_cast<int64_t>(plan.tensors.size() + plan.groups.size() + 3));
  }

  /// Views of the copies of what `views` show; `first` is the number of the first of their buffers.
  const came_tensor* to_device(const came_tensor* views, size_t count, size_t first, std::vector<TensorView>& into) {
    if (views == nullptr) return nullptr;
    into.resize(count);
    for (size_t k = 0; k < count; ++k) {
      static_cast<came_tensor&>(into[k]) = views[k];
      into[k].data = mirror_->find(views[k].data, first + k);
      into[k].device = plan.backend->device;
      into[k].device_index = plan.device_index;
    }
    return into.data();
  }

  static int64_t scalar_bytes(const came_tensor& scalar) {
    return (scalar.ndim == 0 ? 1 : scalar.shape[0]) * core::element_size(static_cast<DType>(scalar.dtype));
  }
  /// Calls f(host, copy) for every scalar that has a copy.
  template <class F>
  void for_each_scalar(F f) {
    if (!device_scalars || !on_device()) return;
    char* next = mirror_->scalars();
    size_t number = 0;
    for (const came_tensor* host : {step.step, step.lr, step.grad_scale, step.found_inf}) {
      came_tensor& copy = device_scalar_views_[number++];
      if (host == nullptr) continue;
      copy = *host;
      copy.data = next;
      copy.device = plan.backend->device;
      copy.device_index = plan.device_index;
      f(*host, copy);
      next += (scalar_bytes(*host) + 7) / 8 * 8;
    }
  }

  int64_t counter_count_;
  std::unique_ptr<Mirror> mirror_;
  Step device_step_;
  std::vector<TensorView> device_params_, device_grads_, device_states_;
  came_tensor device_scalar_views_[4] = {};
};

/// The message of the Error that f throws; "" if it throws none.
template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Expects f to throw an Error whose message has all these parts.
template <class F, class... Parts>
void expect_error(F f, const Parts&... parts) {
  const std::string message = error_of(f);
  EXPECT_NE(message, "") << "no error";
  for (const std::string& part : {std::string(parts)...}) {
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' missing in: " << message;
  }
}

}  // namespace came::test
