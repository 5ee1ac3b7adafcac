// Adafactor: docs/algorithms.md, equations (5) to (8) and (14) to (17).
// Two passes; bytes per parameter: statistics G, apply G + 2M + 2P.  `cautious` makes it three.
#include <type_traits>

#include "cuda/device/launch.cuh"
#include "cuda/device/update.cuh"

namespace came::cuda {
namespace {

/// Momentum (16), application (17), or both, from the clipped updates of N elements.
template <class K>
struct Direction {
  using T = typename K::T;
  static constexpr int N = K::N;

  const Subject<T>& s;
  Place param, momentum;
  T rate, into, step, decay, sign;
  bool blends, applies, cautious;

  __device__ Direction(const Subject<T>& subject, int64_t b)
      : s(subject), param(subject.param(b)), momentum(subject.momentum(b)) {
    const double alpha = s.matrix_scalars(b).rate;
    const bool in_momentum = s.o.lr_in_momentum != 0;
    cautious = !K::kPlain && s.o.cautious != 0;
    applies = s.a.phase_kind == PhaseKind::apply;
    blends = momentum && (!applies || s.a.split == 0);
    rate = static_cast<T>(algorithms::rate_of(s.o.beta1));
    into = static_cast<T>(in_momentum ? alpha : 1.0);
    step = static_cast<T>((in_momentum ? 1.0 : alpha) * (cautious ? s.matrix_scalars(b).direction : 1.0));
    if (!momentum) step = static_cast<T>(alpha);
    decay = static_cast<T>(alpha * s.o.weight_decay);
    sign = s.sign();
  }

  struct Loaded {
    typename K::Param::template Raw<N> p;
    typename K::Momentum::template Raw<N> m;
  };
  __device__ void load(const typename K::At& w, Loaded& raw) const {
    if (applies) raw.p = K::Param::template load<N>(param, w);
    if (momentum) raw.m = K::Momentum::template load<N>(momentum, w);
  }

  __device__ void operator()(const typename K::At& w, const Loaded& raw, const T (&g)[N], T (&u)[N],
                             int& agreements) const {
    T m[N];
    if (momentum) K::Momentum::decode(momentum, raw.m, m);
    if (blends) {
#pragma unroll
      for (int n = 0; n < N; ++n) m[n] = w.has(n) ? blend(m[n], rate, u[n] * into) : T{0};
      K::Momentum::store(momentum, w, m);
    }
    if (!applies) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        if (cautious && w.has(n)) agreements += static_cast<int>(agreeing(m[n], g[n] * sign));
      }
      return;
    }
    T p[N];
    K::Param::decode(param, raw.p, p);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      T move = (momentum ? m[n] : u[n]) * step;
      if (cautious) move *= agreeing(m[n], g[n] * sign);
      p[n] = moved(p[n], decay, move);
    }
    K::Param::store(param, w, p);
  }
};

template <class K, int Threads, class ColMultiplier>
CAME_MAIN_ROUTE void direct_panel(const Team<Threads>& team, const Subject<typename K::T>& s,
                                  Shelf<typename K::T, Threads>& shelf, const Part& part, int64_t b, double own,
                                  const ColMultiplier& col_multiplier, int& agreements) {
  using T = typename K::T;
  constexpr int N = K::N;
  constexpr int R = !K::kPlain ? 1 : std::is_same_v<typename K::Param, F32> ? 2 : 4;
  const Update<T> update(s);
  const Place grad = s.grad(b);
  const Direction<K> direct(s, b);
  struct Raw {
    typename K::Param::template Raw<N> g;
    typename Direction<K>::Loaded rest;
  };
  for_panel<K, R>(
      team, s, shelf, b, Range{part.row, part.rows}, Range{part.col, part.cols},
      [&](int64_t i) { return update.row_multiplier(b, i, own); }, col_multiplier,
      [&](const typename K::At& w) {
        Raw raw{K::Param::template load<N>(grad, w), {}};
        direct.load(w, raw.rest);
        return raw;
      },
      [&](const typename K::At& w, const Raw& raw, T row, const T(&col)[N]) {
        T g[N];
        T u[N];
        K::Param::decode(grad, raw.g, g);
#pragma unroll
        for (int n = 0; n < N; ++n) u[n] = g[n] * row * col[n];
        direct(w, raw.rest, g, u, agreements);
      });
}

template <class K>
CAME_MAIN_ROUTE void direct_rows(const Subject<typename K::T>& s, const Part& part, int& agreements) {
  using T = typename K::T;
  const T* roots = s.column_multipliers(part.batch);
  direct_panel<K>(
      Team<kNarrow>(), s, shelves<T, kNarrow>().block, part, part.batch, 1.0, [&](int64_t j) { return roots[j]; },
      agreements);
}

