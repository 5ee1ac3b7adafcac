// The kernels of matrices that stay on the chip: blocks, waves and turns.
#pragma once

#include <type_traits>

#include "cuda/device/visitor.cuh"

namespace came::cuda {

/// Calls f with the fold of a width.
template <class F>
__device__ __forceinline__ void with_fold(int64_t cols, const F& f) {
  if (cols <= kThreads * kColumns) {
    f(std::integral_constant<int, 0>{});
  } else if (cols <= 2 * kThreads * kColumns) {
    f(std::integral_constant<int, 1>{});
  } else {
    f(std::integral_constant<int, 2>{});
  }
}

/// Brings item after item of a piece's gradient.
template <class W>
struct Refill {
  static constexpr bool kAdds = true;

  Place grad{};
  float by = 0;
  int rows = 0;
  int cols = 0;
  int fold = 0;

  __device__ __forceinline__ Refill(const Notes& notes, int index) {
    if (!notes.is_active()) return;
    cols = notes.whole(Word::cols);
    fold = fold_of(cols);
    const int most = kItems >> fold;
    const int first = index * most;
    const int left = notes.whole(Word::rows) - first;
    rows = left < most ? left : most;
    grad = notes.place(Word::grad, static_cast<int64_t>(first) * cols);
    by = notes.rounded(Word::factor);
  }
  [[nodiscard]] __device__ __forceinline__ W at(int item) const {
    const int i = item >> fold;
    const int j = (item & ((1 << fold) - 1)) * kThreads + static_cast<int>(threadIdx.x);
    const bool there = i < rows && j * kColumns < cols;
    if constexpr (W::kPlain) {
      return {static_cast<uint32_t>(i * cols + j * kColumns), there};
    } else {
      return {i, static_cast<int64_t>(j) * kColumns, there ? kColumns : 0, false, kWarp};
    }
  }
  __device__ __forceinline__ void operator()(int item, Item& to) const {
    if (item < kRegisters) {
      to = F32::load<kColumns>(grad, at(item));
    } else {
      bring(&to, grad, at(item));
    }
  }
};
struct NoRefill {
  static constexpr bool kAdds = false;

  __device__ __forceinline__ void operator()(int, const Item&) const {}
};

/// Where a wave stands in the turns that waves take: how many of its blocks are done with a visit.
__device__ inline unsigned* turn_of(const ResidentArgs& run, int wave, int visit) {
  return run.a.turns + (2 * wave + visit) * kTurnPitch;
}
/// Waits until the visit before this one is nearly over: momentum of all teams, then parameters of all teams.  One
/// thread waits; the next barrier holds the others.
__device__ inline void take_turn(const ResidentArgs& run, int wave, int visit) {
  const int team = wave % kTeams;
  int before = wave - 1;
  int what = visit;
  if (team == 0) {
    what = 1 - visit;
    if (visit == 1) before = wave + kTeams - 1 < run.waves ? wave + kTeams - 1 : run.waves - 1;
    if (visit == 1 && before == wave) return;
  }
  if (before >= 0) keep_pace(turn_of(run, before, what), kNearly);
}
__device__ inline void end_turn(const ResidentArgs& run, int wave, int visit) {
  atomicAdd(turn_of(run, wave, visit), 1U);
}
/// Both, for a visitor.
struct Turn {
  const ResidentArgs& run;
  int wave;
  int visit;

