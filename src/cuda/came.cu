// CAME, Algorithm 2 of the paper: docs/algorithms.md, equations (5) to (13).
// Three passes; bytes per parameter: statistics G, momentum G + 2M, apply M + 2P.
#include <type_traits>

#include "cuda/device/confidence.cuh"

namespace came::cuda {
namespace {

/// Rows of a panel that a thread has in flight: as many bytes for each variant.
template <class K>
constexpr int kRows = !K::kPlain                               ? 1
                      : std::is_same_v<typename K::Param, F32> ? 1
                                                               : 2;
template <class K>
constexpr int kApplyRows = !K::kPlain                               ? 1
                           : std::is_same_v<typename K::Param, F32> ? 2
                                                                    : 4;

/// m <- beta1 m + (1 - beta1) u : (9), and the sums of U = (u - m)^2 with the stored m : (10), for a panel of matrix b.
template <class K, int Threads, class ColMultiplier, class Done>
CAME_MAIN_ROUTE void blend_panel(const Team<Threads>& team, const Update<typename K::T>& update,
                                 Shelf<typename K::T, Threads>& shelf, int64_t b, Range rows, Range cols, double own,
                                 const ColMultiplier& col_multiplier, typename K::T* sums, bool fresh, int& agreements,
                                 const Done& done) {
  using T = typename K::T;
  constexpr int N = K::N;
  const Subject<T>& s = update.s;
  const Place grad = s.grad(b);
  const Place momentum = s.momentum(b);
  const T rate = static_cast<T>(algorithms::rate_of(s.o.beta1));
  const T sign = s.sign();
  const bool cautious = !K::kPlain && s.o.cautious != 0;
  struct Raw {
    typename K::Param::template Raw<N> g;
    typename K::Momentum::template Raw<N> m;
  };
  reduce_panel<Add, K, kRows<K>>(
      team, s, shelf, b, rows, cols, [&](int64_t i) { return update.row_multiplier(b, i, own); }, col_multiplier, sums,
      fresh,
      [&](const typename K::At& w) {
        return Raw{K::Param::template load<N>(grad, w), K::Momentum::template load<N>(momentum, w)};
      },
      [&](const typename K::At& w, const Raw& raw, T row, const T(&col)[N], T(&values)[N]) {
        T g[N];
        T m[N];
        T u[N];
        K::Param::decode(grad, raw.g, g);
        K::Momentum::decode(momentum, raw.m, m);
#pragma unroll
        for (int n = 0; n < N; ++n) {
          u[n] = g[n] * row * col[n];
          m[n] = blend(m[n], rate, u[n]);
        }
        K::Momentum::store(momentum, w, m);
#pragma unroll
        for (int n = 0; n < N; ++n) values[n] = w.has(n) ? square(u[n] - m[n]) : T{0};
        if (cautious) {
#pragma unroll
          for (int n = 0; n < N; ++n) {
            if (w.has(n)) agreements += static_cast<int>(agreeing(m[n], g[n] * sign));
          }
        }
      },
      done);
}

/// Owned rows: (11) for them, and one sum per column.
template <class K>
CAME_MAIN_ROUTE void blend_rows(const Subject<typename K::T>& s, const Part& part, int& agreements) {
  using T = typename K::T;
  constexpr int64_t kSegment = Shelf<T, kWide>::kSegment;
  const Team<kWide> team;
  const Update<T> update(s);
  const Averages<T> averages = instability(s);
  Shelf<T, kWide>& shelf = shelves<T, kWide>().block;
  const int64_t b = part.batch;
  T* sums = s.cols(part, s.a.phase, core::kInstability + part.half);
  const T* roots = s.column_multipliers(b);
  for (int64_t first = 0; first < part.rows; first += kSegment) {
    const Range segment{part.row + first, part.rows - first < kSegment ? part.rows - first : kSegment};
    blend_panel<K>(
        team, update, shelf, b, segment, {0, part.cols}, 1.0, [&](int64_t j) { return roots[j]; }, sums, first == 0,
        agreements,
        [&](int64_t i, double total, bool begins) {
          double& so_far = shelf.total[i - segment.begin];
          so_far = begins ? total : so_far + total;
        });
    for (int64_t i = team.rank; i < segment.count; i += kWide) {
      averages.average_row(b, segment.begin + i, shelf.total[i]);
    }
  }
}

/// Whole matrices: (11) altogether.
template <class K>
CAME_ROUTE void blend_matrices(const Subject<typename K::T>& s, const Part& part, int& agreements) {
  using T = typename K::T;
  const Update<T> update(s);
  const Averages<T> averages = instability(s);
  for_matrices<kWide>(s, part, [&](const auto& team, auto& shelf, T* columns, int64_t b) {
    constexpr int kThreads = std::decay_t<decltype(team)>::kThreads;
    const bool once = s.t.cols <= static_cast<int64_t>(kThreads) * K::N;
    blend_panel<K>(
        team, update, shelf, b, {0, s.t.rows}, {0, s.t.cols}, update.averages.own_root(team, b),
        [&](int64_t j) { return update.averages.col_root(b, j); }, columns, true, agreements,
        [&](int64_t i, double total, bool first) {
          if (once) {
            averages.average_row(b, i, total);
          } else {
            shelf.total[i] = first ? total : shelf.total[i] + total;
          }
        });
    for (int64_t i = team.rank; !once && i < s.t.rows; i += kThreads) averages.average_row(b, i, shelf.total[i]);
    for (int64_t j = team.rank; j < s.t.cols; j += kThreads) {
      averages.average_col(b, j, static_cast<double>(columns[j]));
    }
    team.sync();
  });
}

/// Owned columns, a strip at a time, or neither: sums over rows, and (11) for owned columns.
template <class K>
CAME_ROUTE void blend_columns(const Subject<typename K::T>& s, const Part& part, int& agreements) {
  using T = typename K::T;
  const Team<kWide> team;
  const Update<T> update(s);
  const Averages<T> averages = instability(s);
  Shelf<T, kWide>& shelf = shelves<T, kWide>().block;
  T* columns = reinterpret_cast<T*>(&shelves<T, kWide>() + 1);
  const bool owned = s.t.owner == Owner::columns;
  const int64_t width = owned ? kStrip : part.cols;
  T* of_rows = s.rows(part, core::kInstability);
  for (int64_t i = team.rank; i < part.rows; i += kWide) of_rows[i] = 0;
  team.sync();
  for (int64_t j = 0; j < part.cols; j += width) {
    const Range strip{part.col + j, part.cols - j < width ? part.cols - j : width};
    blend_panel<K>(
        team, update, shelf, part.batch, {part.row, part.rows}, strip, 1.0,
        [&](int64_t col) { return update.averages.col_root(part.batch, col); },
        owned ? columns : s.cols(part, s.a.phase, core::kInstability), true, agreements,
        [&](int64_t i, double total, bool) { of_rows[i - part.row] += static_cast<T>(total); });
    for (int64_t k = team.rank; owned && k < strip.count; k += kWide) {
      averages.average_col(part.batch, strip.begin + k, static_cast<double>(columns[k]));
    }
    team.sync();
  }
}

/// All but owned rows.
template <class K>
CAME_ROUTE void blend_other(const Args& a, const Desk& desk, int& agreements) {
  const Subject<typename K::T> s(a, desk, K::kPlain);
  if (!s.t.factored) {
    blend_elements<K>(Update<typename K::T>(s), desk.part, agreements);
  } else if (s.t.owner == Owner::matrix) {
    blend_matrices<K>(s, desk.part, agreements);
  } else {
    blend_columns<K>(s, desk.part, agreements);
  }
}

template <class T>
CAME_ROUTE void end_part(const Args& a, const Desk& desk, int agreements) {
  const Team<kWide> team;
  const Subject<T> s(a, desk, false);
  if (s.o.cautious != 0) count_agreement(team, s, agreements);
  const Averages<T> averages = instability(s);
  arrive<Add>(
      team, s, desk.part.batch, s.t.factored ? &averages : nullptr,
      [&](int64_t b) { finish_momentum(team, s, a.phase, b, true); },
      [&] { finish_agreement(team, s, a.phase, true); });
}

template <class K>
__global__ void __launch_bounds__(kWide, 2) momentum_kernel(const __grid_constant__ Args a) {
  using T = typename K::T;
  const Beside beside(a);
  if (is_skipped(a)) return;
  const Desk& desk = desk_of(a);
  if (!is_taken<K>(a, desk.scalars)) return;
  int agreements = 0;
  if (desk.tensor.factored && desk.tensor.owner == Owner::rows) {
    const Subject<T> s(a, desk, K::kPlain);
    with_known<K>(s, [&](auto types) { blend_rows<decltype(types)>(s, desk.part, agreements); });
  } else {
    int counted = 0;  // with a place of its own, which the main route's needs not
    blend_other<K>(a, desk, counted);
    agreements = counted;
  }
  end_part<T>(a, desk, agreements);
}

template <class K, int Threads, class ColMultiplier>
CAME_MAIN_ROUTE void apply_panel(const Team<Threads>& team, const Subject<typename K::T>& s,
                                 Shelf<typename K::T, Threads>& shelf, const Part& part, int64_t b, double own,
                                 const ColMultiplier& col_multiplier) {
  using T = typename K::T;
  constexpr int R = kApplyRows<K>;
  const Averages<T> averages = instability(s);
  const Apply<K> apply(s, b);
  const double by = s.k.lr * s.matrix_scalars(b).direction * own * s.matrix_scalars(b).confidence;
  for_panel<K, R>(
      team, s, shelf, b, Range{part.row, part.rows}, Range{part.col, part.cols},
      [&](int64_t i) { return averages.row_root(b, i, by); }, col_multiplier,
      [&](const typename K::At& w) { return apply.load(w); },
      [&](const typename K::At& w, const typename Apply<K>::Loaded& raw, T row, const T(&col)[K::N]) {
        apply(w, raw, [&](int n, T m) { return m * row * col[n]; });
      });
}

template <class K>
CAME_MAIN_ROUTE void apply_rows(const Subject<typename K::T>& s, const Part& part) {
  using T = typename K::T;
  const T* roots = s.column_multipliers(part.batch);
  with_known<K>(s, [&](auto types) {
    apply_panel<decltype(types)>(Team<kNarrow>(), s, shelves<T, kNarrow>().block, part, part.batch, 1.0,
                                 [&](int64_t j) { return roots[j]; });
  });
}

template <class K>
CAME_ROUTE void apply_matrices(const Subject<typename K::T>& s, const Part& part) {
  const Averages<typename K::T> averages = instability(s);
  for_matrices<kNarrow>(s, part, [&](const auto& team, auto& shelf, typename K::T*, int64_t b) {
    apply_panel<K>(team, s, shelf, part, b, averages.own_root(team, b),
                   [&](int64_t j) { return averages.col_root(b, j); });
  });
}

template <class K>
CAME_ROUTE void apply_other(const Args& a, const Desk& desk) {
  const Subject<typename K::T> s(a, desk, K::kPlain);
  if (s.t.factored) {
    apply_matrices<K>(s, desk.part);
  } else {
    apply_elements<K>(s, desk.part);
  }
}

template <class K>
__global__ void __launch_bounds__(kNarrow, 4) apply_kernel(const __grid_constant__ Args a) {
  const Beside beside(a);
  if (is_skipped(a)) return;
  const Desk& desk = desk_of(a);
  if (!is_taken<K>(a, desk.scalars)) return;
  const Subject<typename K::T> s(a, desk, K::kPlain);
  if (s.column_multipliers(desk.part.batch) != nullptr) {
    apply_rows<K>(s, desk.part);
  } else {
    apply_other<K>(a, desk);
  }
}

__global__ void __launch_bounds__(kNarrow) finish_kernel(const __grid_constant__ Args a) {
  if (!is_finished_here(a)) return;
  const Team<kNarrow> team;
  with_subject(a, blockIdx.x, [&](const auto& s) {
    const Update update(s);
    for (int64_t b = 0; b < s.t.sets; ++b) {
      if (a.phase_kind == PhaseKind::statistics) update.finish_matrix(team, a.phase, b, false);
      if (a.phase_kind == PhaseKind::momentum) finish_momentum(team, s, a.phase, b, false);
    }
    if (a.phase_kind == PhaseKind::statistics) update.finish_statistics(team, a.phase, false);
    if (a.phase_kind == PhaseKind::rms) update.finish_rms(team, a.phase);
    if (a.phase_kind == PhaseKind::momentum) finish_agreement(team, s, a.phase, false);
  });
}

void run(const Args& args, const Launch& launch, const Queue& queue) {
  if (args.phase_kind == PhaseKind::statistics || args.phase_kind == PhaseKind::rms) {
    return run_statistics(args, launch, queue);
  }
  if (launch.work == Work::strips) return run_strips(args, launch, queue);
  with_types(launch.variant, [&](auto types) {
    using K = decltype(types);
    using T = typename K::T;
    if (args.phase_kind == PhaseKind::momentum) {
      launch_parts(momentum_kernel<K>, args, launch, kWide, sizeof(Shelves<T, kWide>), queue);
    } else {
      launch_parts(apply_kernel<K>, args, launch, kNarrow, sizeof(Shelves<T, kNarrow>), queue);
    }
  });
}

void finish(const Args& args, const Queue& queue) { launch_tensors(finish_kernel, args, queue); }

}  // namespace

const Kernels& came_kernels() {
  static constexpr Kernels kernels{run, finish};
  return kernels;
}

}  // namespace came::cuda
