// What a plan keeps on its device, made once, and what a step writes into its workspace before the first kernel.  Plain
// structs: the host fills them, kernels read them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/backend.hpp"
#include "core/plan.hpp"

namespace came::cuda {

using core::Owner;
using core::PhaseKind;
using core::Range;

/// Kernels are compiled for these storages of parameter and gradient, and momentum.  `any` looks types up at run time.
enum class Variant : int32_t { f32_f32, f32_bf16, f32_codes, bf16_f32, bf16_bf16, bf16_codes, any32, any64 };
inline constexpr int kVariants = 8;

/// Do the kernels of a variant take whole vectors only?  Tensors of such a one with an address that is no multiple of
/// 16 bytes are taken by those of `any32`, in a launch of their own: the same bits.
constexpr bool needs_alignment(Variant variant) { return variant < Variant::any32; }

/// How a whole step takes a tensor: phase by phase, or through all phases in one launch, as a vector or a matrix that
/// is resident.
enum class Way : int32_t { phases, vector, resident };
inline constexpr int kWays = 3;

/// What the host must know of a tensor.
struct Route {
  Variant variant;
  Way way;
};
constexpr bool needs_alignment(const Route& route) {
  return needs_alignment(route.variant) || route.way != Way::phases;
}

/// Most pointers of a tensor: parameter, gradient, states.
inline constexpr int kMostPointers = 10;

/// Most phases of a plan: norm, statistics, rms, momentum, apply.
inline constexpr int kPhases = 5;

/// A matrix of at most so many elements is taken by one warp.
inline constexpr int64_t kTinyMatrix = 256;

/// Columns that a block owns together where it owns columns.
inline constexpr int64_t kStrip = 1024;

/// Most shared memory that a block takes for columns that it owns: two numbers each, of the largest small matrix, or of
/// as many tiny ones as a block has warps.
inline constexpr int64_t kMostBuffer = 2 * core::kSmallMatrix * int64_t{sizeof(double)};

/// Where a state tensor is found among a tensor's pointers; 0: it has none.
struct States {
  int8_t momentum, momentum_scale, second, second_scale;
  int8_t row, col, full;              ///< Averages of the squared gradient; SM3: accumulators.
  int8_t res_row, res_col, res_full;  ///< CAME: averages of the instability.
};

/// Where a phase's results lie: docs/architecture.md, "The plan".
struct SlotTable {
  int64_t offset;         ///< Vectors and scalars of matrices, in the reduction buffer,
  int64_t totals_offset;  ///< and totals.
  int32_t rows, cols, scalars, totals;
};

/// One tensor.  Matrices, rows and columns are those of this rank unless they are called whole.
struct TensorTable {
  int64_t batch, rows, cols;
  int64_t whole_rows, whole_cols;
  int64_t first_batch, first_row, first_col;
  int64_t pointers;            ///< Index of its first: parameter, gradient, states.
  int64_t sets;                ///< Of partials: one per matrix, or one.
  int64_t first_set;           ///< Number of the first among those of the plan.
  int64_t tile;                ///< Number of its first tile.
  int64_t tiles;               ///< Per set.
  int64_t column_multipliers;  ///< In the workspace.
  int32_t front;               ///< Scalars before the vectors of a tile's partials.
  uint64_t id;
  double elements;  ///< Of the whole tensor.
  int32_t group;
  DType dtype, grad_dtype, momentum_dtype, second_dtype;
  Owner owner;
  bool factored, sharded, per_matrix;
  bool resident;    ///< Stays in shared memory and registers during a step.
  bool vector;      ///< Taken through a step in one launch.
  bool flat;        ///< Taken in chunks: nothing depends on rows and columns.
  bool strips;      ///< Rows are taken in strips by the passes that reduce.
  bool near;        ///< A number of 32 bits counts the elements between any two of a tile.
  bool contiguous;  ///< Rows follow each other in the whole tensor too, and nothing depends on where they end.
  States states;
  bool needs_alignment;  ///< Route.
  SlotTable slots[kPhases];
  int32_t units[kPhases];  ///< Thread blocks per set, in each phase.
};

/// A part of a tensor: a tile, or what one thread block takes of it in a phase.
struct Part {
  int64_t tensor;
  int64_t batch, batches;
  int64_t row, rows;
  int64_t col, cols;
  int64_t partial;  ///< In the workspace.
  int32_t half;     ///< Which half of its tile it is, where tiles are halved.
  int32_t halves;
  // The tensor's, so that a block need not look there first.
  int64_t group;
  int64_t pointers;
};

/// What follows from a reduction, per set.
struct MatrixScalars {
  double update;      ///< Multiplier of the update: root of the mean row average over the clipping ratio.
  double confidence;  ///< Multiplier of the momentum: the same root for the instability, bias-corrected.
  double direction;   ///< Multiplier of the whole direction: cautious rescaling, LAMB's trust ratio.
  double rate;        ///< Adafactor: the learning rate.
};
static_assert(sizeof(MatrixScalars) == core::kMatrixScalars * sizeof(double));

/// What a step says of one tensor, once its scalars are read.
struct Scalars {
  double lr;
  double count;                     ///< Number of this step, from 1.
  double multiplier;                ///< Of the gradient: unscaled, clipped to max_grad_norm, negated by `maximize`.
  double correction1, correction2;  ///< 1 - beta^count.
  double correction3;
  double beta2;       ///< Of this step: Adafactor's may grow.
  uint64_t keys[4];   ///< Of stochastic rounding, by algorithms::Stream.
  int32_t active;     ///< Taken by the kernels of its variant.
  int16_t vectors;    ///< Everything is aligned for whole vectors.
  int16_t unaligned;  ///< Taken by those of `any32` instead, since an address is not aligned.
};

/// What a step says of a resident matrix, or of a vector, as blocks read it: numbers of f64, addresses,
/// whole numbers.
enum class Word : int32_t {
  param,
  grad,
  momentum,
  row,  ///< Of a vector: averages of all elements.
  col,
  res_row,
  res_col,
  counter,  ///< Of its blocks' arrivals.
  active,
  rows,
  cols,
  share_of_row,  ///< 1 / rows.
  multiplier,
  lr,
  decay,
  rate1,  ///< algorithms::rate_of(beta1), and so on.
  rate2,
  rate3,
  eps1,
  eps2,
  clip,
  correction,
  unaligned,  ///< Scalars::unaligned.
  // Of the piece that a block takes: PieceTable.
  index = 28,
  count,
  base,
  results
};
struct Sheet {
  uint64_t word[32];
};

/// What a step says of a tensor that Adam takes element by element, as blocks read it.
struct MomentsSheet {
  uint64_t param, grad, momentum, momentum_scale, second;
  uint64_t keys[2];  ///< Of stochastic rounding: parameter, momentum.
  uint64_t whole;    ///< Number of its first element in the whole tensor.
  int64_t elements;
  float multiplier, rate1, rate2;
  float l2, decay, root, eps, rate;  ///< Rates of device/moments.cuh.
  DType dtype, grad_dtype, momentum_dtype;
  int32_t stochastic, active;
  int16_t vectors, unaligned;  ///< As in Scalars.
};

/// So many elements of such a tensor are one block's.
inline constexpr int64_t kChunk = 1024;
struct Chunk {
  int32_t tensor;
  uint32_t number;
};

/// A scalar of a step: on the device, or its values themselves among the pointers.
struct ScalarTable {
  const void* data;  ///< Null: `word` says where, or it is not given.
  DType dtype;
  int32_t each;  ///< More than one.
  int64_t word;  ///< Index of the first value among the pointers; -1: not given.
};

/// What blocks take of tensors: parts, parts whose rows warps take in strips, chunks.
enum class Work : int32_t { parts, strips, chunks };
inline constexpr int kWorks = 3;

/// Shared memory of a block for vectors that are on their way, where rows are taken in strips.
inline constexpr int kAheadBytes = 64 << 10;

/// One launch of a phase: tensors of one kernel variant.
struct Launch {
  Variant variant;
  Work work;
  int64_t first;
  int64_t count;
  int32_t buffer;  ///< Bytes of shared memory for columns that a block owns.
  bool vectors;    ///< Of vectors, which a whole step takes otherwise.
  bool beside;     ///< Runs beside the launch before it.
};

/// What one block takes of a vector through a step, tile by tile.
struct VectorTable {
  int32_t tensor;
  int32_t elements;  ///< Of the whole vector.
  int32_t each;      ///< Elements of a tile,
  int32_t tiles;     ///< of which it has so many.
  int32_t first;     ///< The block's first tile,
  int32_t count;     ///< and how many it takes: all, or one.
  int64_t sums;      ///< Where blocks that share it leave a number for each tile, in Args::sums.
};
/// Most elements of a tile, and most tiles of a vector.
inline constexpr int kVectorTile = 4096;
inline constexpr int kVectorTiles = 16;

/// What every kernel is given.
struct Args {
  const TensorTable* tensors;
  const came_options* groups;
  const Part* tiles;
  const Part* parts;    ///< Of the launch,
  const Chunk* chunks;  ///< likewise.
  const char* soon;     ///< Tables that are read once a step has begun,
  int64_t soon_bytes;   ///< so many bytes of them.
  int64_t tensor_count, set_count, turn_count;
  // In the workspace.
  double* workspace;
  MatrixScalars* matrix_scalars;
  Scalars* scalars;
  uint64_t* words;
  unsigned* arrivals;              ///< Per set, then per tensor.
  unsigned long long* agreements;  ///< Per tensor.
  double* sums;                    ///< Of tiles of shared vectors.
  unsigned* turns;                 ///< Of waves.
  Sheet* sheets;                   ///< Per tensor, of resident matrices and of vectors;
  MomentsSheet* moments;           ///< likewise, of those that are taken in chunks.
  double* reductions;
  ScalarTable found_inf, grad_scale, lr, step;
  const Range* norms;  ///< Where squared norms lie in the reduction buffer,
  int64_t norm_count;  ///< in so many ranges; none: 0.
  Algorithm algorithm;
  int32_t phase;
  PhaseKind phase_kind;
  int32_t split;      ///< The plan has a phase for moments of its own.
  int32_t raises;     ///< The step ends with this call.
  int32_t lets_next;  ///< The next launch runs beside this one.
  int32_t unaligned;  ///< The launch takes what others leave because of addresses; at first: is there any?
};

/// Words of the options of one group.
inline constexpr int64_t kOptionsWords = sizeof(came_options) / sizeof(uint64_t);
static_assert(sizeof(came_options) % sizeof(uint64_t) == 0);

/// Doubles of workspace, by what they hold.
struct Room {
  int64_t scalars, words, arrivals, agreements, sheets, sums, turns;
};
Room room_of(const core::Plan& plan);
int64_t room_in_all(const core::Plan& plan);
/// What pieces take of it with so many floats; 0: they lie at the beginning of the workspace.
int64_t room_for_pieces(const core::Plan& plan, int64_t floats);

struct PieceTable;
struct Residents;

/// Everything a plan keeps for its steps.
class Tables {
 public:
  explicit Tables(const core::Plan& plan);
  ~Tables();
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  // On the host, as every call needs it: a plan's tensors themselves are many lines of memory.
  Room room{};
  std::vector<uint8_t> states_of;             ///< Of each tensor, how many.
  std::vector<Route> routes;                  ///< Of each tensor,
  int32_t tensors_of[kVariants][kWays] = {};  ///< and how many have the same.

