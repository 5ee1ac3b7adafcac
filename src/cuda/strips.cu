// CAME and Adafactor on matrices whose gradient is bf16: the passes that reduce, in strips.  docs/algorithms.md,
// equations (5) to (11); statistics.cu and came.cu have all other matrices.
#include "cuda/device/confidence.cuh"
#include "cuda/device/strips.cuh"

namespace came::cuda {
namespace {

/// Keeps the compiler from keeping what follows from a raw vector: it takes more registers than the vector.
template <class Raw>
CAME_MAIN_ROUTE void forget(Raw& raw) {
  if constexpr (std::is_same_v<Raw, BF16::Raw<kColumns>>) asm volatile("" : "+r"(raw.v[0]), "+r"(raw.v[1]));
}

/// (5) for the rows of a part, and the sums of the squares over them, plain and weighted.  Gradients are taken as they
/// are unless they are `Scaled`.
template <class K, bool Scaled>
CAME_MAIN_ROUTE void sum_squares(const Subject<float>& s, const Update<float>& update, const Part& part) {
  constexpr int V = 8;
  constexpr int N = K::N;
  using G = typename K::Param;
  using Raw = typename G::template Raw<N>;
  constexpr int kRounds = rounds_ahead(static_cast<int>(sizeof(Raw)) * kStripThreads * V);
  const Strip<K, V> strip(s.t.cols);
  const int64_t b = part.batch;
  const Place grad = s.grad(b);
  const auto frame = s.template frame<K::kPlain>(b, kWarp);
  const typename K::At top = frame.where(part.row, strip.col, s.t.cols - strip.col);
  float* averages = update.averages.row + s.row_at(b, part.row);
  const float multiplier = s.multiplier();
  const float rate = update.averages.rate();
  const float eps = static_cast<float>(update.averages.eps);
  const float share = static_cast<float>(1 / static_cast<double>(s.t.whole_cols));
  const int count = static_cast<int>(part.rows);
  const Ahead<G, N, kStripThreads, V, kRounds> ahead(memory_of_block(), static_cast<int>(threadIdx.x));
  const auto row_of = [&](int round) { return strip.group + round * strip.groups; };
  const auto at = [&](int round) { return top.below(row_of(round), strip.cols, row_of(round) < count); };
  const auto send = [&](int round) {
    const typename K::At w = at(round);
#pragma unroll
    for (int v = 0; v < V; ++v) ahead.send(round, v, strip.template place<G>(grad, v), strip.vector(w, v));
    sent();
  };
  const auto decode = [&](const Raw& raw, float(&x)[N]) {
    G::decode(grad, raw, x);
#pragma unroll
    for (int n = 0; n < N; ++n) x[n] = Scaled ? x[n] * multiplier : x[n];
  };
  float plain[V][N] = {};
  float weighted[V][N] = {};
  for (int round = 0; round < kRounds; ++round) send(round);
  // Averages of as many rows as a warp has lanes wait in them.
  float of_lane = 1.0F;
  const auto row_of_lane = [&](int round) { return row_of(round - round % kWarp + strip.lane); };
  const int rounds = (count + strip.groups - 1) / strip.groups;  // of every group: the last one may find no row
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    const int lane = round % kWarp;
    if (lane == 0) of_lane = row_of_lane(round) < count ? averages[row_of_lane(round)] : 1.0F;
    const float old = __shfl_sync(kAll, of_lane, lane);
    Raw raw[V];
    arrived<kRounds - 1>();
#pragma unroll
    for (int v = 0; v < V; ++v) raw[v] = ahead.take(round, v, grad, strip.vector(top, v));
    send(round + kRounds);
    float mine[N] = {};
#pragma unroll
    for (int v = 0; v < V; ++v) {
      float x[N];
      decode(raw[v], x);
#pragma unroll
      for (int n = 0; n < N; ++n) mine[n] = fused(x[n], x[n], mine[n]);
    }
    const float of_strip = over_lanes<Add>((mine[0] + mine[1]) + (mine[2] + mine[3]), kWarp);
    const float average = blend(old, rate, strip.across(of_strip, round) * share + eps);
    const float weight = row_of(round) < count ? weight_of(average) : 0.0F;
    if (strip.lane == lane) of_lane = average;
    if (lane == kWarp - 1 || round == rounds - 1) {
      if (strip.strip == 0 && row_of_lane(round) < count) averages[row_of_lane(round)] = of_lane;
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      float x[N];
      forget(raw[v]);
      decode(raw[v], x);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        plain[v][n] = fused(x[n], x[n], plain[v][n]);
        x[n] *= weight;
        weighted[v][n] = fused(x[n], x[n], weighted[v][n]);
      }
    }
  }
  arrived<0>();
  auto* room = reinterpret_cast<float*>(memory_of_block());
  strip.leave(plain, room, s.cols(part, s.a.phase, core::kSquares));
  strip.leave(weighted, room, s.cols(part, s.a.phase, core::kWeightedSquares));
}

