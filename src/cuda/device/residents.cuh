// The kernels of resident matrices: blocks, waves and turns.
#pragma once

#include <type_traits>

#include "cuda/device/piece.cuh"

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
  int thread = 0;
  int rows = 0;
  int cols = 0;
  int fold = 0;

  __device__ __forceinline__ explicit Refill(const Notes& notes) : thread(ask_for_thread()) {
    if (!notes.is_active()) return;
    cols = notes.whole(Word::cols);
    fold = fold_of(cols);
    const int most = kItems >> fold;
    const int first = notes.whole(Word::index) * most;
    const int left = notes.whole(Word::rows) - first;
    rows = left < most ? left : most;
    grad = further<W>(notes.place(Word::grad, static_cast<int64_t>(first) * cols), thread * kBytesOfItem);
    by = notes.rounded(Word::multiplier);
  }
  [[nodiscard]] __device__ __forceinline__ bool refills() const { return true; }
  __device__ __forceinline__ void operator()(int item, int, Item& to) {
    const int last = (1 << fold) - 1;
    const int part = item & last;
    const int i = item >> fold;
    const int j = part * kThreads + thread;
    const W w = at_item<W>(i, j, i < rows && j * kColumns < cols);
    if (item < kRegisters) {
      to = F32::load<kColumns>(grad, w);
    } else {
      bring(&to, grad, w);
    }
    constexpr int kAcross = kThreads * kBytesOfItem;
    grad = further<W>(grad, part == last ? cols * static_cast<int>(sizeof(float)) - last * kAcross : kAcross);
  }

 private:
  static constexpr int kBytesOfItem = sizeof(Item);
};
struct NoRefill {
  static constexpr bool kAdds = false;

  [[nodiscard]] __device__ __forceinline__ bool refills() const { return false; }
  __device__ __forceinline__ void operator()(int, int, const Item&) const {}
};

/// Where a wave stands in the turns that waves take: how many of its blocks are done with a piece.
__device__ inline unsigned* turn_of(const ResidentArgs& run, int wave, int pass) {
  return run.a.turns + (2 * wave + pass) * kTurnPitch;
}
/// The turn before a pass of a wave: momentum of the waves under way, then their parameters.  Null: there is none.
__device__ inline const unsigned* turn_before(const ResidentArgs& run, int wave, int pass) {
  if (wave % kWavesAtOnce != 0) return turn_of(run, wave - 1, pass);
  if (pass == 0) return wave == 0 ? nullptr : turn_of(run, wave - 1, 1);
  const int last = wave + kWavesAtOnce - 1 < run.waves ? wave + kWavesAtOnce - 1 : run.waves - 1;
  return last == wave ? nullptr : turn_of(run, last, 0);
}
/// A piece's turn.  One thread waits until the turn before is nearly over; the next barrier holds the others.
class Turn {
 public:
  __device__ __forceinline__ Turn(const ResidentArgs& run, int wave, int pass) : run_(run), wave_(wave), pass_(pass) {}

  /// How far is the turn before?  Asked for some time before it matters.
  [[nodiscard]] __device__ __forceinline__ unsigned look() const {
    const unsigned* before = turn_before(run_, wave_, pass_);
    return ask_for_thread() != 0 || before == nullptr ? kNearly : glance(before);
  }
  __device__ __forceinline__ void begin(unsigned seen) const {
    if (seen < kNearly) keep_pace(turn_before(run_, wave_, pass_), kNearly);
  }
  __device__ __forceinline__ void end() const {
    if (ask_for_thread() == 0) atomicAdd(turn_of(run_, wave_, pass_), 1U);
  }

 private:
  const ResidentArgs& run_;
  int wave_;
  int pass_;
};
/// Where nobody takes turns.
struct NoTurn {
  [[nodiscard]] __device__ __forceinline__ unsigned look() const { return kNearly; }
  __device__ __forceinline__ void begin(unsigned) const {}
  __device__ __forceinline__ void end() const {}
};