  std::vector<Launch> launches[kPhases];
  bool overlap = false;  ///< May those of a phase run beside each other?
  const TensorTable* tensors = nullptr;
  const came_options* groups = nullptr;
  const Part* tiles = nullptr;
  const Part* parts = nullptr;
  const Chunk* chunks = nullptr;
  const VectorTable* vectors = nullptr;
  const Range* norms = nullptr;
  int64_t norm_count = 0;
  const VectorTable* unshared = nullptr;
  int64_t set_count = 0;
  int64_t vector_count = 0;
  int64_t unshared_count = 0;     ///< 0: no blocks share a vector.
  bool vectors_beside = false;    ///< Resident matrices.
  bool vectors_together = false;  ///< Where they have a cooperative launch of their own, has the device room for it?

  // Resident matrices: resident.hpp.
  std::unique_ptr<const Residents> residents;
  const PieceTable* pieces = nullptr;
  int64_t soon_bytes = 0;  ///< From `vectors` on: all of those, and the first pieces.

 private:
  void* memory_ = nullptr;
  int device_ = 0;
};

int64_t table_bytes(const core::Plan& plan);

/// Makes a device current while it lives.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  int device_ = 0;
};

/// Throws, with CUDA's words, unless a call went well.
void check(int error, const char* what);

}  // namespace came::cuda
