// CAME and Adafactor: averages of the squared gradient over rows and columns, and what the RMS of the update follows
// from. docs/algorithms.md, equations (5) to (8), "Three passes".  Reads G bytes per parameter.
#include "cuda/device/launch.cuh"
#include "cuda/device/squares.cuh"

namespace came::cuda {
namespace {

/// The rule: rows that are owned and not very wide.
template <class K>
CAME_MAIN_ROUTE bool run_rows(const Args& a, const Desk& desk, RowSums<typename K::T, kWide>& sums) {
  using T = typename K::T;
  constexpr int64_t kReach = static_cast<int64_t>(kWide) * K::N;
  const Subject<T> s(a, desk, K::kPlain);
  const Part& part = desk.part;
  if (!s.t.factored || s.t.owner != Owner::rows || s.t.cols <= kNarrowRow || s.t.cols > 2 * kReach) return false;
  const Team<kWide> team;
  const Update<T> update(s);
  const SquaresPass<K, kWide> pass(team, update, sums, part.batch);
  T* plain = s.cols(part, a.phase, core::kSquares);
  T* weighted = s.cols(part, a.phase, core::kWeightedSquares);
  if (s.t.cols <= kReach) {
    pass.template rows_held<true, 1, kHeld>(part.batch, {part.row, part.rows}, plain, weighted);
  } else {
    pass.template rows_held<true, 2, kHeld / 2>(part.batch, {part.row, part.rows}, plain, weighted);
  }
  return true;
}

/// All else.
template <class K>
CAME_ROUTE void run_other(const Args& a, const Desk& desk, RowSums<typename K::T, kWide>& sums) {
  using T = typename K::T;
  const Subject<T> s(a, desk, K::kPlain);
  const Part& part = desk.part;
  const Update<T> update(s);
  const Team<kWide> block;
  double* scalars = s.scalars(part);
  if (!s.t.factored) {
    const double sum = SquaresPass<K, kWide>(block, update, sums, part.batch).elements(part);
    if (block.rank == 0) scalars[core::kUpdateSquares] = sum;
    return;
  }
  if (s.t.owner == Owner::matrix) {
    double sum = 0;
    for_matrices<kWide>(s, part, [&](const auto& team, auto&, T* columns, int64_t b) {
      using Group = std::decay_t<decltype(team)>;
      // A warp that has a matrix to itself needs no sums of other warps.
      auto& own = reinterpret_cast<RowSums<T, Group::kThreads>&>(sums);
      const double of_matrix = SquaresPass<K, Group::kThreads>(team, update, own, b).whole_matrix(b, columns);
      if (team.rank == 0) sum += of_matrix;
      team.sync();
    });
    sum = block.sum(sum);
    if (block.rank == 0) scalars[core::kUpdateSquares] = sum;
    return;
  }
  const SquaresPass<K, kWide> pass(block, update, sums, part.batch);
  Shelf<T, kWide>& shelf = shelves<T, kWide>().block;
  if (s.t.owner == Owner::rows) {
    pass.owned_rows(part.batch, {part.row, part.rows}, s.cols(part, s.a.phase, core::kSquares),
                    s.cols(part, s.a.phase, core::kWeightedSquares));
  } else if (s.t.owner == Owner::columns) {
    pass.owned_columns(shelf, part, reinterpret_cast<T*>(&shelves<T, kWide>() + 1));
  } else {
    T* rows = s.rows(part, core::kSquares);
    for (int64_t i = block.rank; i < part.rows; i += kWide) rows[i] = 0;
    block.sync();
    pass.sum_panel(shelf, part.batch, part, {part.col, part.cols}, s.cols(part, s.a.phase, core::kSquares), true, rows,
                   [](int64_t) { return T{1}; });
  }
}

/// Adafactor: squares of the parameters, for a rate relative to their size : (15)
template <class K>
CAME_ROUTE void sum_parameters(const Args& a, const Desk& desk) {
  using T = typename K::T;
  constexpr int N = K::N;
  const Subject<T> s(a, desk, K::kPlain);
  const Part& part = desk.part;
  const Team<kWide> team;
  double sum = 0;
  for (int64_t b = part.batch; b < part.batch + part.batches; ++b) {
    const Place param = s.param(b);
    for_vectors<K, 2>(team, s, b, part, [&](const typename K::At(&w)[2]) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        T p[N];
        K::Param::decode(param, K::Param::template load<N>(param, w[r]), p);
        sum += sound_squares(p);
      }
    });
  }
  sum = team.sum(sum);
  if (team.rank == 0) s.scalars(part)[core::parameter_squares_scalar(s.slot(s.a.phase))] = sum;
}