CAME_ROUTE void end_squares(const Args& a, const Desk& desk) {
  const Team<kStripThreads> team;
  const Subject<float> s(a, desk, false);
  const Update<float> update(s);
  arrive<Add>(
      team, s, desk.part.batch, &update.averages, [&](int64_t b) { update.finish_matrix(team, a.phase, b, true); },
      [&] { update.finish_statistics(team, a.phase, true); });
}

template <class K>
__global__ void __launch_bounds__(kStripThreads, 2) squares_kernel(const __grid_constant__ Args a) {
  const Beside beside(a);
  if (is_skipped(a)) return;
  const Desk& desk = desk_of(a);
  if (!is_taken<K>(a, desk.scalars)) return;
  const Subject<float> s(a, desk, K::kPlain);
  if (fabsf(s.multiplier()) == 1.0F) {
    sum_squares<K, false>(s, Update<float>(s), desk.part);
  } else {
    sum_squares<K, true>(s, Update<float>(s), desk.part);
  }
  end_squares(a, desk);
}

/// The momentum's vectors of a strip on their way.  Of codes, each lane brings its own, and a few lanes the scales of
/// all.
template <class K, int V, int Rounds>
class MomentumAhead {
 public:
  using M = typename K::Momentum;
  using Raw = typename M::template Raw<K::N>;
  static constexpr int kBytes = Ahead<M, K::N, kStripThreads, V, Rounds>::kBytes;

  __device__ MomentumAhead(const Strip<K, V>& strip, unsigned char* memory)
      : strip_(strip), vectors_(memory, static_cast<int>(threadIdx.x)) {}

  __device__ __forceinline__ void send(int round, const Place& momentum, const typename K::At& of_row) const {
#pragma unroll
    for (int v = 0; v < V; ++v)
      vectors_.send(round, v, strip_.template place<M>(momentum, v), strip_.vector(of_row, v));
  }
  __device__ __forceinline__ void take(int round, const Place& momentum, const typename K::At& of_row,
                                       Raw (&raw)[V]) const {
#pragma unroll
    for (int v = 0; v < V; ++v) raw[v] = vectors_.take(round, v, momentum, of_row);
  }

 private:
  const Strip<K, V>& strip_;
  Ahead<M, K::N, kStripThreads, V, Rounds> vectors_;
};

template <class K, int V, int Rounds>
requires(K::kPlain&& requires { &K::Momentum::multiplier_of; }) class MomentumAhead<K, V, Rounds> {
 public:
  using M = typename K::Momentum;
  using Raw = typename M::template Raw<K::N>;
  using Words = Ahead<typename M::Words, K::N, kStripThreads, V, Rounds>;
  static constexpr int kBytes = Words::kBytes + Rounds * kStripWarps * V * static_cast<int>(sizeof(float));

  __device__ MomentumAhead(const Strip<K, V>& strip, unsigned char* memory)
      : strip_(strip),
        words_(memory, static_cast<int>(threadIdx.x)),
        scales_(reinterpret_cast<Vector<float, V>*>(memory + Words::kBytes) + threadIdx.x / kWarp) {}

  __device__ __forceinline__ void send(int round, const Place& momentum, const typename K::At& of_row) const {
#pragma unroll
    for (int v = 0; v < V; ++v) words_.send(round, v, strip_.template place<M>(momentum, v), strip_.vector(of_row, v));
    if (strip_.lane < V) {
      copy_later<4>(&scales(round).v[strip_.lane], momentum.scales + of_row.block_at(momentum) + strip_.lane,
                    strip_.begins(of_row, strip_.lane));
    }
  }
  __device__ __forceinline__ void take(int round, const Place& momentum, const typename K::At& of_row,
                                       Raw (&raw)[V]) const {
    __syncwarp();
    const Vector<float, V> scale = scales(round);
#pragma unroll
    for (int v = 0; v < V; ++v) raw[v] = {words_.take(round, v, momentum, of_row), scale.v[v]};
    __syncwarp();  // before the next ones come
  }

 private:
  __device__ __forceinline__ Vector<float, V>& scales(int round) const {
    return scales_[(round & (Rounds - 1)) * kStripWarps];
  }

  const Strip<K, V>& strip_;
  Words words_;
  Vector<float, V>* scales_;
};

