// The CUDA backend: what a call says is written into the workspace, then each phase is one launch per kernel variant.
// Everything goes through kernel arguments to the caller's stream, so that a captured graph holds all it needs; scalars
// on the device are read when it is replayed.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/message.hpp"
#include "core/optimizers/registry.hpp"
#include "core/scalars.hpp"
#include "core/step.hpp"
#include "cuda/begin.hpp"
#include "cuda/kernels.hpp"
#include "cuda/presence.hpp"
#include "cuda/resident.hpp"

namespace came::cuda {
namespace {

constexpr uint64_t kAlignment = 16;

const Kernels& kernels_of(Algorithm algorithm) {
  using Find = const Kernels& (*)();
  static constexpr Find table[] = {came_kernels, adafactor_kernels, adam_kernels,
                                   adam_kernels, lamb_kernels,      sm3_kernels};
  return core::entry_of(algorithm, table)();
}

bool on_device(const came_tensor* scalar) { return scalar != nullptr && scalar->device == CAME_DEVICE_CUDA; }
int64_t count_of(const came_tensor& scalar) { return scalar.ndim == 0 ? 1 : scalar.shape[0]; }

/// One call.
class Call {
 public:
  Call(const core::Plan& plan, const came_step& step)
      : plan_(plan),
        step_(step),
        tables_(*static_cast<const Tables*>(plan.tables.get())),
        kernels_(kernels_of(plan.algorithm)),
        queue_{static_cast<cudaStream_t>(step.stream)} {}

  void operator()(Range phases) {
    const int64_t last = phases.begin + phases.count;
    prepare();
    bind();
    // Counters are raised when they are read for the last time.
    const bool ends = last == static_cast<int64_t>(plan_.phases.size());
    const bool again = kind(phases.begin) == PhaseKind::norm && phases.count > 1;
    args_.raises = ends && !again ? 1 : 0;
    const bool whole = ends && phases.begin == 0;
    begin(phases.begin);
    for (int64_t phase = phases.begin; phase < last; ++phase) {
      const auto at = static_cast<int>(phase);
      if (phase > phases.begin && kind(phase - 1) == PhaseKind::norm) {
        args_.raises = ends ? 1 : 0;
        begin(phase);
      }
      if (plan_.sharded && phase > 0 && kind(phase - 1) != PhaseKind::norm) {
        set_phase(at - 1);
        kernels_.finish(args_, queue_);
      }
      set_phase(at);
      clear_slots(plan_.phases[static_cast<size_t>(phase)]);
      if (phase == 0) write_presence(plan_, step_, queue_);
      for (const Launch& launch : tables_.launches[phase]) {
        const bool taken_otherwise = whole && launch.vectors;
        if (!taken_otherwise && !all_are_unaligned(launch)) add(launch, false);
        if (any_is_unaligned(launch)) add(launch, true);
      }
      launch_held(false);
    }
    const bool vectors = whole && any_is_aligned(Way::vector);
    const bool beside = tables_.vectors_beside && any_is_aligned(Way::resident);
    args_.lets_next = vectors && beside ? 1 : 0;
    const bool side_by_side = ends && run_residents(whole);
    if (vectors) launch_vectors(beside, side_by_side);
  }

 private:
  [[nodiscard]] PhaseKind kind(int64_t phase) const { return plan_.phases[static_cast<size_t>(phase)].kind; }

  void set_phase(int phase) {
    args_.phase = phase;
    args_.phase_kind = kind(phase);
  }

  /// Launches of a phase, each once it is known whether another runs beside it.  The first one waits for the phase
  /// before, and the last one is over before anything else begins.
  void add(Launch launch, bool unaligned) {
    launch.beside = tables_.overlap && held_.count > 0;
    if (unaligned) launch.variant = Variant::any32;
    launch_held(launch.beside);
    held_ = launch;
    held_is_unaligned_ = unaligned;
  }
  void launch_held(bool lets_next) {
    const Launch launch = std::exchange(held_, {});
    if (launch.count == 0) return;
    args_.lets_next = lets_next ? 1 : 0;
    args_.unaligned = held_is_unaligned_ ? 1 : 0;
    (args_.phase_kind == PhaseKind::norm ? run_norm : kernels_.run)(args_, launch, queue_);
  }

