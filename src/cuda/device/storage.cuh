// Elements as kernels see them: N columns of a row at a time, loaded as they are stored, in vectors where everything is
// aligned, and decoded when they are used.  Formulas: src/algorithms/, the same as on the host.
#pragma once

#include <cstdint>

#include "algorithms/quantize.hpp"
#include "algorithms/rounding.hpp"
#include "came/tensor.hpp"

namespace came::cuda {

using algorithms::kMomentumBlock;

/// Where a tensor or a state of it lies, for one of its matrices.
struct Place {
  char* data;
  float* scales;  ///< Of codes.
  int64_t cols;
  DType dtype;
  bool second;  ///< A second moment: codes without sign, drawn.
  bool stochastic;
  uint64_t key;
  uint64_t whole;  ///< Number that row 0, column 0 would have in the whole tensor if it went on as this matrix does,
  int64_t whole_cols;  ///< with so many columns.

  [[nodiscard]] __device__ explicit operator bool() const { return data != nullptr; }
};

/// N columns of a row, `count` of which are there.
template <bool Plain>
struct Where {
  static constexpr bool kPlain = false;
  int64_t row;  ///< Counted over all matrices.
  int64_t col;
  int count;
  bool aligned;
  int lanes;  ///< Lanes that hold a block of codes together.

  [[nodiscard]] __device__ bool has(int n) const { return n < count; }
  [[nodiscard]] __device__ bool any() const { return count > 0; }
  [[nodiscard]] __device__ int64_t at(const Place& p) const { return row * p.cols + col; }
  [[nodiscard]] __device__ int64_t pair_at(const Place& p) const { return row * ((p.cols + 1) / 2) + col / 2; }
  [[nodiscard]] __device__ int64_t block_at(const Place& p) const {
    return row * ((p.cols + kMomentumBlock - 1) / kMomentumBlock) + col / kMomentumBlock;
  }
  [[nodiscard]] __device__ bool begins_block() const { return col % kMomentumBlock == 0; }
  [[nodiscard]] __device__ uint32_t random(const Place& p, int n) const {
    return algorithms::random_bits(p.key, p.whole + static_cast<uint64_t>(row * p.whole_cols + col + n));
  }
  /// The same columns as pairs.
  [[nodiscard]] __device__ Where halved() const {
    Where half = *this;
    half.count = (count + 1) / 2;
    return half;
  }
  /// The same columns, so many rows further down, if those are there.
  [[nodiscard]] __device__ Where below(int rows, int64_t, bool there) const {
    Where next = *this;
    next.row += rows;
    next.count = there ? count : 0;
    next.aligned = aligned && there;
    return next;
  }
};

/// The same where nothing is in the way: all N or none are there, all is aligned, rows are held whole, and codes begin no
/// block within one.  Then one number says it all.
template <>
struct Where<true> {
  static constexpr bool kPlain = true;
  static constexpr int lanes = 32;
  int64_t first;
  bool there;

  [[nodiscard]] __device__ bool has(int) const { return true; }
  [[nodiscard]] __device__ bool any() const { return there; }
  [[nodiscard]] __device__ int64_t at(const Place&) const { return first; }
  [[nodiscard]] __device__ int64_t pair_at(const Place&) const { return first / 2; }
  [[nodiscard]] __device__ int64_t block_at(const Place&) const { return first / kMomentumBlock; }
  [[nodiscard]] __device__ bool begins_block() const { return first % kMomentumBlock == 0; }
  [[nodiscard]] __device__ uint32_t random(const Place& p, int n) const {
    return algorithms::random_bits(p.key, p.whole + static_cast<uint64_t>(first + n));
  }
  [[nodiscard]] __device__ Where halved() const { return *this; }
  [[nodiscard]] __device__ Where below(int rows, int64_t cols, bool next_there) const {
    return {first + static_cast<int64_t>(rows) * static_cast<int32_t>(cols), there && next_there};
  }
};

/// N elements of type U.
template <class U, int N>
struct alignas(sizeof(U) * N >= 16 ? 16 : sizeof(U) * N) Vector {
  U v[N];
};

template <class U, int N, class W>
__device__ inline Vector<U, N> load_vector(const void* data, int64_t at, const W& w) {
  const U* from = static_cast<const U*>(data) + at;
  __builtin_assume(__isGlobal(from));
  Vector<U, N> x{};
  if constexpr (W::kPlain) {
    if (w.there) x = *reinterpret_cast<const Vector<U, N>*>(from);
  } else if (w.aligned) {
    x = *reinterpret_cast<const Vector<U, N>*>(from);
  } else {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (n < w.count) x.v[n] = from[n];
    }
  }
  return x;
}

