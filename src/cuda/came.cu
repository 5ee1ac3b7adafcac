// CAME, Algorithm 2 of the paper: docs/algorithms.md, equations (5) to (13).
// Three visits; bytes per parameter: statistics G, momentum G + 2M, apply M + 2P.
#include "cuda/device/launch.cuh"
#include "cuda/device/update.cuh"

namespace came::cuda {
namespace {

template <class T>
__device__ Factors<T> instability(const Subject<T>& s) {
  return {s, s.template state<T>(s.t.states.res_row), s.template state<T>(s.t.states.res_col), s.o.beta3, s.o.eps2};
}

/// Rows of a panel that a thread has in flight.
constexpr int kRows = 2;
constexpr int kApplyRows = 4;

/// m <- beta1 m + (1 - beta1) u : (9), and the sums of U = (u - m)^2 with the stored m : (10), for a panel of matrix b.
template <class K, int Threads, class Done>
__device__ void blend_panel(const Team<Threads>& team, const Update<typename K::T>& update,
                            Shelf<typename K::T, Threads>& shelf, int64_t b, Range rows, Range cols,
                            typename K::T* sums, int& agreements, const Done& done) {
  using T = typename K::T;
  constexpr int N = K::N;
  const Subject<T>& s = update.s;
  const Place grad = s.grad();
  const Place momentum = s.momentum();
  const T rate = static_cast<T>(1 - s.o.beta1);
  const T factor = s.factor();
  const bool cautious = s.o.cautious != 0;
  const double own = update.factors.own_root(team, b);
  reduce_panel<Add, N, kRows>(
      team, s, shelf, b, rows, cols, [&](int64_t i) { return update.row_factor(b, i, own); },
      [&](int64_t j) { return update.factors.col_root(b, j); }, sums, true,
      [&](const Where(&w)[kRows], const T(&row)[kRows], const T(&col)[N], T(&values)[kRows][N]) {
        typename K::Param::template Raw<N> raw_g[kRows];
        typename K::Momentum::template Raw<N> raw_m[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          raw_g[r] = K::Param::template load<N>(grad, w[r]);
          raw_m[r] = K::Momentum::template load<N>(momentum, w[r]);
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          T g[N];
          T m[N];
          T u[N];
          K::Param::decode(grad, raw_g[r], g);
          K::Momentum::decode(momentum, raw_m[r], m);
#pragma unroll
          for (int n = 0; n < N; ++n) {
            u[n] = g[n] * row[r] * col[n];
            m[n] = blend(m[n], rate, u[n]);
          }
          K::Momentum::store(momentum, w[r], m);
#pragma unroll
          for (int n = 0; n < N; ++n) values[r][n] = n < w[r].count ? square(u[n] - m[n]) : T{0};
          if (cautious) {
#pragma unroll
            for (int n = 0; n < N; ++n) {
              if (n < w[r].count) agreements += static_cast<int>(agreeing(m[n], g[n] * factor));
            }
          }
        }
      },
      done);
}

/// The same for a tensor without rows and columns; (11) with `confidence_1d`.
template <class K>
__device__ void blend_elements(const Update<typename K::T>& update, const Part& part, int& agreements) {
  using T = typename K::T;
  using S = typename Statistic<T>::Type;
  constexpr int N = K::N;
  const Subject<T>& s = update.s;
  const Team<kWide> team;
  const Place grad = s.grad();
  const Place momentum = s.momentum();
  const Place full = s.full(s.t.states.full);
  const Place residual = s.full(s.t.states.res_full);
  const T rate = static_cast<T>(1 - s.o.beta1);
  const T rate3 = static_cast<T>(1 - s.o.beta3);
  const T eps = static_cast<T>(s.o.eps2);
  const T by = update.full_factor();
  const T factor = s.factor();
  const bool cautious = s.o.cautious != 0;
  for_vectors<N, 1>(team, s, part.batch, part, [&](const Where(&w)[1]) {
    T g[N];
    T m[N];
    T v[N];
    T u[N];
    K::Param::decode(grad, K::Param::template load<N>(grad, w[0]), g);
    K::Momentum::decode(momentum, K::Momentum::template load<N>(momentum, w[0]), m);
    S::decode(full, S::template load<N>(full, w[0]), v);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      u[n] = Update<T>::full_update(g[n], v[n], by);
      m[n] = n < w[0].count ? blend(m[n], rate, u[n]) : T{0};
    }
    K::Momentum::store(momentum, w[0], m);
    if (residual) {
      T old[N];
      S::decode(residual, S::template load<N>(residual, w[0]), old);
#pragma unroll
      for (int n = 0; n < N; ++n) old[n] = blend(old[n], rate3, square(u[n] - m[n]) + eps);
      S::template store<N>(residual, w[0], old);
    }
    if (cautious) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        if (n < w[0].count) agreements += static_cast<int>(agreeing(m[n], g[n] * factor));
      }
    }
  });
}

