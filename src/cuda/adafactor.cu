// Adafactor: docs/algorithms.md, equations (5) to (8) and (14) to (17).
// Two visits; bytes per parameter: statistics G, apply G + 2M + 2P.  `cautious` makes it three.
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
  T rate, into, step, decay, factor;
  bool blends, applies, cautious;

  __device__ Direction(const Subject<T>& subject, int64_t b)
      : s(subject), param(subject.param()), momentum(subject.momentum()) {
    const double alpha = s.derived(b).rate;
    const bool in_momentum = s.o.lr_in_momentum != 0;
    cautious = s.o.cautious != 0;
    applies = s.a.phase_kind == PhaseKind::apply;
    blends = momentum && (!applies || s.a.split == 0);
    rate = static_cast<T>(1 - s.o.beta1);
    into = static_cast<T>(in_momentum ? alpha : 1.0);
    step = static_cast<T>((in_momentum ? 1.0 : alpha) * (cautious ? s.derived(b).direction : 1.0));
    if (!momentum) step = static_cast<T>(alpha);
    decay = static_cast<T>(alpha * s.o.weight_decay);
    factor = s.factor();
  }

  struct Loaded {
    typename K::Param::template Raw<N> p;
    typename K::Momentum::template Raw<N> m;
  };
  __device__ void load(const Where& w, Loaded& raw) const {
    if (applies) raw.p = K::Param::template load<N>(param, w);
    if (momentum) raw.m = K::Momentum::template load<N>(momentum, w);
  }

  __device__ void operator()(const Where& w, const Loaded& raw, const T (&g)[N], T (&u)[N], int& agreements) const {
    T m[N];
    if (momentum) K::Momentum::decode(momentum, raw.m, m);
    if (blends) {
#pragma unroll
      for (int n = 0; n < N; ++n) m[n] = n < w.count ? blend(m[n], rate, u[n] * into) : T{0};
      K::Momentum::store(momentum, w, m);
    }
    if (!applies) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        if (cautious && n < w.count) agreements += static_cast<int>(agreeing(m[n], g[n] * factor));
      }
      return;
    }
    T p[N];
    K::Param::decode(param, raw.p, p);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      T move = (momentum ? m[n] : u[n]) * step;
      if (cautious) move *= agreeing(m[n], g[n] * factor);
      p[n] = moved(p[n], decay, move);
    }
    K::Param::store(param, w, p);
  }
};

constexpr int kRows = 2;

template <class K>
__global__ void __launch_bounds__(kNarrow) direction_kernel(const __grid_constant__ Args a) {
  using T = typename K::T;
  using S = typename Statistic<T>::Type;
  constexpr int N = K::N;
  if (is_skipped(a)) return;
  const Part part = a.parts[blockIdx.x];
  const Subject<T> s(a, part.tensor);
  if (s.k.active == 0) return;
  const Update<T> update(s);
  const Place grad = s.grad();
  int agreements = 0;
  if (s.t.factored) {
    for_matrices<kNarrow>(s, part, [&](const auto& team, auto& shelf, T*, int64_t b) {
      const Direction<K> direct(s, b);
      const double own = update.factors.own_root(team, b);
      for_panel<N, kRows>(
          team, s, shelf, b, Range{part.row, part.rows}, Range{part.col, part.cols},
          [&](int64_t i) { return update.row_factor(b, i, own); }, [&](int64_t j) { return update.factors.col_root(b, j); },
          [&](const Where(&w)[kRows], const T(&row)[kRows], const T(&col)[N]) {
            typename K::Param::template Raw<N> raw_g[kRows];
            typename Direction<K>::Loaded raw[kRows];
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
              raw_g[r] = K::Param::template load<N>(grad, w[r]);
              direct.load(w[r], raw[r]);
            }
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
              T g[N];
              T u[N];
              K::Param::decode(grad, raw_g[r], g);
#pragma unroll
              for (int n = 0; n < N; ++n) u[n] = g[n] * row[r] * col[n];
              direct(w[r], raw[r], g, u, agreements);
            }
          });
    });
  } else {
    const Team<kNarrow> team;
    const Direction<K> direct(s, 0);
    const Place full = s.full(s.t.states.full);
    const T by = update.full_factor();
    for_vectors<N, 1>(team, s, part.batch, part, [&](const Where(&w)[1]) {
      typename Direction<K>::Loaded raw;
      T g[N];
      T v[N];
      T u[N];
      direct.load(w[0], raw);
      K::Param::decode(grad, K::Param::template load<N>(grad, w[0]), g);
      S::decode(full, S::template load<N>(full, w[0]), v);
#pragma unroll
      for (int n = 0; n < N; ++n) u[n] = Update<T>::full_update(g[n], v[n], by);
      direct(w[0], raw, g, u, agreements);
    });
  }
  if (a.phase_kind == PhaseKind::apply) return;
  const Team<kNarrow> team;
  if (s.o.cautious != 0) count_agreement(team, s, agreements);
  arrive<Add>(team, s, part.batch, static_cast<const Factors<T>*>(nullptr), [](int64_t) {},
              [&] { finish_agreement(team, s, a.phase, true); });
}

__global__ void __launch_bounds__(kNarrow) finish_kernel(const __grid_constant__ Args a) {
  if (is_skipped(a) || !a.tensors[blockIdx.x].sharded || a.scalars[blockIdx.x].active == 0) return;
  const Team<kNarrow> team;
  with_subject(a, blockIdx.x, [&](const auto& s) {
    const Update update(s);
    if (a.phase_kind == PhaseKind::statistics) {
      for (int64_t b = 0; b < s.t.blocks; ++b) update.finish_block(team, a.phase, b, false);
      update.finish_statistics(team, a.phase, false);
    }
    if (a.phase_kind == PhaseKind::rms && s.t.factored && s.t.owner == Owner::none) {
      update.clip(team, scalar_total(team, s, a.phase, 0, false));
    }
    if (a.phase_kind == PhaseKind::momentum) finish_agreement(team, s, a.phase, false);
  });
}

void run(const Args& args, const Launch& launch, cudaStream_t stream) {
  if (args.phase_kind == PhaseKind::statistics || args.phase_kind == PhaseKind::rms) {
    return run_statistics(args, launch, stream);
  }
  with_types(launch.kind, [&](auto types) {
    using K = decltype(types);
    launch_parts(direction_kernel<K>, args, launch, kNarrow, sizeof(Shelves<typename K::T, kNarrow>), stream);
  });
}

void finish(const Args& args, cudaStream_t stream) { launch_tensors(finish_kernel, args, stream); }

}  // namespace

const Kernels& adafactor_kernels() {
  static constexpr Kernels kernels{run, finish};
  return kernels;
}

}  // namespace came::cuda