template <class U, int N, class W>
__device__ inline void store_vector(void* data, int64_t at, const W& w, const Vector<U, N>& x) {
  U* to = static_cast<U*>(data) + at;
  __builtin_assume(__isGlobal(to));
  if constexpr (W::kPlain) {
    if (w.there) *reinterpret_cast<Vector<U, N>*>(to) = x;
  } else if (w.aligned) {
    *reinterpret_cast<Vector<U, N>*>(to) = x;
  } else {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (n < w.count) to[n] = x.v[n];
    }
  }
}

/// f32.
struct F32 {
  template <int N>
  using Raw = Vector<float, N>;

  template <int N, class W>
  __device__ static Raw<N> load(const Place& p, const W& w) {
    return load_vector<float, N>(p.data, w.at(p), w);
  }
  template <int N>
  __device__ static void decode(const Place&, const Raw<N>& raw, float (&x)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) x[n] = raw.v[n];
  }
  /// Leaves in x what was stored.
  template <int N, class W>
  __device__ static void store(const Place& p, const W& w, float (&x)[N]) {
    Raw<N> raw;
#pragma unroll
    for (int n = 0; n < N; ++n) raw.v[n] = x[n];
    store_vector<float, N>(p.data, w.at(p), w, raw);
  }
};

/// bf16, in pairs: a half word would take a register.
struct BF16 {
  template <int N>
  using Raw = Vector<uint32_t, N / 2>;

  template <int N, class W>
  __device__ static Raw<N> load(const Place& p, const W& w) {
    if constexpr (W::kPlain) {
      return load_vector<uint32_t, N / 2>(p.data, w.at(p) / 2, w);
    } else {
      const auto halves = load_vector<uint16_t, N>(p.data, w.at(p), w);
      Raw<N> raw;
#pragma unroll
      for (int n = 0; n < N / 2; ++n) raw.v[n] = halves.v[2 * n] | static_cast<uint32_t>(halves.v[2 * n + 1]) << 16;
      return raw;
    }
  }
  template <class T, int N>
  __device__ static void decode(const Place&, const Raw<N>& raw, T (&x)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      x[n] = algorithms::float_of(n % 2 == 0 ? raw.v[n / 2] << 16 : raw.v[n / 2] & 0xffff0000U);
    }
  }
  template <class T, int N, class W>
  __device__ static void store(const Place& p, const W& w, T (&x)[N]) {
    Raw<N> raw;
#pragma unroll
    for (int n = 0; n < N / 2; ++n) {
      const auto low = static_cast<float>(x[2 * n]);
      const auto high = static_cast<float>(x[2 * n + 1]);
      if (p.stochastic) {
        raw.v[n] = algorithms::bf16_from_f32_stochastic(low, w.random(p, 2 * n)) |
                   static_cast<uint32_t>(algorithms::bf16_from_f32_stochastic(high, w.random(p, 2 * n + 1))) << 16;
      } else {
        // To nearest even, as algorithms::bf16_from_f32; a NaN has other bits.
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(raw.v[n]) : "f"(high), "f"(low));
      }
    }
    decode(p, raw, x);
    if constexpr (W::kPlain) {
      store_vector<uint32_t, N / 2>(p.data, w.at(p) / 2, w, raw);
    } else {
      Vector<uint16_t, N> halves;
#pragma unroll
      for (int n = 0; n < N; ++n) halves.v[n] = static_cast<uint16_t>(raw.v[n / 2] >> (n % 2 * 16));
      store_vector<uint16_t, N>(p.data, w.at(p), w, halves);
    }
  }
};

/// f16.
struct F16 {
  template <int N>
  using Raw = Vector<uint16_t, N>;

  template <int N, class W>
  __device__ static Raw<N> load(const Place& p, const W& w) {
    return load_vector<uint16_t, N>(p.data, w.at(p), w);
  }
  template <class T, int N>
  __device__ static void decode(const Place&, const Raw<N>& raw, T (&x)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) x[n] = algorithms::f32_from_f16(raw.v[n]);
  }
  template <class T, int N, class W>
  __device__ static void store(const Place& p, const W& w, T (&x)[N]) {
    Raw<N> raw;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const auto value = static_cast<float>(x[n]);
      raw.v[n] = p.stochastic ? algorithms::f16_from_f32_stochastic(value, w.random(p, n))
                              : algorithms::f16_from_f32(value);
      x[n] = algorithms::f32_from_f16(raw.v[n]);
    }
    store_vector<uint16_t, N>(p.data, w.at(p), w, raw);
  }
};