/// (11) and (12) for matrix b.
template <int Threads, class T>
__device__ void finish_momentum(const Team<Threads>& team, const Subject<T>& s, int phase, int64_t b, bool tiles) {
  const double mean = s.t.factored ? instability(s).finish(team, phase, b, tiles, nullptr) : 1.0;
  const double correction = s.o.bias_correction != 0 ? s.k.correction3 : 1.0;
  if (team.rank == 0) s.derived(b).confidence = sqrt(mean * correction);
}

template <class K>
__device__ void run_momentum(const Subject<typename K::T>& s, const Part& part, int& agreements) {
  using T = typename K::T;
  const Update<T> update(s);
  const Factors<T> factors = instability(s);
  if (!s.t.factored) return blend_elements<K>(update, part, agreements);
  const Range rows{part.row, part.rows};
  if (s.t.owner == Owner::matrix) {
    for_matrices<kWide>(s, part, [&](const auto& team, auto& shelf, T* columns, int64_t b) {
      constexpr int kThreads = std::decay_t<decltype(team)>::kThreads;
      const bool once = s.t.cols <= static_cast<int64_t>(kThreads) * K::N;
      blend_panel<K>(team, update, shelf, b, {0, s.t.rows}, {0, s.t.cols}, columns, agreements,
                     [&](int64_t i, double total, bool first) {
                       if (once) {
                         factors.average_row(b, i, total);
                       } else {
                         shelf.total[i] = first ? total : shelf.total[i] + total;
                       }
                     });
      for (int64_t i = team.rank; !once && i < s.t.rows; i += kThreads) factors.average_row(b, i, shelf.total[i]);
      for (int64_t j = team.rank; j < s.t.cols; j += kThreads) {
        factors.average_col(b, j, static_cast<double>(columns[j]));
      }
      team.sync();
    });
    return;
  }
  const Team<kWide> team;
  Shelf<T, kWide>& shelf = shelves<T, kWide>().block;
  const int64_t b = part.batch;
  if (s.t.owner == Owner::rows) {
    const bool once = part.cols <= static_cast<int64_t>(kWide) * K::N;
    T* sums = s.cols(part, s.a.phase, part.half);
    blend_panel<K>(team, update, shelf, b, rows, {0, part.cols}, sums, agreements,
                   [&](int64_t i, double total, bool first) {
                     if (once) {
                       factors.average_row(b, i, total);
                     } else {
                       double& so_far = shelf.total[i - part.row];
                       so_far = first ? total : so_far + total;
                     }
                   });
    for (int64_t i = team.rank; !once && i < part.rows; i += kWide) {
      factors.average_row(b, part.row + i, shelf.total[i]);
    }
    return;
  }
  T* of_rows = s.rows(part, 0);
  for (int64_t i = team.rank; i < part.rows; i += kWide) of_rows[i] = 0;
  team.sync();
  const auto add = [&](int64_t i, double total, bool) { of_rows[i - part.row] += static_cast<T>(total); };
  if (s.t.owner == Owner::none) {
    blend_panel<K>(team, update, shelf, b, rows, {part.col, part.cols}, s.cols(part, s.a.phase, 0), agreements, add);
    return;
  }
  T* columns = reinterpret_cast<T*>(&shelves<T, kWide>() + 1);
  for (int64_t j = 0; j < part.cols; j += kStrip) {
    const Range strip{part.col + j, part.cols - j < kStrip ? part.cols - j : kStrip};
    blend_panel<K>(team, update, shelf, b, rows, strip, columns, agreements, add);
    for (int64_t k = team.rank; k < strip.count; k += kWide) {
      factors.average_col(b, strip.begin + k, static_cast<double>(columns[k]));
    }
    team.sync();
  }
}

template <class K>
__global__ void __launch_bounds__(kWide, 2) momentum_kernel(const __grid_constant__ Args a) {
  using T = typename K::T;
  if (is_skipped(a)) return;
  const Part part = a.parts[blockIdx.x];
  const Subject<T> s(a, part.tensor);
  if (s.k.active == 0) return;
  int agreements = 0;
  run_momentum<K>(s, part, agreements);
  const Team<kWide> team;
  if (s.o.cautious != 0) count_agreement(team, s, agreements);
  const Factors<T> factors = instability(s);
  arrive<Add>(
      team, s, part.batch, s.t.factored ? &factors : nullptr,
      [&](int64_t b) { finish_momentum(team, s, a.phase, b, true); }, [&] { finish_agreement(team, s, a.phase, true); });
}