  /// Are there tensors with an address that is not aligned among those that a launch takes?  Are all of them?
  [[nodiscard]] bool any_is_unaligned(const Launch& launch) const {
    return unaligned_ > 0 && tensors_in(unaligned_of_, launch) > 0;
  }
  [[nodiscard]] bool all_are_unaligned(const Launch& launch) const {
    return unaligned_ > 0 && tensors_in(unaligned_of_, launch) == tensors_in(tables_.tensors_of, launch);
  }
  [[nodiscard]] bool any_is_aligned(Way way) const {
    int32_t count = 0;
    for (int k = 0; k < kVariants; ++k) {
      count += tables_.tensors_of[k][static_cast<int>(way)] - unaligned_of_[k][static_cast<int>(way)];
    }
    return count > 0;
  }
  [[nodiscard]] int32_t tensors_in(const int32_t (&tensors)[kVariants][kWays], const Launch& launch) const {
    const auto& of_variant = tensors[static_cast<int>(launch.variant)];
    if (args_.phase_kind == PhaseKind::norm) return of_variant[0] + of_variant[1] + of_variant[2];
    return of_variant[static_cast<int>(launch.vectors ? Way::vector : Way::phases)];
  }
  [[nodiscard]] bool is_unaligned(int32_t tensor) const {
    const core::Tensor& t = plan_.tensors[static_cast<size_t>(tensor)];
    if (!core::is_active(step_, tensor)) return false;
    auto addresses =
        reinterpret_cast<uintptr_t>(step_.params[tensor].data) | reinterpret_cast<uintptr_t>(step_.grads[tensor].data);
    for (size_t k = 0; k < t.states.size(); ++k) {
      addresses |= reinterpret_cast<uintptr_t>(step_.states[t.first_state + static_cast<int64_t>(k)].data);
    }
    return addresses % kAlignment != 0;
  }
  void count_unaligned(size_t tensor) {
    const Route& route = tables_.routes[tensor];
    if (!needs_alignment(route)) return;
    ++unaligned_;
    ++unaligned_of_[static_cast<int>(route.variant)][static_cast<int>(route.way)];
  }

  void prepare() {
    const Room& room = tables_.room;
    auto* workspace = static_cast<double*>(step_.workspace);
    double* own = workspace + plan_.extra_offset;
    args_.tensors = tables_.tensors;
    args_.groups = tables_.groups;
    args_.tiles = tables_.tiles;
    args_.parts = tables_.parts;
    args_.chunks = tables_.chunks;
    args_.soon = reinterpret_cast<const char*>(tables_.vectors);
    args_.soon_bytes = tables_.soon_bytes;
    args_.tensor_count = static_cast<int64_t>(plan_.tensors.size());
    args_.set_count = tables_.set_count;
    args_.turn_count = tables_.residents == nullptr ? 0 : tables_.residents->turns();
    args_.workspace = workspace;
    args_.matrix_scalars = reinterpret_cast<MatrixScalars*>(workspace + plan_.matrix_scalars_offset);
    args_.scalars = reinterpret_cast<Scalars*>(own + room.scalars);
    args_.words = reinterpret_cast<uint64_t*>(own + room.words);
    args_.arrivals = reinterpret_cast<unsigned*>(own + room.arrivals);
    args_.agreements = reinterpret_cast<unsigned long long*>(own + room.agreements);
    args_.sheets = reinterpret_cast<Sheet*>(own + room.sheets);
    args_.moments = reinterpret_cast<MomentsSheet*>(own + room.sheets);
    args_.sums = own + room.sums;
    args_.turns = reinterpret_cast<unsigned*>(own + room.turns);
    args_.reductions = static_cast<double*>(step_.reductions);
    args_.algorithm = plan_.algorithm;
    args_.split = plan_.find(PhaseKind::moments) >= 0 || plan_.find(PhaseKind::momentum) >= 0 ? 1 : 0;
  }

  /// Resident matrices take all their phases with the last one.  Phases that come one by one have work of
  /// the caller between them, which may hold part of the device: then blocks do not wait for each other.
  /// Did their blocks run side by side?
  bool run_residents(bool whole) {
    if (tables_.residents == nullptr) return false;
    const Residents& residents = *tables_.residents;
    auto* areas = static_cast<double*>(step_.workspace);
    if (room_for_pieces(plan_, residents.floats()) > 0) {
      areas = reinterpret_cast<double*>(args_.turns + residents.turns());
    }
    if (reinterpret_cast<uintptr_t>(areas) % kAlignment != 0) ++areas;
    ResidentArgs run{};
    run.a = args_;
    run.large = tables_.pieces;
    run.large_count = residents.large;
    run.pieces = tables_.pieces + residents.large;
    run.areas = reinterpret_cast<float*>(areas);
    run.results = run.areas + residents.blocks * residents.area;
    run.area = residents.area;
    run.waves = residents.waves;
    for (int member = 0; unaligned_ > 0 && member < static_cast<int>(residents.members.size());) {
      // As many waves at a time as are under way.
      const int count =
          member < residents.large ? 1 : std::min(kWavesAtOnce, residents.large + residents.waves - member);
      bool any = false;
      for (int k = member; k < member + count; ++k) {
        const std::vector<int32_t>& tensors = residents.members[static_cast<size_t>(k)];
        any = any || std::any_of(tensors.begin(), tensors.end(), [this](int32_t t) { return is_unaligned(t); });
      }
      if (any) run_unaligned_resident(run, member, queue_);
      member += count;
    }
    return any_is_aligned(Way::resident) && run_resident(run, residents.side_by_side && whole, queue_);
  }