/// Codes of 8 or 4 bits with a scale per block of a row: docs/algorithms.md, equations (30) and (31).
struct Codes {
  template <int N>
  struct Raw {
    static_assert(N == 4, "four codes are a word");
    uint32_t codes;
    float scale;
  };

  __device__ static bool four_bits(const Place& p) { return p.dtype == DType::u8 && !p.second; }

  template <int N, class W>
  __device__ static Raw<N> load(const Place& p, const W& w) {
    Raw<N> raw{0, w.any() ? p.scales[w.block_at(p)] : 0.0F};
    if constexpr (W::kPlain) {
      raw.codes = four_bits(p) ? load_vector<uint16_t, 1>(p.data, w.pair_at(p) / 2, w).v[0]
                               : load_vector<uint32_t, 1>(p.data, w.at(p) / 4, w).v[0];
    } else if (four_bits(p)) {
      const auto pairs = load_vector<uint8_t, N / 2>(p.data, w.pair_at(p), w.halved());
      raw.codes = pairs.v[0] | static_cast<uint32_t>(pairs.v[1]) << 8;
    } else {
      const auto bytes = load_vector<uint8_t, N>(p.data, w.at(p), w);
#pragma unroll
      for (int n = 0; n < N; ++n) raw.codes |= static_cast<uint32_t>(bytes.v[n]) << (8 * n);
    }
    return raw;
  }
  template <class T, int N>
  __device__ static void decode(const Place& p, const Raw<N>& raw, T (&x)[N]) {
    if (four_bits(p)) {
#pragma unroll
      for (int n = 0; n < N; ++n) x[n] = value_of<algorithms::kLevelsInt4>(number<4>(raw.codes, n), raw.scale);
    } else if (p.second) {
#pragma unroll
      for (int n = 0; n < N; ++n) x[n] = algorithms::decode_second_moment(raw.codes >> (8 * n) & 255U, raw.scale);
    } else {
#pragma unroll
      for (int n = 0; n < N; ++n) x[n] = value_of<algorithms::kLevelsInt8>(number<8>(raw.codes, n), raw.scale);
    }
  }
  /// Every lane of the warp must call it: the scale is the largest magnitude of the whole block.
  template <class T, int N, class W>
  __device__ static void store(const Place& p, const W& w, T (&x)[N]) {
    // Bits of magnitudes order as the numbers do, and a NaN above all.
    uint32_t most = 0;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (w.any() && w.has(n)) most = max(most, algorithms::bits_of(static_cast<float>(x[n])) & 0x7fffffffU);
    }
    for (int step = w.lanes / 2; step > 0; step /= 2) most = max(most, __shfl_xor_sync(0xffffffffU, most, step));
    const float largest = algorithms::float_of(most);
    const float scale = p.second ? algorithms::second_moment_scale(largest) : algorithms::usable_scale(largest);
    uint32_t codes = 0;
    if (four_bits(p)) {
      codes = encode<algorithms::kLevelsInt4, 4>(scale, x);
    } else if (!p.second) {
      codes = encode<algorithms::kLevelsInt8, 8>(scale, x);
    } else {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const int code = algorithms::encode_second_moment(static_cast<float>(x[n]), scale, w.random(p, n));
        codes |= static_cast<uint32_t>(code) << (8 * n);
        x[n] = algorithms::decode_second_moment(code, scale);
      }
    }
    if (!w.any()) return;
    if (w.begins_block()) p.scales[w.block_at(p)] = scale;
    if constexpr (W::kPlain) {
      if (four_bits(p)) {
        store_vector<uint16_t, 1>(p.data, w.pair_at(p) / 2, w, {static_cast<uint16_t>(codes)});
      } else {
        store_vector<uint32_t, 1>(p.data, w.at(p) / 4, w, {codes});
      }
    } else if (four_bits(p)) {
      // Beyond the row's end there is nothing.
      const uint32_t kept = codes & (w.count < N ? (1U << (4 * w.count)) - 1 : 0xffffU);
      store_vector<uint8_t, N / 2>(p.data, w.pair_at(p), w.halved(),
                                   {static_cast<uint8_t>(kept), static_cast<uint8_t>(kept >> 8)});
    } else {
      Vector<uint8_t, N> bytes;
#pragma unroll
      for (int n = 0; n < N; ++n) bytes.v[n] = static_cast<uint8_t>(codes >> (8 * n));
      store_vector<uint8_t, N>(p.data, w.at(p), w, bytes);
    }
  }

 private:
  /// From here on f32 counts by ones, and its last bits are a whole number: conversions without the slow instructions.
  static constexpr float kWhole = 0x1p23F;

  /// Code n of a word, as a number.
  template <int Bits>
  __device__ static float number(uint32_t codes, int n) {
    constexpr uint32_t kHalf = 1U << (Bits - 1);
    const uint32_t shifted = (codes >> (Bits * n) & (2 * kHalf - 1)) ^ kHalf;  // no longer negative
    return algorithms::float_of(algorithms::bits_of(kWhole) | shifted) - (kWhole + static_cast<float>(kHalf));
  }
  /// algorithms::decode
  template <int Levels>
  __device__ static float value_of(float code, float scale) {
    return scale * (code * fabsf(code) * (1.0F / static_cast<float>(Levels * Levels)));
  }
  /// algorithms::encode, with a quick root: the comparison decides.  Leaves in x what is stored.
  template <int Levels, int Bits, class T, int N>
  __device__ static uint32_t encode(float scale, T (&x)[N]) {
    const float factor = scale > 0.0F ? algorithms::code_factor(scale, Levels) : 0.0F;
    uint32_t codes = 0;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const auto m = static_cast<float>(x[n]);
      const float squares = fabsf(m) * factor;
      float root;
      asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(squares));
      root = root < static_cast<float>(Levels) ? root : static_cast<float>(Levels);
      // The whole number next to the root, or the one below it: between k - 1 and k the middle of squares is k^2 - k + 1/2.
      const float near = (root + kWhole) - kWhole;
      const float lower = fmaxf(near - 1.0F, 0.0F);
      const float magnitude = squares > near * near - near + 0.5F || squares != squares ? near : lower;
      const float code = m < 0.0F ? -magnitude : magnitude;
      const uint32_t bits = algorithms::bits_of(code + (kWhole + static_cast<float>(1 << Bits)));
      codes |= (scale > 0.0F ? bits & ((1U << Bits) - 1) : 0U) << (Bits * n);
      x[n] = value_of<Levels>(scale > 0.0F ? code : 0.0F, scale);
    }
    return codes;
  }
};

