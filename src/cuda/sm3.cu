// SM3-II over the rows and columns of a matrix: docs/algorithms.md, equations (25) to (27).
// One pass, G + 2M + 2P bytes per parameter; `cautious` makes it three.
#include <type_traits>

#include "cuda/device/launch.cuh"
#include "cuda/device/reduction.cuh"

namespace came::cuda {
namespace {

template <class K>
constexpr int kRows = !K::kPlain || std::is_same_v<typename K::Param, F32> ? 1 : 2;

/// The smaller one; a NaN is smaller than all.
template <class T>
__device__ T least(T a, T b) {
  return a < b || a != a ? a : b;
}

/// (25) and, unless the direction waits to be rescaled, (27), for N elements.
template <class K>
struct Cover {
  using T = typename K::T;
  static constexpr int N = K::N;

  Place grad, param, momentum;
  T multiplier, sign, eps, lr, decay, rate;
  bool moves;

  __device__ Cover(const Subject<T>& s, int64_t b)
      : grad(s.grad(b)),
        param(s.param(b)),
        momentum(s.momentum(b)),
        multiplier(s.multiplier()),
        sign(s.sign()),
        eps(static_cast<T>(s.o.eps)),
        lr(static_cast<T>(s.k.lr)),
        decay(static_cast<T>(s.k.lr * s.o.weight_decay)),
        rate(static_cast<T>(algorithms::rate_of(s.o.beta1))),
        moves(K::kPlain || s.o.cautious == 0) {}