/// One pass over all pieces of a block, each read from memory while the one before is under way.  Momentum is taken
/// from the last piece to the first, so that a block that goes from pass to pass `keeps` the piece that it begins with.
template <class P>
__device__ __forceinline__ void pass_over_all(P& piece, const Notes& notes, Stage stage, bool keeps) {
  if (stage == Stage::squares) return piece.template finish_columns<true>([] {});
  if (stage == Stage::instability) return piece.template finish_columns<false>([] {});
  const int all = (piece.all_rows + P::kRows - 1) / P::kRows;
  const int index = piece.index();
  const int step = piece.all();
  const int count = (all - index + step - 1) / step;
  const auto number = [&](int k) {
    return k < count ? index + (stage == Stage::momentum ? count - 1 - k : k) * step : -1;
  };
  for (int k = 0; k < count; ++k) {
    piece.go_to(number(k));
    const bool here = k > 0 || keeps;
    if (stage == Stage::statistics) {
      if (k == 0) piece.load(notes.place(Word::grad, piece.first()));
      piece.load_average(Word::row);
      arrived<0>();
      piece.statistics(k == 0, false, typename P::Another(piece, Word::grad, number(k + 1)), [] {});
    } else if (stage == Stage::momentum) {
      if (!here) piece.load(notes.place(Word::grad, piece.first()));
      piece.load_average(Word::row);
      piece.start(notes.place(Word::momentum, piece.first()));
      piece.momentum(k == 0, typename P::Another(piece, Word::grad, number(k + 1)), NoTurn{}, [] {});
    } else {
      if (!here) piece.load(notes.place(Word::momentum, piece.first()));
      piece.load_average(Word::res_row);
      piece.start(notes.place(Word::param, piece.first()));
      piece.apply(typename P::Another(piece, Word::momentum, number(k + 1)), NoTurn{});
    }
    __syncthreads();  // the next piece's numbers go where this one's are looked at
  }
  arrived<0>();
}

/// Matrices of more pieces than a wave has blocks: all of them take each together, and read again what they cannot
/// keep.
template <class W>
__global__ void __launch_bounds__(kThreads, kWavesAtOnce) large_kernel(const __grid_constant__ ResidentArgs run) {
  if (is_skipped(run.a)) return;
  auto* items = reinterpret_cast<Item*>(memory_of_block());
  auto* scratch = reinterpret_cast<float*>(items + (kShared + kGroup) * kThreads);
  Item registers[kRegisters];
  for (int k = 0; k < run.large_count; ++k) {
    Notes notes;
    notes.read_piece(run.a, Notes::field(run.large + k));
    notes.put(Word::index, static_cast<int>(blockIdx.x));
    if (!notes.is_active() || static_cast<int>(blockIdx.x) >= notes.whole(Word::count)) continue;
    with_fold(notes.whole(Word::cols), [&](auto fold) {
      Piece<W, decltype(fold)::value, false> piece(run, notes, items, scratch, registers);
      auto* counter = notes.template pointer<unsigned>(Word::counter);
      const auto all = static_cast<unsigned>(notes.whole(Word::count));
      unsigned arrivals = 0;
#pragma unroll 1
      for (int stage = 0; stage < static_cast<int>(Stage::apply); ++stage) {
        pass_over_all(piece, notes, static_cast<Stage>(stage), true);
        raise(counter);
        arrivals += all;
        await(counter, arrivals);
      }
      pass_over_all(piece, notes, Stage::apply, true);
    });
  }
}

/// What this block has left for others: all have seen it, or the block would not have got so far.
__device__ inline void discard_sums(const ResidentArgs& run) {
  const float* left = run.areas + blockIdx.x * run.area;
  if (left >= run.results) return;  // it took none
  const auto begin = (reinterpret_cast<uintptr_t>(left) + kLine - 1) / kLine * kLine;
  const auto end = reinterpret_cast<uintptr_t>(left + run.area) / kLine * kLine;
  for (uintptr_t line = begin + threadIdx.x * uintptr_t{kLine}; line < end; line += kThreads * uintptr_t{kLine}) {
    discard(reinterpret_cast<char*>(line));
  }
}