/// Whatever the place says, as T.
template <class T>
struct Any {
  template <int N>
  struct Raw {
    T v[N];
  };

  template <int N, class W>
  __device__ static Raw<N> load(const Place& p, const W& w) {
    Raw<N> x;
    if (p.scales != nullptr) {
      Codes::decode(p, Codes::load<N>(p, w), x.v);
    } else if (p.dtype == DType::bf16) {
      BF16::decode(p, BF16::load<N>(p, w), x.v);
    } else if (p.dtype == DType::f16) {
      F16::decode(p, F16::load<N>(p, w), x.v);
    } else if (p.dtype == DType::f64) {
      const auto raw = load_vector<double, N>(p.data, w.at(p), w);
#pragma unroll
      for (int n = 0; n < N; ++n) x.v[n] = static_cast<T>(raw.v[n]);
    } else {
      const auto raw = load_vector<float, N>(p.data, w.at(p), w);
#pragma unroll
      for (int n = 0; n < N; ++n) x.v[n] = static_cast<T>(raw.v[n]);
    }
    return x;
  }
  template <int N>
  __device__ static void decode(const Place&, const Raw<N>& raw, T (&x)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) x[n] = raw.v[n];
  }
  template <int N, class W>
  __device__ static void store(const Place& p, const W& w, T (&x)[N]) {
    if (p.scales != nullptr) {
      Codes::store(p, w, x);
    } else if (p.dtype == DType::bf16) {
      BF16::store(p, w, x);
    } else if (p.dtype == DType::f16) {
      F16::store(p, w, x);
    } else if (p.dtype == DType::f64) {
      store_as<double>(p, w, x);
    } else {
      store_as<float>(p, w, x);
    }
  }

 private:
  template <class U, int N, class W>
  __device__ static void store_as(const Place& p, const W& w, T (&x)[N]) {
    Vector<U, N> raw;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      raw.v[n] = static_cast<U>(x[n]);
      x[n] = static_cast<T>(raw.v[n]);
    }
    store_vector<U, N>(p.data, w.at(p), w, raw);
  }
};

}  // namespace came::cuda
