// What must hold of any calls of the C interface: each answers with a status, reads and writes nothing outside of the
// memory it was given, and leaks none; a refused step leaves every byte of parameters, state and counters as it was;
// and an accepted one gives the same bits when it is taken again from the same bytes, whatever the scratch memory
// holds.
#include <algorithm>
#include <cmath>

#include "c_api_input.hpp"
#include "python_bridge/bridge.h"

namespace came_fuzz {
namespace {

/// A plan's memory, and tensors that show it.
struct Tensors {
  std::vector<Memory> memory;
  std::vector<came_tensor> views;

  void add(Stream& stream, const int64_t* shape, int32_t ndim, came_dtype dtype, bool zero) {
    int64_t bytes = element_bytes(dtype);
    for (int32_t d = 0; d < ndim; ++d) bytes *= shape[d];
    memory.emplace_back(bytes);
    if (!zero) fill_tensor(stream, memory.back(), dtype);
    views.push_back(came_tensor_make(memory.back().data(), dtype, shape, ndim));
  }
  [[nodiscard]] std::string bytes() const {
    std::string all;
    for (const Memory& part : memory) all += part.bytes() + "|";
    return all;
  }
};

/// A scalar argument of some elements, of the right number and type or another.
struct Scalar {
  came_dtype dtype;
  int64_t count;
  Memory memory;
  came_tensor view;

  Scalar(Stream& stream, int64_t elements, double sound, std::initializer_list<came_dtype> types)
      : dtype(*(types.begin() + stream.below(static_cast<int64_t>(types.size())))),
        count(stream.one_in(24) ? stream.below(5) : elements),
        memory(count * element_bytes(dtype)) {
    auto* at = static_cast<char*>(memory.data());
    for (int64_t k = 0; k < count; ++k) {
      const double value = stream.real(sound);
      if (dtype == CAME_DTYPE_I64) {
        const bool fits = value > -0x1p63 && value < 0x1p63;
        const int64_t whole = fits ? static_cast<int64_t>(value) : std::numeric_limits<int64_t>::max();
        std::memcpy(at + 8 * k, &whole, sizeof(whole));
      } else if (dtype == CAME_DTYPE_F32) {
        constexpr double kMost = std::numeric_limits<float>::max();
        const auto narrow = static_cast<float>(std::isnan(value) ? value : std::clamp(value, -kMost, kMost));
        std::memcpy(at + 4 * k, &narrow, sizeof(narrow));
      } else {
        std::memcpy(at + 8 * k, &value, sizeof(value));
      }
    }
    view = came_tensor_make(memory.data(), dtype, &count, count == 1 && stream.one_in(2) ? 0 : 1);
    spoil(stream, view);
  }
  Scalar(const Scalar&) = delete;
  Scalar& operator=(const Scalar&) = delete;
};

void ask_everything(Stream& stream, const came_plan* plan, const came_memory& memory, int64_t tensors) {
  int32_t phases = -1;
  require(came_plan_phase_count(plan, &phases) == CAME_STATUS_OK && phases > 0, "a plan without phases");
  for (int32_t phase = 0; phase < phases; ++phase) {
    for (int32_t group = 0; group < 4; ++group) {
      came_reduction reduction = CAME_REDUCTION_INIT;
      require(came_plan_reduction(plan, phase, group, &reduction) == CAME_STATUS_OK, came_error_message());
      require(reduction.offset >= 0 && reduction.count >= 0 &&
                  reduction.count <= memory.reduction_bytes / 8 - reduction.offset,
              "a reduction outside of its buffer");
      require(reduction.presence >= 0 && reduction.presence % 2 == 0 && reduction.presence <= reduction.count &&
                  (phase == 0 || reduction.presence == 0),
              "presence that is no front of its reduction");
    }
  }
  for (int64_t k = 0; k < tensors; ++k) {
    came_matrix_view view = CAME_MATRIX_VIEW_INIT;
    require(came_plan_view(plan, k, &view) == CAME_STATUS_OK, came_error_message());
  }
  came_matrix_view view = CAME_MATRIX_VIEW_INIT;
  came_reduction reduction = CAME_REDUCTION_INIT;
  came_state_info info = CAME_STATE_INFO_INIT;
  (void)answered(came_plan_view(plan, stream.size(), &view));
  (void)answered(came_plan_reduction(plan, stream.number(0), stream.number(0), &reduction));
  (void)answered(came_plan_state(plan, stream.size(), &info));
}

/// Everything that a step takes, most of it right.
struct Step {
  Tensors params, grads, states;
  std::vector<uint8_t> active;
  Memory workspace, reductions;
  Scalar counters, lr, scale, inf;
  came_step step = CAME_STEP_INIT;
  int32_t phases = 0;