/// theta <- theta - lr wd theta - lr m / sqrt(S) : (13)
template <class K>
__global__ void __launch_bounds__(kNarrow) apply_kernel(const __grid_constant__ Args a) {
  using T = typename K::T;
  using S = typename Statistic<T>::Type;
  constexpr int N = K::N;
  if (is_skipped(a)) return;
  const Part part = a.parts[blockIdx.x];
  const Subject<T> s(a, part.tensor);
  if (s.k.active == 0) return;
  const Place param = s.param();
  const Place momentum = s.momentum();
  const Place grad = s.grad();
  const T decay = static_cast<T>(s.k.lr * s.o.weight_decay);
  const T factor = s.factor();
  const bool cautious = s.o.cautious != 0;
  const auto masked = [&](const Where& w, const T(&m)[N], T(&move)[N]) {
    T g[N];
    K::Param::decode(grad, K::Param::template load<N>(grad, w), g);
#pragma unroll
    for (int n = 0; n < N; ++n) move[n] *= agreeing(m[n], g[n] * factor);
  };
  if (s.t.factored) {
    const Factors<T> factors = instability(s);
    for_matrices<kNarrow>(s, part, [&](const auto& team, auto& shelf, T*, int64_t b) {
      const double by = s.k.lr * s.derived(b).direction * factors.own_root(team, b) * s.derived(b).confidence;
      for_panel<N, kApplyRows>(
          team, s, shelf, b, Range{part.row, part.rows}, Range{part.col, part.cols},
          [&](int64_t i) { return factors.row_root(b, i, by); }, [&](int64_t j) { return factors.col_root(b, j); },
          [&](const Where(&w)[kApplyRows], const T(&row)[kApplyRows], const T(&col)[N]) {
            typename K::Param::template Raw<N> raw_p[kApplyRows];
            typename K::Momentum::template Raw<N> raw_m[kApplyRows];
#pragma unroll
            for (int r = 0; r < kApplyRows; ++r) {
              raw_p[r] = K::Param::template load<N>(param, w[r]);
              raw_m[r] = K::Momentum::template load<N>(momentum, w[r]);
            }
#pragma unroll
            for (int r = 0; r < kApplyRows; ++r) {
              T p[N];
              T m[N];
              T move[N];
              K::Param::decode(param, raw_p[r], p);
              K::Momentum::decode(momentum, raw_m[r], m);
#pragma unroll
              for (int n = 0; n < N; ++n) move[n] = m[n] * row[r] * col[n];
              if (cautious) masked(w[r], m, move);
#pragma unroll
              for (int n = 0; n < N; ++n) p[n] = moved(p[n], decay, move[n]);
              K::Param::store(param, w[r], p);
            }
          });
    });
    return;
  }
  const Team<kNarrow> team;
  const Place residual = s.full(s.t.states.res_full);
  const double by = s.k.lr * s.derived(0).direction;
  const T step = static_cast<T>(residual ? by * s.derived(0).confidence : by);
  for_vectors<N, 1>(team, s, part.batch, part, [&](const Where(&w)[1]) {
    T p[N];
    T m[N];
    T move[N];
    K::Param::decode(param, K::Param::template load<N>(param, w[0]), p);
    K::Momentum::decode(momentum, K::Momentum::template load<N>(momentum, w[0]), m);
#pragma unroll
    for (int n = 0; n < N; ++n) move[n] = m[n] * step;
    if (residual) {
      T v[N];
      S::decode(residual, S::template load<N>(residual, w[0]), v);
#pragma unroll
      for (int n = 0; n < N; ++n) move[n] = n < w[0].count ? move[n] / sqrt(v[n]) : T{0};
    }
    if (cautious) masked(w[0], m, move);
#pragma unroll
    for (int n = 0; n < N; ++n) p[n] = moved(p[n], decay, move[n]);
    K::Param::store(param, w[0], p);
  });
}

__global__ void __launch_bounds__(kNarrow) finish_kernel(const __grid_constant__ Args a) {
  if (is_skipped(a) || !a.tensors[blockIdx.x].sharded || a.scalars[blockIdx.x].active == 0) return;
  const Team<kNarrow> team;
  with_subject(a, blockIdx.x, [&](const auto& s) {
    const Update update(s);
    for (int64_t b = 0; b < s.t.blocks; ++b) {
      if (a.phase_kind == PhaseKind::statistics) update.finish_block(team, a.phase, b, false);
      if (a.phase_kind == PhaseKind::momentum) finish_momentum(team, s, a.phase, b, false);
    }
    if (a.phase_kind == PhaseKind::statistics) update.finish_statistics(team, a.phase, false);
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
    using T = typename K::T;
    if (args.phase_kind == PhaseKind::momentum) {
      launch_parts(momentum_kernel<K>, args, launch, kWide, sizeof(Shelves<T, kWide>), stream);
    } else {
      launch_parts(apply_kernel<K>, args, launch, kNarrow, sizeof(Shelves<T, kNarrow>), stream);
    }
  });
}

void finish(const Args& args, cudaStream_t stream) { launch_tensors(finish_kernel, args, stream); }

}  // namespace

const Kernels& came_kernels() {
  static constexpr Kernels kernels{run, finish};
  return kernels;
}

}  // namespace came::cuda
