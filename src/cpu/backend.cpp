// The CPU backend: one parallel region per call.  Tensors are taken in waves that fit the last-level cache: all phases
// of a wave before the next, so that what one pass read the next finds there.  Within a wave every worker has a
// contiguous run of tiles, the same in every phase.  Results depend on neither waves nor workers.
#include "core/backend.hpp"

#include <algorithm>

#include "core/optimizers/registry.hpp"
#include "core/scalars.hpp"
#include "core/step.hpp"
#include "cpu/kernels.hpp"
#include "cpu/parallel.hpp"

namespace came::cpu {
namespace {

// Elements of a wave per worker: in f32 a gradient and a momentum of 4 MB together.  2^18 to 2^21 differ little, no
// waves at all cost CAME a sixth.
constexpr int64_t kWave = int64_t{1} << 19;

// Below this many elements a second thread costs more than it saves.
constexpr int64_t kWorthwhile = int64_t{1} << 15;

const Kernel& kernel_of(Algorithm algorithm, Target target) {
  using Choose = const Kernel& (*)(Target);
  static constexpr Choose table[] = {came_kernel, adafactor_kernel, adam_kernel, adam_kernel, lamb_kernel, sm3_kernel};
  return core::entry_of(algorithm, table)(target);
}

int64_t elements_of(const Tile& tile) { return tile.batch.count * tile.rows.count * tile.cols.count; }

/// One call: what all workers share.
class Run {
 public:
  Run(const core::Plan& plan, const came_step& step)
      : plan_(plan), step_(step), kernel_(kernel_of(plan.algorithm, target())), norm_kernel_(norm_kernel(target())) {}

  void operator()(Range phases, const Worker& worker) const {
    const auto tensors = static_cast<int64_t>(plan_.tensors.size());
    if (tensors == 0) return;
    Range rest = phases;
    // The norm is over all tensors: no wave can go ahead of it.
    if (kind(phases.begin) == PhaseKind::norm) {
      run_wave({0, tensors}, {phases.begin, 1}, worker);
      rest = {phases.begin + 1, phases.count - 1};
      if (rest.count > 0) worker.wait();
    }
    for (int64_t first = 0; rest.count > 0 && first < tensors;) {
      int64_t elements = 0;
      int64_t last = first;
      while (last < tensors && (last == first || elements < kWave * worker.count())) {
        elements += plan_.tensors[static_cast<size_t>(last++)].local_elements;
      }
      run_wave({first, last - first}, rest, worker);
      first = last;
    }
  }

 private:
  [[nodiscard]] PhaseKind kind(int64_t phase) const { return plan_.phases[static_cast<size_t>(phase)].kind; }

  [[nodiscard]] Subject subject(int64_t index, double norm) const {
    const came_options& options = core::options_of(plan_, step_, plan_.tensors[static_cast<size_t>(index)]);
    return {plan_, step_, index, core::gradient_multiplier(options, step_, norm)};
  }

  void run_wave(Range tensors, Range phases, const Worker& worker) const {
    const Range tiles = tiles_of(tensors, worker);
    for (int64_t phase = phases.begin; phase < phases.begin + phases.count; ++phase) {
      const double norm = core::gradient_norm(plan_, phase, step_);
      if (phase > 0 && kind(phase - 1) != PhaseKind::norm) {
        if (phase > phases.begin) worker.wait();
        finish(tensors, phase - 1, norm, worker);
        worker.wait();
      }
      run_tiles(tiles, phase, norm);
      if (kind(phase) == PhaseKind::norm || plan_.sharded) {
        worker.wait();
        write_slots(tensors, phase, norm, worker);
      }
    }
  }