  Step(Stream& stream, const came_plan* plan, const std::vector<came_tensor_spec>& specs, int32_t groups,
       const came_memory& memory)
      : workspace(memory.workspace_bytes),
        reductions(memory.reduction_bytes),
        counters(stream, stream.one_in(2) ? static_cast<int64_t>(specs.size()) : 1, static_cast<double>(stream.byte()),
                 {CAME_DTYPE_I64, CAME_DTYPE_F32, CAME_DTYPE_F64}),
        lr(stream, groups, 1e-3, {CAME_DTYPE_F64, CAME_DTYPE_F32}),
        scale(stream, 1, 2, {CAME_DTYPE_F64, CAME_DTYPE_F32}),
        inf(stream, 1, 0, {CAME_DTYPE_F64, CAME_DTYPE_F32}) {
    for (const came_tensor_spec& s : specs) {
      const int64_t* held = s.split_dims != 0 ? s.shard_extent : s.shape;
      params.add(stream, held, s.ndim, s.dtype, false);
      grads.add(stream, held, s.ndim, s.grad_dtype == CAME_DTYPE_DEFAULT ? s.dtype : s.grad_dtype, false);
      active.push_back(stream.one_in(4) ? 0 : 1);
    }
    require(came_plan_phase_count(plan, &phases) == CAME_STATUS_OK, came_error_message());
    require(came_plan_state_count(plan, &step.state_count) == CAME_STATUS_OK, came_error_message());
    int64_t state_bytes = 0;
    for (int64_t k = 0; k < step.state_count; ++k) {
      came_state_info info = CAME_STATE_INFO_INIT;
      require(came_plan_state(plan, k, &info) == CAME_STATUS_OK, came_error_message());
      states.add(stream, info.shape, info.ndim, info.dtype, !stream.one_in(4));
      for (int32_t d = 0; d < specs[static_cast<size_t>(info.tensor)].ndim; ++d) {
        require(info.dims[d] >= -1 && info.dims[d] < info.ndim, "a dimension that the state does not have");
      }
      state_bytes += info.bytes;
      require(static_cast<int64_t>(states.memory.back().size()) == info.bytes,
              "a state of another size than its shape");
    }
    require(state_bytes == memory.state_bytes, "states that do not add up to the plan's memory");
    for (Tensors* list : {&params, &grads, &states}) {
      for (came_tensor& view : list->views) spoil(stream, view);
    }
    step.tensor_count = stream.one_in(64) ? stream.size() : static_cast<int64_t>(specs.size());
    if (stream.one_in(64)) step.state_count = stream.size();
    step.params = stream.one_in(64) ? nullptr : params.views.data();
    step.grads = grads.views.data();
    step.states = states.views.data();
    step.step = stream.one_in(64) ? nullptr : &counters.view;
    step.active = stream.one_in(2) ? active.data() : nullptr;
    step.lr = stream.one_in(2) ? &lr.view : nullptr;
    step.grad_scale = stream.one_in(2) ? &scale.view : nullptr;
    step.found_inf = stream.one_in(2) ? &inf.view : nullptr;
    step.workspace = workspace.data();
    step.workspace_bytes = stream.one_in(64) ? memory.workspace_bytes - 1 - stream.below(9) : memory.workspace_bytes;
    step.reductions = reductions.data();
    step.reduction_bytes = stream.one_in(64) ? memory.reduction_bytes - 1 - stream.below(9) : memory.reduction_bytes;
    step.reserved = stream.number(0);
    if (stream.one_in(64)) step.struct_size = stream.byte();
  }

