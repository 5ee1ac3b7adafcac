// The squared norm of the gradient, for max_grad_norm: docs/algorithms.md, equation (2).  Reads G bytes per parameter.
#include "cuda/device/launch.cuh"
#include "cuda/device/reduction.cuh"

namespace came::cuda {
namespace {

template <class K>
__global__ void __launch_bounds__(kNarrow) norm_kernel(const __grid_constant__ Args a) {
  using T = typename K::T;
  constexpr int N = K::N;
  constexpr int R = 4;
  const Beside beside(a);
  if (is_skipped(a)) return;
  const Desk& desk = desk_of(a);
  const Part& part = desk.part;
  const Subject<T> s(a, desk, K::kPlain);
  if (!is_taken<K>(a, s.k)) return;
  const Team<kNarrow> team;
  const T multiplier = s.multiplier();
  double sum = 0;
  for (int64_t b = part.batch; b < part.batch + part.batches; ++b) {
    const Place grad = s.grad(b);
    for_vectors<K, R>(team, s, b, part, [&](const typename K::At(&w)[R]) {
      typename K::Param::template Raw<N> raw[R];
#pragma unroll
      for (int r = 0; r < R; ++r) raw[r] = K::Param::template load<N>(grad, w[r]);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        T g[N];
        K::Param::decode(grad, raw[r], g);
#pragma unroll
        for (int n = 0; n < N; ++n) g[n] *= multiplier;
        sum += sound_squares(g);
      }
    });
  }
  sum = team.sum(sum);
  if (team.rank == 0) s.scalars(part)[core::kGradientSquares] = sum;
  // Unlike all others, this result is in a slot of its tensor, sharded or not: the norm is over the whole plan.
  arrive<Add>(
      team, s, part.batch, static_cast<const Averages<T>*>(nullptr),
      [&](int64_t b) {
        const double squares = scalar_result(team, s, a.phase, b, core::kGradientSquares, true);
        if (team.rank == 0) *s.totals(a.phase, s.t.per_matrix ? b : 0) = squares;
      },
      [] {});
}

}  // namespace

void run_norm(const Args& args, const Launch& launch, const Queue& queue) {
  with_gradient_types(launch.variant, [&](auto types) {
    using K = decltype(types);
    launch_parts(norm_kernel<K>, args, launch, kNarrow, 0, queue);
  });
}

}  // namespace came::cuda