  /// This worker's share of the tiles of a wave.
  [[nodiscard]] Range tiles_of(Range tensors, const Worker& worker) const {
    const Tensor& last = plan_.tensors[static_cast<size_t>(tensors.begin + tensors.count) - 1];
    const int64_t begin = plan_.tensors[static_cast<size_t>(tensors.begin)].tiles.begin;
    const int64_t end = last.tiles.begin + last.tiles.count;
    int64_t total = 0;
    for (int64_t k = begin; k < end; ++k) total += elements_of(plan_.tiles[static_cast<size_t>(k)]);
    // A tile belongs to the worker in whose share its middle lies.
    int64_t first = end;
    int64_t count = 0;
    int64_t before = 0;
    for (int64_t k = begin; k < end; ++k) {
      const int64_t elements = elements_of(plan_.tiles[static_cast<size_t>(k)]);
      const auto middle = static_cast<double>(before) + static_cast<double>(elements) / 2;
      before += elements;
      if (static_cast<int>(middle / static_cast<double>(total) * worker.count()) != worker.index()) continue;
      first = std::min(first, k);
      ++count;
    }
    return {first, count};
  }

  /// This worker's share of the tensors of a wave: neighbours are often a matrix and its bias.
  [[nodiscard]] static Range tensors_of(Range tensors, const Worker& worker) {
    const int64_t begin = tensors.count * worker.index() / worker.count();
    const int64_t end = tensors.count * (worker.index() + 1) / worker.count();
    return {tensors.begin + begin, end - begin};
  }

  void finish(Range tensors, int64_t done, double norm, const Worker& worker) const {
    const Range mine = tensors_of(tensors, worker);
    for (int64_t k = mine.begin; k < mine.begin + mine.count; ++k) {
      const bool empty = plan_.tensors[static_cast<size_t>(k)].view.elements() == 0;
      if (!empty && core::is_active(step_, k)) kernel_.finish(subject(k, norm), kind(done));
    }
  }

  void run_tiles(Range tiles, int64_t phase, double norm) const {
    const Kernel& kernel = kind(phase) == PhaseKind::norm ? norm_kernel_ : kernel_;
    // Every other phase goes backwards: it begins with what the one before it touched last, which is still cached.
    const bool backwards = phase % 2 != 0;
    for (int64_t k = 0; k < tiles.count; ++k) {
      const int64_t index = tiles.begin + (backwards ? tiles.count - 1 - k : k);
      const Tile& tile = plan_.tiles[static_cast<size_t>(index)];
      const Subject s = subject(tile.tensor, norm);
      s.clear(kind(phase), tile);
      if (core::is_active(step_, tile.tensor)) kernel.run(s, kind(phase), tile);
    }
  }

  void write_slots(Range tensors, int64_t phase, double norm, const Worker& worker) const {
    const Range mine = tensors_of(tensors, worker);
    for (int64_t k = mine.begin; k < mine.begin + mine.count; ++k) {
      const bool shared = plan_.tensors[static_cast<size_t>(k)].sharded || kind(phase) == PhaseKind::norm;
      if (shared) subject(k, norm).write_slot(kind(phase));
    }
  }

  const core::Plan& plan_;
  const came_step& step_;
  const Kernel& kernel_;
  const Kernel& norm_kernel_;
};

void run_phases(const core::Plan& plan, Range phases, const came_step& step) {
  if (core::found_inf(step)) return;
  int64_t elements = 0;
  for (const Tensor& t : plan.tensors) elements += t.local_elements;
  const Run run(plan, step);
  in_parallel(elements >= kWorthwhile, [&](const Worker& worker) { run(phases, worker); });
  if (phases.begin + phases.count == static_cast<int64_t>(plan.phases.size())) core::raise_counters(plan, step);
}

}  // namespace
}  // namespace came::cpu

namespace came::core {

const Backend& cpu_backend() {
  static constexpr Backend backend{
      .name = "cpu",
      .device = CAME_DEVICE_CPU,
      .tiling = {.elements = int64_t{1} << 16, .cols = int64_t{1} << 16, .least = 256, .reduces_in_place = true},
      .run_phases = cpu::run_phases,
  };
  return backend;
}

const Backend& host_backend() { return cpu_backend(); }

}  // namespace came::core