  struct Loaded {
    typename K::Param::template Raw<N> g, p;
    typename K::Momentum::template Raw<N> m;
  };
  __device__ Loaded load(const typename K::At& w) const {
    Loaded raw;
    raw.g = K::Param::template load<N>(grad, w);
    if (moves) raw.p = K::Param::template load<N>(param, w);
    if (momentum) raw.m = K::Momentum::template load<N>(momentum, w);
    return raw;
  }
  /// `cover` is the old one on entry, the new one on return.
  __device__ void operator()(const typename K::At& w, const Loaded& raw, T (&cover)[N]) const {
    T direction[N];
    K::Param::decode(grad, raw.g, direction);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const T g = direction[n] * multiplier;
      cover[n] = w.has(n) ? cover[n] + square(g) : T{0};
      direction[n] = g / sqrt(cover[n] + eps);
    }
    if (momentum) {
      T m[N];
      K::Momentum::decode(momentum, raw.m, m);
#pragma unroll
      for (int n = 0; n < N; ++n) m[n] = blend(m[n], rate, direction[n]);
      K::Momentum::store(momentum, w, m);
#pragma unroll
      for (int n = 0; n < N; ++n) direction[n] = m[n];
    }
    if (!moves) return;
    T p[N];
    K::Param::decode(param, raw.p, p);
#pragma unroll
    for (int n = 0; n < N; ++n) p[n] = moved(p[n], decay, lr * direction[n]);
    K::Param::store(param, w, p);
  }
};

/// The covers of a panel; their maxima go to `cols` and done(i, largest of row i, first) : (26).
template <class K, int Threads, class Done>
__device__ void cover_panel(const Team<Threads>& team, const Subject<typename K::T>& s,
                            Shelf<typename K::T, Threads>& shelf, int64_t b, Range rows, Range cols,
                            typename K::T* to_cols, const Done& done) {
  using T = typename K::T;
  constexpr int N = K::N;
  const T* row_covers = s.template state<T>(s.t.states.row) + s.row_at(b, 0);
  const T* col_covers = s.template state<T>(s.t.states.col) + s.col_at(b, 0);
  const Cover<K> cover(s, b);
  reduce_panel<Largest, K, kRows<K>>(
      team, s, shelf, b, rows, cols, [&](int64_t i) { return row_covers[i]; }, [&](int64_t j) { return col_covers[j]; },
      to_cols, true, [&](const typename K::At& w) { return cover.load(w); },
      [&](const typename K::At& w, const typename Cover<K>::Loaded& raw, T row, const T(&col)[N], T(&values)[N]) {
#pragma unroll
        for (int n = 0; n < N; ++n) values[n] = least(row, col[n]);
        cover(w, raw, values);
      },
      done);
}

template <class T>
__device__ void keep_largest(T& to, double largest, bool first) {
  to = first ? static_cast<T>(largest) : Largest::of(static_cast<T>(largest), to);
}

template <class K>
CAME_MAIN_ROUTE void cover_tile(const Subject<typename K::T>& s, const Part& part) {
  using T = typename K::T;
  const Team<kWide> team;
  T* of_rows = s.rows(part, core::kCovers);
  cover_panel<K>(team, s, shelves<T, kWide>().block, part.batch, {part.row, part.rows}, {part.col, part.cols},
                 s.cols(part, s.a.phase, core::kCovers),
                 [&](int64_t i, double largest, bool first) { keep_largest(of_rows[i - part.row], largest, first); });
}

/// Small matrices, whose covers are stored at once.
template <class K>
CAME_ROUTE void cover_matrices(const Subject<typename K::T>& s, const Part& part) {
  using T = typename K::T;
  for_matrices<kWide>(s, part, [&](const auto& team, auto& shelf, T* columns, int64_t b) {
    constexpr int kThreads = std::decay_t<decltype(team)>::kThreads;
    T* row_covers = s.template state<T>(s.t.states.row) + s.row_at(b, 0);
    T* col_covers = s.template state<T>(s.t.states.col) + s.col_at(b, 0);
    // A row that is wider than the team is read again before its maximum is known.
    const bool once = s.t.cols <= static_cast<int64_t>(kThreads) * K::N;
    cover_panel<K>(team, s, shelf, b, {0, s.t.rows}, {0, s.t.cols}, columns,
                   [&](int64_t i, double largest, bool first) {
                     if (once) {
                       row_covers[i] = static_cast<T>(largest);
                     } else {
                       keep_largest(shelf.total[i], largest, first);
                     }
                   });
    for (int64_t i = team.rank; !once && i < s.t.rows; i += kThreads) row_covers[i] = static_cast<T>(shelf.total[i]);
    for (int64_t j = team.rank; j < s.t.cols; j += kThreads) col_covers[j] = columns[j];
    team.sync();
  });
}

template <class K>
CAME_ROUTE void cover_elements(const Subject<typename K::T>& s, const Part& part) {
  using T = typename K::T;
  using S = typename Statistic<T>::Type;
  constexpr int N = K::N;
  const Team<kWide> team;
  const Cover<K> cover(s, part.batch);
  const Place full = s.full(s.t.states.full, part.batch);
  for_vectors<K, 1>(team, s, part.batch, part, [&](const typename K::At(&w)[1]) {
    const auto raw = cover.load(w[0]);
    T v[N];
    S::decode(full, S::template load<N>(full, w[0]), v);
    cover(w[0], raw, v);
    S::template store<N>(full, w[0], v);
  });
}

/// The covers of the next step are the maxima of this one: (26).
template <int Threads, class T>
CAME_ROUTE void finish_cover(const Team<Threads>& team, const Subject<T>& s, int phase, int64_t b, bool tiles) {
  if (!s.t.per_matrix) return;  // stored already
  T* rows = s.template state<T>(s.t.states.row) + s.row_at(b, 0);
  T* cols = s.template state<T>(s.t.states.col) + s.col_at(b, 0);
  for (int64_t i = team.rank; i < s.t.rows; i += Threads) {
    rows[i] = static_cast<T>(row_result<Largest>(s, phase, b, core::kCovers, i, tiles));
  }
  for_columns<Largest>(team, s, phase, b, tiles,
                       [&](int64_t j, double largest, double) { cols[j] = static_cast<T>(largest); });
}

template <class K>
CAME_ROUTE void cover_other(const Args& a, const Desk& desk) {
  const Subject<typename K::T> s(a, desk, K::kPlain);
  if (s.t.factored) {
    cover_matrices<K>(s, desk.part);
  } else {
    cover_elements<K>(s, desk.part);
  }
}

template <class T>
CAME_ROUTE void end_part(const Args& a, const Desk& desk) {
  const Team<kWide> team;
  const Subject<T> s(a, desk, false);
  arrive<Largest>(
      team, s, desk.part.batch, static_cast<const Averages<T>*>(nullptr),
      [&](int64_t b) { finish_cover(team, s, a.phase, b, true); }, [] {});
}

template <class K>
__global__ void __launch_bounds__(kWide, 2) cover_kernel(const __grid_constant__ Args a) {
  using T = typename K::T;
  const Beside beside(a);
  if (is_skipped(a)) return;
  const Desk& desk = desk_of(a);
  if (!is_taken<K>(a, desk.scalars)) return;
  if (desk.tensor.factored && desk.tensor.owner != Owner::matrix) {
    cover_tile<K>(Subject<T>(a, desk, K::kPlain), desk.part);
  } else {
    cover_other<K>(a, desk);
  }
  end_part<T>(a, desk);
}

/// Counts the elements that agree with the gradient, or moves the parameters by them.
template <class K>
__global__ void __launch_bounds__(kNarrow) cautious_kernel(const __grid_constant__ Args a) {
  using T = typename K::T;
  constexpr int N = K::N;
  const Beside beside(a);
  if (is_skipped(a)) return;
  const Desk& desk = desk_of(a);
  const Part& part = desk.part;
  const Subject<T> s(a, desk, K::kPlain);
  if (!is_taken<K>(a, s.k) || s.o.cautious == 0) return;
  const Team<kNarrow> team;
  const bool applies = a.phase_kind == PhaseKind::apply;
  int agreements = 0;
  for (int64_t b = part.batch; b < part.batch + part.batches; ++b) {
    const Cover<K> cover(s, b);
    const T by = static_cast<T>(applies ? s.k.lr * s.matrix_scalars(b).direction : 0.0);
    for_vectors<K, 1>(team, s, b, part, [&](const typename K::At(&w)[1]) {
      T g[N];
      T m[N];
      K::Param::decode(cover.grad, K::Param::template load<N>(cover.grad, w[0]), g);
      K::Momentum::decode(cover.momentum, K::Momentum::template load<N>(cover.momentum, w[0]), m);
      if (!applies) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
          if (w[0].has(n)) agreements += static_cast<int>(agreeing(m[n], g[n] * cover.sign));
        }
        return;
      }
      T p[N];
      K::Param::decode(cover.param, K::Param::template load<N>(cover.param, w[0]), p);
#pragma unroll
      for (int n = 0; n < N; ++n) p[n] = moved(p[n], cover.decay, m[n] * by * agreeing(m[n], g[n] * cover.sign));
      K::Param::store(cover.param, w[0], p);
    });
  }
  if (applies) return;
  count_agreement(team, s, agreements);
  arrive<Add>(
      team, s, part.batch, static_cast<const Averages<T>*>(nullptr), [](int64_t) {},
      [&] { finish_agreement(team, s, a.phase, true); });
}

__global__ void __launch_bounds__(kNarrow) finish_kernel(const __grid_constant__ Args a) {
  if (!is_finished_here(a)) return;
  const Team<kNarrow> team;
  with_subject(a, blockIdx.x, [&](const auto& s) {
    for (int64_t b = 0; a.phase_kind == PhaseKind::cover && b < s.t.sets; ++b) {
      finish_cover(team, s, a.phase, b, false);
    }
    if (a.phase_kind == PhaseKind::agreement) finish_agreement(team, s, a.phase, false);
  });
}

void run(const Args& args, const Launch& launch, const Queue& queue) {
  with_types(launch.variant, [&](auto types) {
    using K = decltype(types);
    if (args.phase_kind == PhaseKind::cover) {
      launch_parts(cover_kernel<K>, args, launch, kWide, sizeof(Shelves<typename K::T, kWide>), queue);
    } else {
      launch_parts(cautious_kernel<K>, args, launch, kNarrow, 0, queue);
    }
  });
}

void finish(const Args& args, const Queue& queue) { launch_tensors(finish_kernel, args, queue); }

}  // namespace

const Kernels& sm3_kernels() {
  static constexpr Kernels kernels{run, finish};
  return kernels;
}

}  // namespace came::cuda