template <class T>
CAME_ROUTE void end_part(const Args& a, const Desk& desk) {
  const Team<kWide> team;
  const Subject<T> s(a, desk, false);
  const Update<T> update(s);
  arrive<Add>(
      team, s, desk.part.batch, &update.averages, [&](int64_t b) { update.finish_matrix(team, a.phase, b, true); },
      [&] { update.finish_statistics(team, a.phase, true); });
}

template <class K>
__global__ void __launch_bounds__(kWide, 2) statistics_kernel(const __grid_constant__ Args a) {
  using T = typename K::T;
  const Beside beside(a);
  if (is_skipped(a)) return;
  const Desk& desk = desk_of(a);
  if (!is_taken<K>(a, desk.scalars)) return;
  __shared__ RowSums<T, kWide> sums;
  if (!run_rows<K>(a, desk, sums)) run_other<K>(a, desk, sums);
  if (desk.options.scale_parameter != 0) sum_parameters<K>(a, desk);
  end_part<T>(a, desk);
}

/// The sum of squared updates, where a matrix is held neither by whole rows nor by whole columns.
template <class K>
__global__ void __launch_bounds__(kWide, 2) rms_kernel(const __grid_constant__ Args a) {
  using T = typename K::T;
  constexpr int N = K::N;
  const Beside beside(a);
  if (is_skipped(a)) return;
  const Desk& desk = desk_of(a);
  const Part& part = desk.part;
  const Subject<T> s(a, desk, K::kPlain);
  if (!is_taken<K>(a, s.k)) return;
  const Update<T> update(s);
  const Team<kWide> team;
  const Place grad = s.grad(part.batch);
  double sum = 0;
  for_panel<K, 1>(
      team, s, shelves<T, kWide>().block, part.batch, Range{part.row, part.rows}, Range{part.col, part.cols},
      [&](int64_t i) { return update.row_multiplier(part.batch, i, Update<T>::kRmsScale); },
      [&](int64_t j) { return update.averages.col_root(part.batch, j); },
      [&](const typename K::At& w) { return K::Param::template load<N>(grad, w); },
      [&](const typename K::At&, const typename K::Param::template Raw<N>& raw, T row, const T(&col)[N]) {
        T g[N];
        K::Param::decode(grad, raw, g);
        T mine = 0;
#pragma unroll
        for (int n = 0; n < N; ++n) mine += square(g[n] * row * col[n]);
        sum += static_cast<double>(mine);
      });
  sum = team.sum(sum);
  if (team.rank == 0) s.scalars(part)[core::kUpdateSquares] = sum;
  arrive<Add>(
      team, s, part.batch, static_cast<const Averages<T>*>(nullptr), [](int64_t) {}, [] {});
}

}  // namespace

void run_statistics(const Args& args, const Launch& launch, const Queue& queue) {
  if (launch.work == Work::strips) return run_strips(args, launch, queue);
  with_gradient_types(launch.variant, [&](auto types) {
    using K = decltype(types);
    using T = typename K::T;
    const size_t shared = sizeof(Shelves<T, kWide>);
    if (args.phase_kind == PhaseKind::statistics) {
      launch_parts(statistics_kernel<K>, args, launch, kWide, shared, queue);
    } else {
      launch_parts(rms_kernel<K>, args, launch, kWide, shared, queue);
    }
  });
}

}  // namespace came::cuda