/// Rows that are finished together: what gradients are multiplied with, and what the strips add up to.
constexpr int kSegment = 128;
struct RowsOfSegment {
  float multiplier[kSegment];
  float sum[kSegment][kStripWarps];
};

/// Stores a strip of a row of the momentum.  Codes take a division for each block: lane v has that of vector v.
template <class K, int V>
CAME_MAIN_ROUTE void store_row(const Strip<K, V>& strip, const Place& momentum, const typename K::At& of_row,
                               float (&m)[V][K::N]) {
  using M = typename K::Momentum;
  const auto place = [&](int v) { return strip.template place<M>(momentum, v); };
  if constexpr (K::kPlain && requires { &M::multiplier_of; }) {
    float scale = 0.0F;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const float of_vector = M::scale_of(place(v), strip.vector(of_row, v), m[v]);
      if (strip.lane % V == v) scale = of_vector;
    }
    const unsigned usable = __ballot_sync(kAll, scale > 0.0F);
    const float multiplier = M::multiplier_of(momentum, scale);
    const float unit = M::unit_of(momentum, scale);
    float multipliers[V];
    float units[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      multipliers[v] = __shfl_sync(kAll, multiplier, v);
      units[v] = __shfl_sync(kAll, unit, v);
    }
    if (strip.lane < V && strip.begins(of_row, strip.lane))
      momentum.scales[of_row.block_at(momentum) + strip.lane] = scale;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const uint32_t codes = M::encode(momentum, (usable >> v & 1U) != 0, units[v], multipliers[v], m[v]);
      M::template store_codes<K::N>(place(v), strip.vector(of_row, v), codes);
    }
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v) M::store(place(v), strip.vector(of_row, v), m[v]);
  }
}

/// m <- beta1 m + (1 - beta1) u : (9), the sums of U = (u - m)^2 with the stored m : (10), and (11) for its rows.
template <class K>
CAME_MAIN_ROUTE void blend_strips(const Subject<float>& s, const Update<float>& update, const Part& part,
                                  RowsOfSegment& rows) {
  constexpr int V = 4;
  constexpr int N = K::N;
  using G = typename K::Param;
  using M = typename K::Momentum;
  constexpr int kBytes = static_cast<int>(sizeof(typename G::template Raw<N>) + sizeof(typename M::template Raw<N>));
  constexpr int kRounds = rounds_ahead(kBytes * kStripThreads * V);
  using OfGrad = Ahead<G, N, kStripThreads, V, kRounds>;
  using OfMomentum = MomentumAhead<K, V, kRounds>;
  static_assert(OfGrad::kBytes + OfMomentum::kBytes <= kAheadBytes);
  const OfGrad gradients(memory_of_block(), static_cast<int>(threadIdx.x));
  const Strip<K, V> strip(s.t.cols);
  const OfMomentum momenta(strip, memory_of_block() + OfGrad::kBytes);
  const int64_t b = part.batch;
  const Place grad = s.grad(b);
  const Place momentum = s.momentum(b);
  const auto frame = s.template frame<K::kPlain>(b, kWarp);
  const Averages<float> averages = instability(s);
  const float* roots = s.column_multipliers(b);
  const float rate = static_cast<float>(algorithms::rate_of(s.o.beta1));
  float col[V][N];
  float over[V][N] = {};
#pragma unroll
  for (int v = 0; v < V; ++v) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const int j = strip.col + v * strip.kApart + n;
      col[v][n] = j < strip.cols ? roots[j] : 0.0F;
    }
  }
  for (int64_t segment = 0; segment < part.rows; segment += kSegment) {
    const int count = static_cast<int>(part.rows - segment < kSegment ? part.rows - segment : kSegment);
    const int64_t first = part.row + segment;
    const typename K::At top = frame.where(first, strip.col, s.t.cols - strip.col);
    const auto row_of = [&](int round) { return strip.group + round * strip.groups; };
    const auto at = [&](int round) { return top.below(row_of(round), strip.cols, row_of(round) < count); };
    const auto send = [&](int round) {
      const typename K::At w = at(round);
#pragma unroll
      for (int v = 0; v < V; ++v) gradients.send(round, v, strip.template place<G>(grad, v), strip.vector(w, v));
      momenta.send(round, momentum, w);
      sent();
    };
    for (int round = 0; round < kRounds; ++round) send(round);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kStripThreads) {
      rows.multiplier[i] = update.row_multiplier(b, first + i, 1.0);
    }
    __syncthreads();
    // The sum over a row is handed from lane to lane while the next row is under way.
    float of_last = 0.0F;
    const auto sum_last = [&](int round) {
      const float of_strip = over_lanes<Add>(of_last, kWarp);
      if (strip.lane == 0 && round > 0) rows.sum[row_of(round - 1)][strip.strip] = of_strip;
    };
    int round = 0;