template <class K>
CAME_ROUTE void direct_matrices(const Subject<typename K::T>& s, const Part& part, int& agreements) {
  const Update<typename K::T> update(s);
  for_matrices<kNarrow>(s, part, [&](const auto& team, auto& shelf, typename K::T*, int64_t b) {
    direct_panel<K>(
        team, s, shelf, part, b, update.averages.own_root(team, b),
        [&](int64_t j) { return update.averages.col_root(b, j); }, agreements);
  });
}

template <class K>
CAME_ROUTE void direct_elements(const Subject<typename K::T>& s, const Part& part, int& agreements) {
  using T = typename K::T;
  using S = typename Statistic<T>::Type;
  constexpr int N = K::N;
  const Place grad = s.grad(part.batch);
  const Direction<K> direct(s, part.batch);
  const Place full = s.full(s.t.states.full, part.batch);
  const T multiplier = Update<T>(s).gradient_multiplier();
  const T clip = Update<T>(s).full_clip();
  for_vectors<K, 1>(Team<kNarrow>(), s, part.batch, part, [&](const typename K::At(&w)[1]) {
    typename Direction<K>::Loaded raw;
    T g[N];
    T v[N];
    T u[N];
    direct.load(w[0], raw);
    K::Param::decode(grad, K::Param::template load<N>(grad, w[0]), g);
    S::decode(full, S::template load<N>(full, w[0]), v);
#pragma unroll
    for (int n = 0; n < N; ++n) u[n] = Update<T>::full_update(g[n], multiplier, v[n], clip);
    direct(w[0], raw, g, u, agreements);
  });
}

template <class K>
CAME_ROUTE void direct_other(const Args& a, const Desk& desk, int& agreements) {
  const Subject<typename K::T> s(a, desk, K::kPlain);
  if (s.t.factored) {
    direct_matrices<K>(s, desk.part, agreements);
  } else {
    direct_elements<K>(s, desk.part, agreements);
  }
}

template <class T>
CAME_ROUTE void end_part(const Args& a, const Desk& desk, int agreements) {
  const Team<kNarrow> team;
  const Subject<T> s(a, desk, false);
  if (s.o.cautious != 0) count_agreement(team, s, agreements);
  arrive<Add>(
      team, s, desk.part.batch, static_cast<const Averages<T>*>(nullptr), [](int64_t) {},
      [&] { finish_agreement(team, s, a.phase, true); });
}

template <class K>
__global__ void __launch_bounds__(kNarrow, 3) direction_kernel(const __grid_constant__ Args a) {
  using T = typename K::T;
  const Beside beside(a);
  if (is_skipped(a)) return;
  const Desk& desk = desk_of(a);
  if (!is_taken<K>(a, desk.scalars)) return;
  const Subject<T> s(a, desk, K::kPlain);
  int agreements = 0;
  if (s.column_multipliers(desk.part.batch) != nullptr) {
    direct_rows<K>(s, desk.part, agreements);
  } else {
    int counted = 0;
    direct_other<K>(a, desk, counted);
    agreements = counted;
  }
  if (a.phase_kind != PhaseKind::apply) end_part<T>(a, desk, agreements);
}

__global__ void __launch_bounds__(kNarrow) finish_kernel(const __grid_constant__ Args a) {
  if (!is_finished_here(a)) return;
  const Team<kNarrow> team;
  with_subject(a, blockIdx.x, [&](const auto& s) {
    const Update update(s);
    if (a.phase_kind == PhaseKind::statistics) {
      for (int64_t b = 0; b < s.t.sets; ++b) update.finish_matrix(team, a.phase, b, false);
      update.finish_statistics(team, a.phase, false);
    }
    if (a.phase_kind == PhaseKind::rms) update.finish_rms(team, a.phase);
    if (a.phase_kind == PhaseKind::momentum) finish_agreement(team, s, a.phase, false);
  });
}

void run(const Args& args, const Launch& launch, const Queue& queue) {
  if (args.phase_kind == PhaseKind::statistics || args.phase_kind == PhaseKind::rms) {
    return run_statistics(args, launch, queue);
  }
  with_types(launch.variant, [&](auto types) {
    using K = decltype(types);
    launch_parts(direction_kernel<K>, args, launch, kNarrow, sizeof(Shelves<typename K::T, kNarrow>), queue);
  });
}

void finish(const Args& args, const Queue& queue) { launch_tensors(finish_kernel, args, queue); }

}  // namespace

const Kernels& adafactor_kernels() {
  static constexpr Kernels kernels{run, finish};
  return kernels;
}

}  // namespace came::cuda