  /// Blocks that share a vector wait for each other, so they must run at the same time.  They do after or beside a
  /// cooperative launch of resident matrices, which take more room, or in one of their own.  Otherwise none are shared.
  void launch_vectors(bool beside, bool side_by_side) {
    const bool share = tables_.unshared_count > 0;
    if (!share || side_by_side) return run_vectors(args_, tables_.vectors, tables_.vector_count, beside, queue_);
    const bool together = !beside && tables_.vectors_together &&
                          run_vectors_together(args_, tables_.vectors, tables_.vector_count, queue_);
    if (!together) run_vectors(args_, tables_.unshared, tables_.unshared_count, beside, queue_);
  }

  /// A scalar: where it lies on the device, or its values after the words so far.
  template <class Put>
  ScalarTable place(const came_tensor* scalar, int64_t& word, const Put& put) {
    if (scalar == nullptr) return {nullptr, DType::f64, 0, -1};
    const int64_t count = count_of(*scalar);
    const int32_t each = count > 1 ? 1 : 0;
    if (on_device(scalar)) return {scalar->data, static_cast<DType>(scalar->dtype), each, -1};
    const int64_t first = word;
    for (int64_t k = 0; k < count; ++k) {
      const double value = core::scalar_or(scalar, k, 0);
      uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      put(bits);
    }
    return {nullptr, DType::f64, each, first};
  }

  /// Options of this step go ahead of everything else, since all that follows reads them; those of the plan are there.
  void bind_options() {
    const auto count = static_cast<int64_t>(plan_.groups.size());
    const auto bytes = plan_.groups.size() * sizeof(came_options);
    if (step_.options == nullptr || std::memcmp(step_.options, plan_.groups.data(), bytes) == 0) return;
    args_.groups = reinterpret_cast<const came_options*>(args_.words);
    const auto* from = reinterpret_cast<const char*>(step_.options);
    for (int64_t first = 0; first < count * kOptionsWords; first += message_.count) {
      message_.first = first;
      message_.count = static_cast<int32_t>(std::min<int64_t>(kMostWords, count * kOptionsWords - first));
      std::memcpy(message_.word, from + first * sizeof(uint64_t),
                  static_cast<size_t>(message_.count) * sizeof(uint64_t));
      run_bind(args_, message_, {}, queue_);
    }
    message_.first = message_.count = 0;
    args_.words += count * kOptionsWords;
  }

  /// Collects what changes from step to step: addresses and host scalars.  What one launch cannot take is sent at once,
  /// the others go with the next.
  void bind() {
    bind_options();
    int64_t word = 0;
    const auto send = [&](const ScalarTable& after) {
      run_bind(args_, message_, after, queue_);
      message_.first = word;
      message_.count = 0;
    };
    const auto put = [&](uint64_t value) {
      if (message_.count == kMostWords) send({});
      message_.word[message_.count++] = value;
      ++word;
    };
    // A null pointer says that a tensor is not active; one without elements may be.
    const auto put_address = [&](bool active, const void* data) {
      constexpr uint64_t kNowhere = 256;
      const auto address = reinterpret_cast<uintptr_t>(data);
      put(!active ? 0 : data == nullptr ? kNowhere : address);
      return active ? address : 0;
    };
    const came_tensor* state = step_.states;
    for (size_t k = 0; k < tables_.states_of.size(); ++k) {
      const bool active = core::is_active(step_, static_cast<int64_t>(k));
      uint64_t addresses = put_address(active, step_.params[k].data);
      addresses |= put_address(active, step_.grads[k].data);
      for (int count = tables_.states_of[k]; count > 0; --count) addresses |= put_address(active, (state++)->data);
      if (addresses % kAlignment != 0) count_unaligned(k);
    }
    args_.lr = place(step_.lr, word, put);
    args_.step = place(step_.step, word, put);
    args_.grad_scale = place(step_.grad_scale, word, put);
    args_.found_inf = place(on_device(step_.found_inf) ? step_.found_inf : nullptr, word, put);
    args_.step.each = count_of(*step_.step) == args_.tensor_count ? 1 : 0;
    if (args_.step.data != nullptr && args_.step.each == 0) {
      args_.step.word = word++;
      send(args_.step);
    }
  }