/// All passes: every block of the grid runs at once.
template <class W>
__global__ void __launch_bounds__(kThreads, kWavesAtOnce) resident_kernel(const __grid_constant__ ResidentArgs run) {
  if (is_skipped(run.a)) return;
  auto* items = reinterpret_cast<Item*>(memory_of_block());
  auto* scratch = reinterpret_cast<float*>(items + (kShared + kGroup) * kThreads);
  Item registers[kRegisters];
  const int first_wave = static_cast<int>(blockIdx.x) / kMostPieces;
  const int block = static_cast<int>(blockIdx.x) % kMostPieces;
  const auto fill = [&](Refill<W> refill) {
#pragma unroll
    for (int q = 0; q < kRegisters; ++q) refill(q, 0, registers[q]);
#pragma unroll 1
    for (int q = kRegisters; q < kItems; ++q) refill(q, 0, items[(q - kRegisters) * kThreads + threadIdx.x]);
    sent();
  };
  const auto piece_of = [&](int wave) {
    return wave < run.waves ? run.pieces + static_cast<int64_t>(wave) * kMostPieces + block : nullptr;
  };
  Notes notes;
  notes.read_piece(run.a, Notes::field(piece_of(first_wave)));
  fill(Refill<W>(notes));
  bool ahead = false;  // are the sums of its rows under way?
  for (int wave = first_wave; wave < run.waves; wave += kWavesAtOnce) {
    const PieceTable* later = piece_of(wave + kWavesAtOnce);
    const int32_t of_piece = Notes::field(later);
    Notes of_later;
    if (!notes.is_active()) {
      Turn(run, wave, 0).end();
      Turn(run, wave, 1).end();
      of_later.read_piece(run.a, of_piece);
      arrived<0>();
      fill(Refill<W>(of_later));
    } else {
      with_fold(notes.whole(Word::cols), [&](auto fold) {
        Piece<W, decltype(fold)::value, true> piece(run, notes, items, scratch, registers);
        const auto come = [&] { raise(notes.template pointer<unsigned>(Word::counter)); };
        const auto wait_for_all = [&](unsigned times) {
          await(notes.template pointer<unsigned>(Word::counter), times * static_cast<unsigned>(piece.all()));
        };
        piece.load_average(Word::row);
        piece.start(notes.place(Word::momentum, piece.first()));
        // What is left after the sums per column is seen with the next count.
        piece.statistics(true, ahead, NoRefill{}, come);
        piece.template finish_columns<true>([&] { wait_for_all(1); });
        come();
        of_later.read_piece(run.a, of_piece);
        wait_for_all(2);
        piece.momentum(true, NoRefill{}, Turn(run, wave, 0), come);
        piece.template finish_columns<false>([&] { wait_for_all(3); });
        come();
        wait_for_all(4);
        // Where blocks end while others still have a turn.
        if (wave + kWavesAtOnce >= run.waves && run.a.lets_next != 0) let_next_begin();
        piece.apply(Refill<W>(of_later), Turn(run, wave, 1));
      });
    }
    ahead = notes.is_active();
    notes = of_later;
  }
  discard_sums(run);
}

/// One part of it: for the pieces of the waves under way, or for a large matrix.
template <class W>
__global__ void __launch_bounds__(kThreads, kWavesAtOnce)
    streaming_kernel(const __grid_constant__ ResidentArgs run, int wave, int large, Stage stage) {
  if (is_skipped(run.a)) return;
  auto* items = reinterpret_cast<Item*>(memory_of_block());
  auto* scratch = reinterpret_cast<float*>(items + (kShared + kGroup) * kThreads);
  Item registers[kRegisters];
  Notes notes;
  notes.read_piece(run.a,
                   Notes::field(large >= 0 ? run.large + large
                                           : run.pieces + static_cast<int64_t>(wave) * kMostPieces + blockIdx.x));
  if (large >= 0) notes.put(Word::index, static_cast<int>(blockIdx.x));
  if (!notes.template is_taken<W>() || notes.whole(Word::index) >= notes.whole(Word::count)) return;
  with_fold(notes.whole(Word::cols), [&](auto fold) {
    Piece<W, decltype(fold)::value, false> piece(run, notes, items, scratch, registers);
    pass_over_all(piece, notes, stage, false);
  });
}

}  // namespace came::cuda