#pragma unroll 1
    for (; row_of(round) < count; ++round) {
      const typename K::At of_row = at(round);
      const float row = rows.multiplier[row_of(round)];
      typename G::template Raw<N> g[V];
      typename M::template Raw<N> raw[V];
      arrived<kRounds - 1>();
#pragma unroll
      for (int v = 0; v < V; ++v) g[v] = gradients.take(round, v, grad, of_row);
      momenta.take(round, momentum, of_row, raw);
      send(round + kRounds);
      sum_last(round);
      float mine[N] = {};
      float u[V][N];
      float m[V][N];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        G::decode(grad, g[v], u[v]);
        M::decode(momentum, raw[v], m[v]);
#pragma unroll
        for (int n = 0; n < N; ++n) {
          u[v][n] = u[v][n] * row * col[v][n];
          m[v][n] = blend(m[v][n], rate, u[v][n]);
        }
      }
      store_row<K>(strip, momentum, of_row, m);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const typename K::At w = strip.vector(of_row, v);
#pragma unroll
        for (int n = 0; n < N; ++n) {
          const float apart = w.has(n) ? u[v][n] - m[v][n] : 0.0F;
          over[v][n] = fused(apart, apart, over[v][n]);
          mine[n] = fused(apart, apart, mine[n]);
        }
      }
      of_last = (mine[0] + mine[1]) + (mine[2] + mine[3]);
    }
    sum_last(round);
    arrived<0>();
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kStripThreads) {
      double total = 0;
      for (int k = 0; k < strip.strips; ++k) total += static_cast<double>(rows.sum[i][k]);
      averages.average_row(b, first + i, total);
    }
    __syncthreads();
  }
  strip.leave(over, reinterpret_cast<float*>(memory_of_block()),
              s.cols(part, s.a.phase, core::kInstability + part.half));
}

CAME_ROUTE void end_momentum(const Args& a, const Desk& desk) {
  const Team<kStripThreads> team;
  const Subject<float> s(a, desk, false);
  const Averages<float> averages = instability(s);
  arrive<Add>(
      team, s, desk.part.batch, &averages, [&](int64_t b) { finish_momentum(team, s, a.phase, b, true); },
      [&] { finish_agreement(team, s, a.phase, true); });
}

template <class K>
__global__ void __launch_bounds__(kStripThreads, 2) strips_kernel(const __grid_constant__ Args a) {
  const Beside beside(a);
  if (is_skipped(a)) return;
  const Desk& desk = desk_of(a);
  if (!is_taken<K>(a, desk.scalars)) return;
  const Subject<float> s(a, desk, K::kPlain);
  [[maybe_unused]] __shared__ RowsOfSegment rows;
  with_known<K>(s, [&](auto types) { blend_strips<decltype(types)>(s, Update<float>(s), desk.part, rows); });
  end_momentum(a, desk);
}

}  // namespace

void run_strips(const Args& args, const Launch& launch, const Queue& queue) {
  const auto with = [&](auto types) {
    using K = decltype(types);
    if (args.phase_kind == PhaseKind::statistics) {
      using G = std::conditional_t<K::kPlain, TypesOf<Variant::bf16_bf16>, TypesOf<Variant::any32>>;
      launch_parts(squares_kernel<G>, args, launch, kStripThreads, kAheadBytes, queue);
    } else {
      launch_parts(strips_kernel<K>, args, launch, kStripThreads, kAheadBytes, queue);
    }
  };
  if (launch.variant == Variant::bf16_f32) return with(TypesOf<Variant::bf16_f32>{});
  if (launch.variant == Variant::bf16_bf16) return with(TypesOf<Variant::bf16_bf16>{});
  if (launch.variant == Variant::bf16_codes) return with(TypesOf<Variant::bf16_codes>{});
  with(TypesOf<Variant::any32>{});
}

}  // namespace came::cuda