  void begin(int64_t phase) {
    const int norm = plan_.find(PhaseKind::norm);
    const bool known = norm >= 0 && phase > norm;
    args_.norms = tables_.norms;
    args_.norm_count = known ? tables_.norm_count : 0;
    args_.unaligned = unaligned_ > 0 ? 1 : 0;
    run_begin(args_, message_, queue_);
    message_.first += message_.count;
    message_.count = 0;
  }

  /// Slots count what this rank does not hold, and tensors that are not active, as zeros.
  void clear_slots(const core::Phase& phase) {
    if (phase.count == 0 || (!plan_.sharded && phase.kind != PhaseKind::norm)) return;
    check(cudaMemsetAsync(args_.reductions + phase.offset, 0, static_cast<size_t>(phase.count) * sizeof(double),
                          queue_.stream),
          "step: memory could not be cleared");
  }

  const core::Plan& plan_;
  const came_step& step_;
  const Tables& tables_;
  const Kernels& kernels_;
  Queue queue_;
  Args args_{};
  Launch held_{};
  Message message_;
  bool held_is_unaligned_ = false;
  int32_t unaligned_ = 0;                        ///< Tensors taken by `any32` because of their addresses,
  int32_t unaligned_of_[kVariants][kWays] = {};  ///< by how.
};

void run_phases(const core::Plan& plan, Range phases, const came_step& step) {
  const bool skipped = !on_device(step.found_inf) && core::found_inf(step);
  if (skipped && !(plan.sharded && phases.begin == 0)) return;
  if (plan.tables == nullptr) core::fail(Status::internal, "a plan for cuda was not prepared");
  const OnDevice here(plan.device_index);
  if (skipped) return write_presence(plan, step, {static_cast<cudaStream_t>(step.stream)});
  Call call(plan, step);
  call(phases);
  const bool ends = phases.begin + phases.count == static_cast<int64_t>(plan.phases.size());
  if (ends && !on_device(step.step)) core::raise_counters(plan, step);
}

/// Asks for all that a step of the plan may launch.
void ask_for_launches(const core::Plan& plan, const Tables& tables) {
  const Queue nowhere{.asks = true};
  const Kernels& kernels = kernels_of(plan.algorithm);
  Args args{};
  args.parts = tables.parts;
  args.chunks = tables.chunks;
  args.tensor_count = static_cast<int64_t>(plan.tensors.size());
  ask_for_begin(args);
  for (size_t phase = 0; phase < plan.phases.size(); ++phase) {
    args.phase_kind = plan.phases[phase].kind;
    for (Launch launch : tables.launches[phase]) {
      for (const Variant variant :
           {launch.variant, launch.variant == Variant::any64 ? Variant::any64 : Variant::any32}) {
        launch.variant = variant;
        (args.phase_kind == PhaseKind::norm ? run_norm : kernels.run)(args, launch, nowhere);
      }
    }
    if (plan.sharded) kernels.finish(args, nowhere);
  }
  if (plan.sharded) ask_for_presence();
  if (tables.vector_count > 0) run_vectors(args, tables.vectors, tables.vector_count, false, nowhere);
}

std::shared_ptr<const void> make_tables(const core::Plan& plan) {
  auto tables = std::make_shared<const Tables>(plan);
  const OnDevice here(plan.device_index);
  ask_for_launches(plan, *tables);
  return tables;
}

int64_t extra_workspace(const core::Plan& plan) { return room_in_all(plan); }

}  // namespace
}  // namespace came::cuda

namespace came::core {

const Backend& cuda_backend() {
  static constexpr Backend backend{
      .name = "cuda",
      .device = CAME_DEVICE_CUDA,
      // Tiles of 128 rows at least took 3.04 ms of a step where those of 256 took 2.86: docs/experiments.md.
      .tiling = {.elements = int64_t{1} << 15,
                 .cols = int64_t{1} << 15,
                 .least = 256,
                 .tiles_of_matrix = 4,
                 .shorter_where_wide = true,
                 .taller_where_rows_are_many = true,
                 .finer_where_small = true,
                 .reduces_in_place = true},
      .run_phases = cuda::run_phases,
      .extra_workspace = cuda::extra_workspace,
      .make_tables = cuda::make_tables,
      .table_bytes = cuda::table_bytes,
  };
  return backend;
}

}  // namespace came::core