  __device__ __forceinline__ void operator()(bool begins) const {
    if (threadIdx.x != 0) return;
    if (begins) {
      take_turn(run, wave, visit);
    } else {
      end_turn(run, wave, visit);
    }
  }
};

/// One visit to all pieces of a block, each read from memory.  Momentum is taken from the last piece to the first, so
/// that a block that goes from visit to visit `keeps` the piece that it begins with.
template <class V>
__device__ __forceinline__ void visit_all(V& visit, const Notes& notes, Stage stage, bool keeps) {
  if (stage == Stage::squares) return visit.template finish_columns<true>(nullptr);
  if (stage == Stage::instability) return visit.template finish_columns<false>(nullptr);
  const int all = (visit.all_rows + V::kRows - 1) / V::kRows;
  const int count = (all - visit.piece.index + visit.piece.count - 1) / visit.piece.count;
  for (int k = 0; k < count; ++k) {
    visit.go_to(visit.piece.index + (stage == Stage::momentum ? count - 1 - k : k) * visit.piece.count);
    const bool here = keeps && k == 0;
    if (stage == Stage::statistics) {
      visit.load(notes.place(Word::grad, visit.first()));
      visit.load_average(Word::row);
      visit.statistics(k == 0, false, [] {});
      __syncthreads();  // the next piece's sums go where this one's are added up
    } else if (stage == Stage::momentum) {
      if (!here) visit.load(notes.place(Word::grad, visit.first()));
      visit.load_average(Word::row);
      visit.start(notes.place(Word::momentum, visit.first()));
      visit.momentum(
          k == 0, [](bool) {}, [] {});
    } else {
      if (!here) visit.load(notes.place(Word::momentum, visit.first()));
      visit.load_average(Word::res_row);
      visit.start(notes.place(Word::param, visit.first()));
      visit.apply(NoRefill{}, [](bool) {});
    }
    arrived<0>();
  }
}

/// Matrices of more pieces than a team has blocks: all of them take each together, and read again what they cannot
/// keep.
template <class W>
__global__ void __launch_bounds__(kThreads, kTeams) large_kernel(const __grid_constant__ ResidentArgs run) {
  if (is_skipped(run.a)) return;
  auto* items = reinterpret_cast<Item*>(memory_of_block());
  auto* scratch = reinterpret_cast<float*>(items + (kShared + kGroup) * kThreads);
  Item registers[kRegisters];
  for (int k = 0; k < run.large_count; ++k) {
    PieceTable piece = run.large[k];
    piece.index = static_cast<int32_t>(blockIdx.x);
    Notes notes;
    notes.read(run.a, piece.tensor);
    if (!notes.is_active() || piece.index >= piece.count) continue;
    with_fold(notes.whole(Word::cols), [&](auto fold) {
      Visitor<W, decltype(fold)::value, false> visit(run, notes, piece, items, scratch, registers);
      auto* counter = notes.template pointer<unsigned>(Word::counter);
      unsigned arrivals = 0;
#pragma unroll 1
      for (int stage = 0; stage < static_cast<int>(Stage::apply); ++stage) {
        visit_all(visit, notes, static_cast<Stage>(stage), true);
        raise(counter);
        arrivals += static_cast<unsigned>(piece.count);
        if (threadIdx.x == 0) poll(counter, arrivals);
        __syncthreads();
      }
      visit_all(visit, notes, Stage::apply, true);
    });
  }
}

/// All visits: every block of the grid runs at once.
template <class W>
__global__ void __launch_bounds__(kThreads, kTeams) resident_kernel(const __grid_constant__ ResidentArgs run) {
  if (is_skipped(run.a)) return;
  auto* items = reinterpret_cast<Item*>(memory_of_block());
  auto* scratch = reinterpret_cast<float*>(items + (kShared + kGroup) * kThreads);
  Item registers[kRegisters];
  const int team = static_cast<int>(blockIdx.x) / kMostPieces;
  const int block = static_cast<int>(blockIdx.x) % kMostPieces;
  const auto fill = [&](const Refill<W>& refill) {
#pragma unroll 1
    for (int q = kRegisters; q < kItems; ++q) refill(q, items[(q - kRegisters) * kThreads + threadIdx.x]);
    sent();
#pragma unroll
    for (int q = 0; q < kRegisters; ++q) refill(q, registers[q]);
  };
  const auto piece_of = [&](int wave) {
    return wave < run.waves ? run.pieces[static_cast<int64_t>(wave) * kMostPieces + block] : PieceTable{-1, 0, 0, 0, 0};
  };
  PieceTable piece = piece_of(team);
  Notes notes;
  notes.read(run.a, piece.tensor);
  fill(Refill<W>(notes, piece.index));
  float* left = nullptr;  // where this block leaves its sums
  bool ahead = false;     // are those of its rows under way?
  for (int wave = team; wave < run.waves; wave += kTeams) {
    const PieceTable later = piece_of(wave + kTeams);
    Notes of_later;
    if (!notes.is_active()) {
      Turn{run, wave, 0}(false);
      Turn{run, wave, 1}(false);
      of_later.read(run.a, later.tensor);
      arrived<0>();
      fill(Refill<W>(of_later, later.index));
    } else {
      with_fold(notes.whole(Word::cols), [&](auto fold) {
        Visitor<W, decltype(fold)::value, true> visit(run, notes, piece, items, scratch, registers);
        left = visit.area(piece.index);
        auto* counter = notes.template pointer<unsigned>(Word::counter);
        const auto all = static_cast<unsigned>(piece.count);
        visit.load_average(Word::row);
        visit.start(notes.place(Word::momentum, visit.first()));
        // What is left after the sums per column is seen with the next count.
        visit.statistics(true, ahead, [&] { raise(counter); });
        visit.template finish_columns<true>(counter);
        raise(counter);
        of_later.read(run.a, later.tensor);
        if (threadIdx.x == 0) poll(counter, 2 * all);
        __syncthreads();
        visit.momentum(true, Turn{run, wave, 0}, [&] { raise(counter); });
        visit.template finish_columns<false>(counter);
        raise(counter);
        if (threadIdx.x == 0) poll(counter, 4 * all);
        __syncthreads();
        visit.apply(Refill<W>(of_later, later.index), Turn{run, wave, 1});
      });
    }
    ahead = notes.is_active();
    piece = later;
    notes = of_later;
  }
  if (left == nullptr) return;
  // All have seen them, or the block would not have got so far.
  const auto begin = (reinterpret_cast<uintptr_t>(left) + kLine - 1) / kLine * kLine;
  const auto end = reinterpret_cast<uintptr_t>(left + run.area) / kLine * kLine;
  for (uintptr_t line = begin + threadIdx.x * uintptr_t{kLine}; line < end; line += kThreads * uintptr_t{kLine}) {
    discard(reinterpret_cast<char*>(line));
  }
}

/// One part of it: for the pieces of as many waves as there are teams, or for a large matrix.
template <class W>
__global__ void __launch_bounds__(kThreads, kTeams)
    streaming_kernel(const __grid_constant__ ResidentArgs run, int wave, int large, Stage stage) {
  if (is_skipped(run.a)) return;
  auto* items = reinterpret_cast<Item*>(memory_of_block());
  auto* scratch = reinterpret_cast<float*>(items + (kShared + kGroup) * kThreads);
  Item registers[kRegisters];
  PieceTable piece = large >= 0 ? run.large[large] : run.pieces[static_cast<int64_t>(wave) * kMostPieces + blockIdx.x];
  if (large >= 0) piece.index = static_cast<int32_t>(blockIdx.x);
  Notes notes;
  notes.read(run.a, piece.tensor);
  if (!notes.is_active() || piece.index >= piece.count) return;
  with_fold(notes.whole(Word::cols), [&](auto fold) {
    Visitor<W, decltype(fold)::value, false> visit(run, notes, piece, items, scratch, registers);
    visit_all(visit, notes, stage, false);
  });
}

}  // namespace came::cuda
