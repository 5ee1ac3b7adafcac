// From a plan to tensors, and for each phase the parts or chunks that blocks take, largest first.
#include "cuda/content.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "algorithms/quantize.hpp"
#include "core/optimizers/descriptor.hpp"

namespace came::cuda {
namespace {

/// Elements of a part that leaves nothing to reduce.
constexpr int64_t kPart = int64_t{1} << 16;

/// Rows from which on a tile is halved, where a block leaves one sum per column and the tile has room for two.
constexpr int64_t kHalved = 128;

int8_t find(const core::Tensor& t, const char* name) {
  for (size_t k = 0; k < t.states.size(); ++k) {
    if (std::strcmp(t.states[k].name, name) == 0) return static_cast<int8_t>(k + 2);
  }
  return 0;
}

DType dtype_of(const core::Tensor& t, int8_t at) {
  return at == 0 ? core::statistics_dtype(t) : t.states[static_cast<size_t>(at) - 2].dtype;
}

States states_of(const core::Plan& plan, const core::Tensor& t) {
  States s{};
  s.momentum = find(t, "exp_avg");
  s.momentum_scale = find(t, "exp_avg_scale");
  const bool averages = plan.algorithm == Algorithm::came || plan.algorithm == Algorithm::adafactor;
  const int8_t second = find(t, "exp_avg_sq");
  if (averages) {
    s.full = second;
    s.row = find(t, "exp_avg_sq_row");
    s.col = find(t, "exp_avg_sq_col");
    s.res_full = find(t, "exp_avg_res");
    s.res_row = find(t, "exp_avg_res_row");
    s.res_col = find(t, "exp_avg_res_col");
  } else if (plan.algorithm == Algorithm::sm3) {
    s.full = find(t, "accumulator");
    s.row = find(t, "accumulator_row");
    s.col = find(t, "accumulator_col");
  } else {
    s.second = second;
    s.second_scale = find(t, "exp_avg_sq_scale");
  }
  return s;
}

Variant variant_of(const TensorTable& t, bool cautious) {
  if (t.dtype == DType::f64) return Variant::any64;
  const bool alike = t.dtype == t.grad_dtype && (t.dtype == DType::f32 || t.dtype == DType::bf16);
  // Where one number says where elements are: storage.cuh, Where<true>.
  const int64_t unit = t.states.momentum_scale != 0 ? algorithms::kMomentumBlock : 4;
  const bool plain = t.cols % unit == 0 && t.cols == t.whole_cols && t.near;
  if (!alike || !plain || t.states.second_scale != 0 || cautious) return Variant::any32;
  const bool wide = t.dtype == DType::f32;
  if (t.states.momentum_scale != 0) return wide ? Variant::f32_codes : Variant::bf16_codes;
  if (t.momentum_dtype == DType::bf16) return wide ? Variant::f32_bf16 : Variant::bf16_bf16;
  return wide ? Variant::f32_f32 : Variant::bf16_f32;
}

TensorTable table_of(const core::Plan& plan, const core::Tensor& t, int64_t index) {
  TensorTable table{};
  table.batch = t.local.batch.count;
  table.rows = t.local.rows.count;
  table.cols = t.local.cols.count;
  table.whole_rows = t.view.rows;
  table.whole_cols = t.view.cols;
  table.first_batch = t.local.batch.begin;
  table.first_row = t.local.rows.begin;
  table.first_col = t.local.cols.begin;
  table.pointers = t.first_state + 2 * index;
  table.sets = t.local_sets();
  table.first_set = t.first_matrix_scalars;
  table.tile = t.tiles.begin;
  table.tiles = table.sets > 0 ? t.tiles.count / table.sets : 0;
  table.column_multipliers = t.column_multipliers;
  table.id = t.id;
  table.elements = static_cast<double>(t.view.elements());
  table.group = t.group;
  table.dtype = t.dtype;
  table.grad_dtype = t.grad_dtype;
  table.states = states_of(plan, t);
  table.momentum_dtype = dtype_of(t, table.states.momentum);
  table.second_dtype = dtype_of(t, table.states.second);
  table.owner = t.owner;
  table.factored = t.factored;
  table.sharded = t.sharded;
  table.per_matrix = t.set_per_matrix();
  table.contiguous =
      table.states.momentum_scale == 0 && table.states.second_scale == 0 && table.cols == table.whole_cols;
  for (size_t k = 0; k < t.slots.size(); ++k) {
    const core::Slot& slot = t.slots[k];
    table.slots[k] = {slot.offset,
                      slot.totals,
                      static_cast<int32_t>(slot.shape.rows),
                      static_cast<int32_t>(slot.shape.cols),
                      static_cast<int32_t>(slot.shape.scalars),
                      static_cast<int32_t>(slot.shape.totals)};
    const PhaseKind kind = plan.phases[k].kind;
    if (kind == PhaseKind::statistics || kind == PhaseKind::cover)
      table.front = static_cast<int32_t>(slot.shape.numbers());
  }
  return table;
}

/// Elements by themselves: one row, and tiles that begin where vectors do.
void flatten(TensorTable& t, std::vector<Part>& tiles) {
  const int64_t elements = t.batch * t.rows * t.cols;
  t.batch = t.rows = t.whole_rows = 1;
  t.cols = t.whole_cols = elements;
  const int64_t count = t.tiles;
  if (count == 0) return;
  constexpr int64_t kUnit = 8;
  const int64_t each = ((elements + count - 1) / count + kUnit - 1) / kUnit * kUnit;
  for (int64_t k = 0; k < count; ++k) {
    Part& tile = tiles[static_cast<size_t>(t.tile + k)];
    const int64_t begin = std::min(elements, k * each);
    tile.row = 0;
    tile.rows = 1;
    tile.batch = 0;
    tile.batches = 1;
    tile.col = begin;
    tile.cols = std::min(elements, begin + each) - begin;
  }
}

int64_t elements_of(const Part& part) { return part.batches * part.rows * part.cols; }

/// What blocks take of a tile in a phase.
void cut(const Part& tile, const TensorTable& t, PhaseKind kind, std::vector<Part>& list) {
  if (elements_of(tile) == 0) {
    list.push_back(tile);  // still counted among its tensor's
    return;
  }
  const bool rows_owned = t.factored && t.owner == Owner::rows;
  if (kind == PhaseKind::momentum && tile.halves > 1) {
    const int64_t most = (tile.rows + 1) / 2;
    for (int32_t half = 0; half < 2; ++half) {
      Part part = tile;
      part.half = half;
      part.row = tile.row + half * most;
      part.rows = half == 0 ? most : tile.rows - most;
      list.push_back(part);
    }
    return;
  }
  if (kind == PhaseKind::apply && t.factored && t.owner != Owner::matrix) {
    const int64_t rows = rows_owned ? std::max<int64_t>(1, kPart / tile.cols) : tile.rows;
    for (int64_t i = 0; i < tile.rows; i += rows) {
      Part part = tile;
      part.row = tile.row + i;
      part.rows = std::min(rows, tile.rows - i);
      list.push_back(part);
    }
    return;
  }
  list.push_back(tile);
}

/// Does the phase do anything to this tensor?
bool takes_part(const core::Plan& plan, const TensorTable& t, PhaseKind kind) {
  const came_options& o = plan.groups[static_cast<size_t>(t.group)];
  if (kind == PhaseKind::rms) return t.factored && t.owner == Owner::none;
  if (kind == PhaseKind::agreement) return o.cautious != 0;
  if (kind == PhaseKind::apply && plan.algorithm == Algorithm::sm3) return o.cautious != 0;
  if (kind == PhaseKind::momentum && plan.algorithm == Algorithm::adafactor) return t.states.momentum != 0;
  return true;
}

/// Shared memory for the columns that a block owns: two numbers each.
int32_t buffer_of(const TensorTable& t, PhaseKind kind) {
  const bool needs = kind == PhaseKind::statistics || kind == PhaseKind::momentum || kind == PhaseKind::cover;
  if (!needs || !t.factored) return 0;
  const int64_t number = t.dtype == DType::f64 ? 8 : 4;
  if (t.owner == Owner::columns) return static_cast<int32_t>(2 * kStrip * number);
  if (t.owner != Owner::matrix) return 0;
  constexpr int64_t kWarps = 16;
  static_assert(kWarps * kTinyMatrix <= core::kSmallMatrix && kStrip <= core::kSmallMatrix);
  const int64_t warps = t.rows * t.cols <= kTinyMatrix ? kWarps : 1;
  return static_cast<int32_t>(2 * t.cols * number * warps);
}

/// Is a matrix resident during a step?  Depends on nothing but itself.
bool is_resident(const core::Plan& plan, const TensorTable& t) {
  constexpr int64_t kNarrowest = 512;
  constexpr int64_t kWidest = 4096;
  constexpr int64_t kMostNumber = int64_t{1} << 24;
  if (!t.factored || t.sharded || t.batch != 1 || t.tiles == 0) return false;
  if (t.owner != Owner::rows && t.owner != Owner::matrix) return false;
  if (t.cols < kNarrowest || t.cols > kWidest || pieces_of(t.rows, t.cols) > kMostNumber) return false;
  return variant_of(t, plan.groups[static_cast<size_t>(t.group)].cautious != 0) == Variant::f32_f32;
}

/// Is it taken through a step in one launch?  Everything is f32, of aligned elements one after the other, and nothing
/// is to be known but the size of its update.
bool is_vector(const core::Plan& plan, const TensorTable& t) {
  const bool cautious = plan.groups[static_cast<size_t>(t.group)].cautious != 0;
  const bool f32 = t.dtype == DType::f32 && t.grad_dtype == DType::f32 && t.momentum_dtype == DType::f32;
  return plan.algorithm == Algorithm::came && !t.factored && !t.sharded && t.contiguous && f32 && !cautious &&
         t.states.res_full == 0 && t.states.momentum != 0 && t.tiles > 0 && t.tiles <= kVectorTiles &&
         t.cols <= t.tiles * kVectorTile;
}

/// Are its elements one after the other in the whole tensor too, and is each taken by itself, in one pass?
bool is_flat(const core::Plan& plan, const TensorTable& t) {
  const bool cautious = plan.groups[static_cast<size_t>(t.group)].cautious != 0;
  if (!is_adam(plan) || plan.find(PhaseKind::moments) >= 0 || cautious) return false;
  const Variant variant = variant_of(t, cautious);
  return variant != Variant::any64 && (variant != Variant::any32 || t.contiguous) &&
         (t.batch == 1 || t.rows == t.whole_rows);
}

/// Has an SM memory for two blocks that take strips?  Without a device, as the largest have.
bool has_memory(int device) {
  int memory = 0;
  if (cudaDeviceGetAttribute(&memory, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device) != cudaSuccess) {
    cudaGetLastError();
    return true;
  }
  constexpr int kBlocks = 2;
  constexpr int kBeside = 16 << 10;
  return memory >= kBlocks * (kAheadBytes + kBeside);
}

/// Does a warp have registers enough for its rows?  Depends on nothing but itself, and the device.
bool is_strips(const core::Plan& plan, const TensorTable& t) {
  const came_options& o = plan.groups[static_cast<size_t>(t.group)];
  const bool averages = plan.algorithm == Algorithm::came || plan.algorithm == Algorithm::adafactor;
  constexpr int64_t kNarrowest = 512;
  constexpr int64_t kWidest = 4096;
  return averages && t.factored && t.owner == Owner::rows && t.grad_dtype == DType::bf16 && t.dtype != DType::f64 &&
         t.cols >= kNarrowest && t.cols <= kWidest && o.cautious == 0 && o.scale_parameter == 0;
}

/// What blocks take of vectors, those of the longest first: they take longest.  Up to `most` blocks share vectors, a
/// tile each.
std::vector<VectorTable> vectors_of(const Content& c, int64_t most) {
  std::vector<VectorTable> vectors;
  for (const TensorTable& t : c.tensors) {
    if (!t.vector) continue;
    const Part& tile = c.tiles[static_cast<size_t>(t.tile)];
    const auto tiles = static_cast<int32_t>(t.tiles);
    vectors.push_back({static_cast<int32_t>(&t - c.tensors.data()), static_cast<int32_t>(t.cols),
                       static_cast<int32_t>(tile.cols), tiles, 0, tiles, 0});
  }
  std::stable_sort(vectors.begin(), vectors.end(),
                   [](const VectorTable& a, const VectorTable& b) { return a.elements > b.elements; });
  std::vector<VectorTable> shared;
  int64_t sums = 0;
  for (VectorTable vector : vectors) {
    if (vector.tiles > 1 && vector.tiles <= most - sums) {
      vector.sums = std::exchange(sums, sums + vector.tiles);
      vector.count = 1;
    }
    for (; vector.first < vector.tiles; vector.first += vector.count) shared.push_back(vector);
  }
  return shared;
}

}  // namespace

Content content_of(const core::Plan& plan) {
  Content c;
  if (const int norm = plan.find(PhaseKind::norm); norm >= 0) c.norms = plan.phases[static_cast<size_t>(norm)].slots;
  for (const core::Tile& tile : plan.tiles) {
    const core::Tensor& t = plan.tensors[static_cast<size_t>(tile.tensor)];
    const bool halved =
        plan.algorithm == Algorithm::came && t.factored && t.owner == Owner::rows && tile.rows.count > kHalved;
    c.tiles.push_back({tile.tensor, tile.batch.begin, tile.batch.count, tile.rows.begin, tile.rows.count,
                       tile.cols.begin, tile.cols.count, tile.partial, 0, halved ? 2 : 1, t.group,
                       t.first_state + 2 * tile.tensor});
  }
  for (size_t k = 0; k < plan.tensors.size(); ++k) {
    TensorTable table = table_of(plan, plan.tensors[k], static_cast<int64_t>(k));
    c.sets += table.sets;
    if (!table.factored && !table.sharded && table.contiguous) flatten(table, c.tiles);
    constexpr int64_t kFar = int64_t{1} << 31;
    table.near = true;
    for (int64_t tile = 0; tile < table.sets * table.tiles; ++tile) {
      const Part& part = c.tiles[static_cast<size_t>(table.tile + tile)];
      if (table.cols >= kFar || part.rows >= kFar / std::max<int64_t>(1, table.cols)) table.near = false;
    }
    table.flat = is_flat(plan, table);
    c.tensors.push_back(table);
  }
  if (plan.algorithm == Algorithm::came && has_room(plan.device_index)) {
    for (TensorTable& t : c.tensors) t.resident = is_resident(plan, t);
  }
  if (has_memory(plan.device_index)) {
    for (TensorTable& t : c.tensors) t.strips = is_strips(plan, t);
  }
  std::tie(c.pieces, c.residents) = waves_of(c.tensors);
  for (TensorTable& t : c.tensors) t.vector = is_vector(plan, t);
  for (TensorTable& t : c.tensors) {
    const bool cautious = plan.groups[static_cast<size_t>(t.group)].cautious != 0;
    c.routes.push_back({variant_of(t, cautious), t.resident ? Way::resident : t.vector ? Way::vector : Way::phases});
    t.needs_alignment = needs_alignment(c.routes.back());
  }
  c.vectors = vectors_of(c, 0);
  std::vector<VectorTable> shared = vectors_of(c, has_room(plan.device_index) ? kMostSharing : 0);
  if (shared.size() > c.vectors.size()) c.unshared = std::exchange(c.vectors, std::move(shared));
  for (size_t phase = 0; phase < plan.phases.size(); ++phase) {
    const PhaseKind kind = plan.phases[phase].kind;
    std::vector<Part> parts[kWorks][2][kVariants];  // by whether they are vectors
    std::vector<Chunk> chunks[kVariants];
    int32_t buffers[kVariants] = {};
    for (TensorTable& t : c.tensors) {
      if (!takes_part(plan, t, kind) || t.tiles == 0 || (t.resident && kind != PhaseKind::norm)) continue;
      const auto which = static_cast<size_t>(c.routes[static_cast<size_t>(&t - c.tensors.data())].variant);
      if (t.flat && kind == PhaseKind::apply) {
        const int64_t count = (t.batch * t.rows * t.cols + kChunk - 1) / kChunk;
        for (int64_t k = 0; k < count; ++k) {
          chunks[which].push_back({static_cast<int32_t>(&t - c.tensors.data()), static_cast<uint32_t>(k)});
        }
        continue;
      }
      const bool reduces =
          kind == PhaseKind::statistics || (kind == PhaseKind::momentum && plan.algorithm == Algorithm::came);
      const Work work = t.strips && reduces ? Work::strips : Work::parts;
      const int vectors = t.vector && kind != PhaseKind::norm ? 1 : 0;
      std::vector<Part>& list = parts[static_cast<int>(work)][vectors][which];
      const size_t before = list.size();
      for (int64_t tile = 0; tile < t.sets * t.tiles; ++tile) {
        cut(c.tiles[static_cast<size_t>(t.tile + tile)], t, kind, list);
      }
      t.units[phase] = static_cast<int32_t>(static_cast<int64_t>(list.size() - before) / t.sets);
      buffers[which] = std::max(buffers[which], buffer_of(t, kind));
    }
    std::vector<Launch>& launches = c.launches[phase];
    const auto add = [&](Work work, bool vectors, int which, auto& all, const auto& list, int32_t buffer) {
      if (list.empty()) return;
      const auto first = static_cast<int64_t>(all.size());
      const auto count = static_cast<int64_t>(list.size());
      launches.push_back({static_cast<Variant>(which), work, first, count, buffer, vectors, false});
      all.insert(all.end(), list.begin(), list.end());
    };
    for (int which = 0; which < kVariants; ++which) {
      add(Work::chunks, false, which, c.chunks, chunks[which], 0);
      for (const Work work : {Work::parts, Work::strips}) {
        for (const int vectors : {0, 1}) {
          std::vector<Part>& list = parts[static_cast<int>(work)][vectors][which];
          // The largest first: the small ones then fill the gaps at the end.
          std::stable_sort(list.begin(), list.end(),
                           [](const Part& a, const Part& b) { return elements_of(a) > elements_of(b); });
          add(work, vectors != 0, which, c.parts, list, work == Work::parts ? buffers[which] : 0);
        }
      }
    }
    // A launch begins when all blocks of the one before it have begun: first those of few blocks, which wait for memory
    // while others use it, then those of many, and small blocks fill the gaps that larger ones leave at the end.
    const auto rank = [](const Launch& launch) {
      constexpr int64_t kFew = 64;
      return launch.count <= kFew ? 0 : launch.work != Work::parts ? 1 : 2;
    };
    std::stable_sort(launches.begin(), launches.end(),
                     [&](const Launch& a, const Launch& b) { return rank(a) < rank(b); });
  }
  return c;
}

}  // namespace came::cuda