  [[nodiscard]] std::string bytes() const { return params.bytes() + states.bytes() + counters.memory.bytes(); }
  void restore(const std::string& bytes) const {
    size_t at = 0;
    const auto put = [&](const Memory& part, size_t border) {
      part.restore(bytes.substr(at, part.size()));
      at += part.size() + border;
    };
    for (const Memory& part : params.memory) put(part, 1);
    for (const Memory& part : states.memory) put(part, 1);
    put(counters.memory, 0);
  }
};

void run_steps(Stream& stream, const came_plan* plan, const Step& s) {
  const std::string grads = s.grads.bytes();
  for (int64_t count = 1 + stream.below(3); count > 0; --count) {
    const std::string before = s.bytes();
    const bool phase = stream.one_in(4);
    const auto number = stream.number(static_cast<int32_t>(stream.below(s.phases)));
    const auto run = [&] {
      return answered(phase ? came_plan_run_phase(plan, number, &s.step) : came_plan_step(plan, &s.step));
    };
    if (!run()) {
      require(s.bytes() == before, "a refused step changed something");
    } else if (phase) {
      s.restore(before);
      require(came_plan_run_phase_unchecked(plan, number, &s.step) == CAME_STATUS_OK, "accepted once, refused twice");
    } else {
      const std::string after = s.bytes();
      s.restore(before);
      for (const Memory* scratch : {&s.workspace, &s.reductions}) {
        scratch->restore(std::string(scratch->size(), static_cast<char>(stream.byte())));
      }
      const bool unchecked = stream.one_in(2);
      require(unchecked ? came_plan_step_unchecked(plan, &s.step) == CAME_STATUS_OK : run(),
              "accepted once, refused twice");
      require(s.bytes() == after, "the same step gave other bits");
    }
    require(s.grads.bytes() == grads, "a step changed a gradient");
  }
}

void call_the_rest(Stream& stream) {
  came_options o = stream.options(static_cast<came_algorithm>(stream.below(6)));
  const came_options copy = o;
  const std::string name = stream.one_in(2) ? "momentum_dtype" : stream.text();
  const std::string value = stream.text();
  if (!answered(came_options_set(&o, name.c_str(), value.c_str()))) {
    require(std::memcmp(&o, &copy, sizeof(o)) == 0, "a refused option changed something");
  }
  (void)answered(came_options_validate(&o));
  (void)answered(came_options_init(&o, stream.number(0)));
  came_algorithm found = -1;
  (void)answered(came_algorithm_find(stream.text().c_str(), &found));
  (void)came_algorithm_name(stream.number(6));
  (void)came_status_name(stream.number(0));

  Tensors t;
  const int64_t sizes[] = {1 + stream.below(5), 1 + stream.below(5)};
  const auto dtype = static_cast<came_dtype>(1 + stream.below(4));
  t.add(stream, sizes, 2, dtype, false);
  t.add(stream, sizes, 1, dtype, false);
  t.add(stream, sizes + 1, 1, dtype, false);
  t.add(stream, sizes, 2, dtype, false);
  t.add(stream, sizes, 2, dtype, false);
  for (came_tensor& view : t.views) spoil(stream, view);
  const std::string before = t.bytes();
  if (!answered(came_nmf_rank1(&t.views[0], &t.views[1], &t.views[2])))
    require(t.bytes() == before, "nmf changed some");
  const std::string then = t.bytes();
  if (!answered(came_confidence_update(&t.views[0], &t.views[3], stream.real(1e-8), &t.views[4]))) {
    require(t.bytes() == then, "a refused confidence update changed something");
  }
}

}  // namespace

void use_plan(Stream& stream) {
  const auto algorithm = static_cast<came_algorithm>(stream.below(6));
  std::vector<came_options> groups;
  for (int64_t k = stream.below(3); k >= 0; --k) groups.push_back(stream.options(algorithm));
  std::vector<std::array<int64_t, 192>> sizes(static_cast<size_t>(stream.below(5)));
  std::vector<came_tensor_spec> specs;
  for (auto& its : sizes) specs.push_back(stream.spec(its, static_cast<int32_t>(groups.size())));
  const came_backend backend = stream.number(stream.one_in(2) ? CAME_BACKEND_CPU : CAME_BACKEND_REFERENCE);
  const bool lost = stream.one_in(64);
  const int32_t group_count = lost ? stream.number(0) : static_cast<int32_t>(groups.size());
  const auto tensor_count = static_cast<int64_t>(specs.size());
  const came_options* given = lost ? nullptr : groups.data();
  came_memory estimate = CAME_MEMORY_INIT;
  const came_status estimated = came_estimate(given, group_count, specs.data(), tensor_count, backend, &estimate);
  (void)answered(estimated);
  came_plan* plan = nullptr;
  const int32_t device = stream.number(0);
  if (!answered(came_plan_create(given, group_count, specs.data(), tensor_count, backend, device, &plan))) {
    require(plan == nullptr, "a plan beside a refusal");
    return;
  }
  const std::unique_ptr<came_plan, decltype(&came_plan_destroy)> owner(plan, &came_plan_destroy);
  came_memory memory = CAME_MEMORY_INIT;
  require(came_plan_memory(plan, &memory) == CAME_STATUS_OK, came_error_message());
  require(estimated == CAME_STATUS_OK && std::memcmp(&memory, &estimate, sizeof(memory)) == 0,
          "an estimate of other memory than the plan's");
  require(memory.peak_bytes >= 0 && memory.parameter_bytes >= 0 && memory.gradient_bytes >= 0, "negative memory");
  ask_everything(stream, plan, memory, tensor_count);
  constexpr int64_t kMost = 1 << 16;  // bytes; larger plans are asked, not stepped
  if (memory.peak_bytes > kMost || memory.parameter_bytes > kMost || memory.gradient_bytes > kMost) return;
  for (int64_t k = stream.below(3); k >= 0; --k) {
    const Step step(stream, plan, specs, static_cast<int32_t>(groups.size()), memory);
    run_steps(stream, plan, step);
  }
}

bool check_c_api(Input input) {
  Stream stream(input);
  while (!stream.empty()) {
    switch (stream.below(4)) {
      case 0:
        call_the_rest(stream);
        break;
      case 1:
        use_optimizer(stream);
        break;
      default:
        use_plan(stream);
    }
  }
  return true;
}

}  // namespace came_fuzz
