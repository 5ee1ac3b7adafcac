// How elements are stored: loaded as they are, decoded when they are used.  Formulas: src/algorithms/, the same as on
// the host.
#pragma once

#include "cuda/device/waiting.cuh"
#include "cuda/device/where.cuh"

namespace came::cuda {

/// f32.
struct F32 {
  template <int N>
  using Raw = Vector<float, N>;

  template <int N, class W>
  __device__ static Raw<N> load(const Place& p, const W& w) {
    return load_vector<float, N>(p.data, w.at(p), w);
  }
  /// The place so many elements further on: a constant in the addresses that kernels compute.
  __device__ static Place after(Place p, int elements) {
    p.data += 4 * elements;
    p.whole += static_cast<uint64_t>(elements);
    return p;
  }
  /// The same by way of shared memory, for what is plain.
  template <int N, class W>
  __device__ static void send_for(Vector<float, N>* to, const Place& p, const W& w) {
    copy_later<sizeof(*to)>(to, p.data + static_cast<size_t>(w.at(p)) * sizeof(float), w.there);
  }
  template <int N, class W>
  __device__ static Raw<N> taken(const Vector<float, N>& raw, const Place&, const W&) {
    return raw;
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

/// What a loop is compiled for beside a type; `nothing`: it looks at its place every time.
enum class Known : int32_t { nothing, nearest, bits8, bits4 };

/// bf16, in pairs: a half word would take a register.
template <Known known = Known::nothing>
struct BF16As {
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
  __device__ static Place after(Place p, int elements) {
    p.data += 2 * elements;
    p.whole += static_cast<uint64_t>(elements);
    return p;
  }
  template <int Pairs, class W>
  __device__ static void send_for(Vector<uint32_t, Pairs>* to, const Place& p, const W& w) {
    copy_later<sizeof(*to)>(to, p.data + static_cast<size_t>(w.at(p)) * sizeof(uint16_t), w.there);
  }
  template <int Pairs, class W>
  __device__ static Vector<uint32_t, Pairs> taken(const Vector<uint32_t, Pairs>& raw, const Place&, const W&) {
    return raw;
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
      if (known != Known::nearest && p.stochastic) {
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

using BF16 = BF16As<>;

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
      raw.v[n] =
          p.stochastic ? algorithms::f16_from_f32_stochastic(value, w.random(p, n)) : algorithms::f16_from_f32(value);
      x[n] = algorithms::f32_from_f16(raw.v[n]);
    }
    store_vector<uint16_t, N>(p.data, w.at(p), w, raw);
  }
};

/// Codes of 8 or 4 bits with a scale per block of a row: docs/algorithms.md, equations (30) and (31).
template <Known known = Known::nothing>
struct CodesAs {
  template <int N>
  struct Raw {
    static_assert(N == 4, "four codes are a word");
    uint32_t codes;
    float scale;
  };

  __device__ static bool four_bits(const Place& p) {
    return known == Known::nothing ? p.dtype == DType::u8 && !p.second : known == Known::bits4;
  }
  __device__ static bool of_second(const Place& p) { return known == Known::nothing && p.second; }

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
  /// By whole blocks.
  __device__ static Place after(Place p, int elements) {
    p.data += four_bits(p) ? elements / 2 : elements;
    p.scales += elements / static_cast<int>(kMomentumBlock);
    p.whole += static_cast<uint64_t>(elements);
    return p;
  }
  /// Two lanes share four bytes of four-bit codes, and each brings them.
  template <class W>
  __device__ static void send_for(Raw<4>* to, const Place& p, const W& w) {
    const size_t at = four_bits(p) ? w.pair_at(p) & ~3U : w.at(p);
    copy_later<4>(&to->codes, p.data + at, w.there);
    copy_later<4>(&to->scale, p.scales + w.block_at(p), w.there);
  }
  template <class W>
  __device__ static Raw<4> taken(const Raw<4>& raw, const Place& p, const W& w) {
    if (!four_bits(p)) return raw;
    return {raw.codes >> (8 * (w.pair_at(p) & 2U)) & 0xffffU, raw.scale};
  }
  template <class T, int N>
  __device__ static void decode(const Place& p, const Raw<N>& raw, T (&x)[N]) {
    if (four_bits(p)) {
#pragma unroll
      for (int n = 0; n < N; ++n) x[n] = value_of<algorithms::kLevelsInt4>(number<4>(raw.codes, n), raw.scale);
    } else if (of_second(p)) {
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
    const float scale = scale_of(p, w, x);
    store(p, w, x, scale, factor_of(p, scale));
  }
  template <class T, int N, class W>
  __device__ static float scale_of(const Place& p, const W& w, const T (&x)[N]) {
    // Bits of magnitudes order as the numbers do, and a NaN above all.
    uint32_t most = 0;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (w.any() && w.has(n)) most = max(most, algorithms::bits_of(static_cast<float>(x[n])) & 0x7fffffffU);
    }
    if constexpr (W::kPlain) {
      most = __reduce_max_sync(0xffffffffU, most);
    } else {
      for (int step = w.lanes / 2; step > 0; step /= 2) most = max(most, __shfl_xor_sync(0xffffffffU, most, step));
    }
    const float largest = algorithms::float_of(most);
    return of_second(p) ? algorithms::second_moment_scale(largest) : algorithms::usable_scale(largest);
  }
  /// What magnitudes are multiplied with to become squares of codes.
  __device__ static float factor_of(const Place& p, float scale) {
    const int levels = four_bits(p) ? algorithms::kLevelsInt4 : algorithms::kLevelsInt8;
    return scale > 0.0F ? algorithms::code_factor(scale, levels) : 0.0F;
  }
  template <class T, int N, class W>
  __device__ static void store(const Place& p, const W& w, T (&x)[N], float scale, float factor) {
    uint32_t codes = 0;
    if (four_bits(p)) {
      codes = encode<algorithms::kLevelsInt4, 4>(scale, factor, x);
    } else if (!of_second(p)) {
      codes = encode<algorithms::kLevelsInt8, 8>(scale, factor, x);
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
    constexpr uint32_t kBits = 0x4b000000U;  // of kWhole
    uint32_t shifted;                        // no longer negative
    if constexpr (Bits == 8) {
      shifted = __byte_perm(codes ^ 0x80808080U, kBits, 0x7440U | static_cast<uint32_t>(n));
    } else {
      shifted = ((codes >> (Bits * n) & (2 * kHalf - 1)) ^ kHalf) | kBits;
    }
    return algorithms::float_of(shifted) - (kWhole + static_cast<float>(kHalf));
  }
  /// algorithms::decode
  template <int Levels>
  __device__ static float value_of(float code, float scale) {
    return scale * (code * fabsf(code) * (1.0F / static_cast<float>(Levels * Levels)));
  }
  /// algorithms::encode, with a quick root: the comparison decides.  Leaves in x what is stored.
  template <int Levels, int Bits, class T, int N>
  __device__ static uint32_t encode(float scale, float factor, T (&x)[N]) {
    uint32_t bits[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const auto m = static_cast<float>(x[n]);
      const float squares = fabsf(m) * factor;
      float root;
      asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(squares));
      root = fminf(root, static_cast<float>(Levels));
      // The whole number next to the root, or the one below it: between k - 1 and k the middle of squares is k^2 - k +
      // 1/2, which is exact in any form.
      const float near = (root + kWhole) - kWhole;
      const float below = near - 1.0F;
      const float middle = __fmaf_rn(near, below, 0.5F);
      const float magnitude = !(squares <= middle) ? near : fmaxf(below, 0.0F);
      const float code = copysignf(magnitude, m);
      bits[n] = algorithms::bits_of(code + (kWhole + static_cast<float>(1 << Bits)));
      x[n] = value_of<Levels>(code, scale);
    }
    uint32_t codes = 0;
    if constexpr (Bits == 8) {
      codes = __byte_perm(__byte_perm(bits[0], bits[1], 0x0040U), __byte_perm(bits[2], bits[3], 0x0040U), 0x5410U);
    } else {
#pragma unroll
      for (int n = 0; n < N; ++n) codes |= (bits[n] & ((1U << Bits) - 1)) << (Bits * n);
    }
    return scale > 0.0F ? codes : 0U;  // not without a scale, nor with one that is no number
  }
};

using Codes = CodesAs<>;

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
  /// Not later: what it takes to find an element is no copy.
  template <int N, class W>
  __device__ static void send_for(Raw<N>* to, const Place& p, const W& w) {
    *to = load<N>(p, w);
  }
  template <int N, class W>
  __device__ static Raw<N> taken(const Raw<N>& raw, const Place&, const W&) {
    return raw;
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
