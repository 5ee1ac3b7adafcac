// Optimizers that own their state: what was saved is loaded, by the same and by another one, and steps alike.
#include "c_api_input.hpp"

namespace came_fuzz {
namespace {

using Owner = std::unique_ptr<came_optimizer, decltype(&came_optimizer_destroy)>;

/// Parameters and gradients in memory of their own.
struct Model {
  std::vector<came_options> groups;
  std::vector<std::array<int64_t, 3>> shapes;
  std::vector<std::string> names;
  std::vector<Memory> params, grads;
  std::vector<came_parameter> list;
  came_backend backend;

  explicit Model(Stream& stream) {
    const auto algorithm = static_cast<came_algorithm>(stream.below(6));
    for (int64_t k = stream.below(2); k >= 0; --k) groups.push_back(stream.options(algorithm));
    const auto count = static_cast<size_t>(stream.below(4));
    shapes.resize(count);
    for (size_t k = 0; k < count; ++k) {
      names.push_back(stream.one_in(16) ? stream.text() : std::string(1, static_cast<char>('a' + k)));
      const auto ndim = static_cast<int32_t>(stream.below(4));
      int64_t elements = 1;
      for (int32_t d = 0; d < ndim; ++d) elements *= shapes[k][static_cast<size_t>(d)] = stream.below(9);
      const auto dtype = static_cast<came_dtype>(1 + stream.below(4));
      for (std::vector<Memory>* memory : {&params, &grads}) {
        memory->emplace_back(elements * element_bytes(dtype));
        fill_tensor(stream, memory->back(), dtype);
      }
      came_parameter p = CAME_PARAMETER_INIT;
      p.group = stream.number(static_cast<int32_t>(stream.below(static_cast<int64_t>(groups.size()))));
      p.param = came_tensor_make(params.back().data(), dtype, shapes[k].data(), ndim);
      p.grad = came_tensor_make(grads.back().data(), dtype, shapes[k].data(), ndim);
      spoil(stream, p.param);
      spoil(stream, p.grad);
      if (stream.one_in(64)) p.struct_size = stream.byte();
      list.push_back(p);
    }
    for (size_t k = 0; k < count; ++k) list[k].name = stream.one_in(64) ? nullptr : names[k].c_str();
    backend = stream.number(stream.one_in(2) ? CAME_BACKEND_CPU : CAME_BACKEND_REFERENCE);
  }

  [[nodiscard]] Owner make() const {
    came_optimizer* made = nullptr;
    const bool fine = answered(came_optimizer_create(groups.data(), static_cast<int32_t>(groups.size()), list.data(),
                                                     static_cast<int64_t>(list.size()), backend, &made));
    require(fine == (made != nullptr), "an optimizer beside a refusal, or none without one");
    return {made, &came_optimizer_destroy};
  }
  [[nodiscard]] std::string bytes() const {
    std::string all;
    for (const Memory& part : params) all += part.bytes();
    return all;
  }
  void restore(const std::string& bytes) const {
    size_t at = 0;
    for (const Memory& part : params) {
      part.restore(bytes.substr(at, part.size()));
      at += part.size();
    }
  }
};

/// The exported state: copies in memory of exactly their size.
struct Saved {
  std::vector<std::string> names;
  std::vector<Memory> memory;
  std::vector<came_named_tensor> list;

  explicit Saved(const came_optimizer* optimizer) {
    int64_t count = -1;
    require(came_optimizer_state_count(optimizer, &count) == CAME_STATUS_OK, came_error_message());
    for (int64_t k = 0; k < count; ++k) {
      came_named_tensor state = CAME_NAMED_TENSOR_INIT;
      require(came_optimizer_state(optimizer, k, &state) == CAME_STATUS_OK, came_error_message());
      memory.emplace_back(state.bytes);
      if (state.bytes > 0) std::memcpy(memory.back().data(), state.tensor.data, static_cast<size_t>(state.bytes));
      state.tensor.data = memory.back().data();
      names.emplace_back(state.name);
      list.push_back(state);
    }
    for (size_t k = 0; k < list.size(); ++k) list[k].name = names[k].c_str();
  }
  [[nodiscard]] std::string bytes() const {
    std::string all;
    for (const Memory& part : memory) all += part.bytes();
    return all;
  }
  bool load_into(came_optimizer* optimizer) const {
    return answered(came_optimizer_load_state(optimizer, list.data(), static_cast<int64_t>(list.size())));
  }
};

void damage(Stream& stream, Saved& saved) {
  if (saved.list.empty()) return;
  const auto which = static_cast<size_t>(stream.below(static_cast<int64_t>(saved.list.size())));
  switch (stream.below(6)) {
    case 0:
      saved.list.pop_back();
      break;
    case 1:
      saved.list[which].name = stream.one_in(2) ? nullptr : "other";
      break;
    case 2:
      saved.list.push_back(saved.list[which]);
      break;
    case 3:
      if (saved.memory[which].size() > 0) stream.fill(saved.memory[which].data(), saved.memory[which].size());
      break;
    case 4:
      spoil(stream, saved.list[which].tensor);
      break;
    default:
      std::swap(saved.list.front(), saved.list.back());
  }
}

void save_and_load(Stream& stream, const Model& model, const Owner& optimizer) {
  const Saved before(optimizer.get());
  Saved changed(optimizer.get());
  if (stream.one_in(2)) damage(stream, changed);
  if (!changed.load_into(optimizer.get())) {
    require(Saved(optimizer.get()).bytes() == before.bytes(), "a refused load changed the state");
    return;
  }
  const Owner other = model.make();
  require(other != nullptr && Saved(optimizer.get()).load_into(other.get()), "what was saved cannot be loaded");
  for (size_t k = 0; k < model.groups.size(); ++k) {
    require(came_optimizer_set_lr(optimizer.get(), static_cast<int32_t>(k), 0.5) == CAME_STATUS_OK &&
                came_optimizer_set_lr(other.get(), static_cast<int32_t>(k), 0.5) == CAME_STATUS_OK,
            came_error_message());
  }
  const std::string start = model.bytes();
  require(came_optimizer_step(optimizer.get(), nullptr, nullptr) == CAME_STATUS_OK, came_error_message());
  const std::string stepped = model.bytes();
  model.restore(start);
  require(came_optimizer_step(other.get(), nullptr, nullptr) == CAME_STATUS_OK, came_error_message());
  require(model.bytes() == stepped && Saved(optimizer.get()).bytes() == Saved(other.get()).bytes(),
          "the same state stepped to other bits");
}

}  // namespace

void use_optimizer(Stream& stream) {
  const Model model(stream);
  Owner optimizer = model.make();
  if (optimizer == nullptr) return;
  for (int64_t calls = stream.below(6); calls > 0; --calls) {
    const double scale = stream.real(2);
    const double inf = stream.real(0);
    const std::string before = model.bytes() + Saved(optimizer.get()).bytes();
    switch (stream.below(6)) {
      case 0:
        save_and_load(stream, model, optimizer);
        break;
      case 1: {
        optimizer = model.make();
        require(optimizer != nullptr, "accepted once, refused twice");
        break;
      }
      case 2:
        (void)answered(came_optimizer_set_lr(optimizer.get(), stream.number(0), stream.real(1e-3)));
        break;
      case 3: {
        if (model.list.empty()) break;
        const int64_t which = stream.below(static_cast<int64_t>(model.list.size()));
        came_tensor grad = model.list[static_cast<size_t>(which)].grad;
        spoil(stream, grad);
        (void)answered(came_optimizer_set_grad(optimizer.get(), stream.one_in(16) ? stream.size() : which, &grad));
        break;
      }
      default:
        if (!answered(came_optimizer_step(optimizer.get(), stream.one_in(2) ? &scale : nullptr,
                                          stream.one_in(2) ? &inf : nullptr))) {
          require(model.bytes() + Saved(optimizer.get()).bytes() == before, "a refused step changed something");
        }
    }
  }
}

}  // namespace came_fuzz
