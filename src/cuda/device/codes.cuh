// Codes of moments on the device: src/algorithms/quantize.hpp, in fewer instructions.
#pragma once

#include "algorithms/quantize.hpp"
#include "cuda/device/instructions.cuh"
#include "cuda/device/waiting.cuh"
#include "cuda/device/where.cuh"

namespace came::cuda {

/// What a loop is compiled for beside a type; `nothing`: it looks at its place every time.
enum class Known : int32_t { nothing, nearest, bits8, bits4 };

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
  /// Codes by way of shared memory, without their scales.  Two lanes share four bytes of four-bit codes, and each
  /// brings them.
  struct Words {
    template <int N>
    using Raw = uint32_t;

    template <class W>
    __device__ static void send_for(uint32_t* to, const Place& p, const W& w) {
      const size_t at = four_bits(p) ? w.pair_at(p) & ~3U : w.at(p);
      copy_later<4>(to, p.data + at, w.there);
    }
    template <class W>
    __device__ static uint32_t taken(uint32_t codes, const Place& p, const W& w) {
      return four_bits(p) ? codes >> (8 * (w.pair_at(p) & 2U)) & 0xffffU : codes;
    }
  };
  template <class T, int N>
  __device__ static void decode(const Place& p, const Raw<N>& raw, T (&x)[N]) {
    if (four_bits(p)) {
      const float unit = unit_of(p, raw.scale);
#pragma unroll
      for (int n = 0; n < N; ++n) x[n] = value_of(number<4>(raw.codes, n), unit);
    } else if (of_second(p)) {
#pragma unroll
      for (int n = 0; n < N; ++n) x[n] = algorithms::decode_second_moment(raw.codes >> (8 * n) & 255U, raw.scale);
    } else {
      const float unit = unit_of(p, raw.scale);
#pragma unroll
      for (int n = 0; n < N; ++n) x[n] = value_of(number<8>(raw.codes, n), unit);
    }
  }
  /// Every lane of the warp must call it: the scale is the largest magnitude of the whole block.
  template <class T, int N, class W>
  __device__ static void store(const Place& p, const W& w, T (&x)[N]) {
    const float scale = scale_of(p, w, x);
    uint32_t codes = 0;
    if (!of_second(p)) {
      // Not without a scale, nor with one that is no number.
      codes = encode(p, scale > 0.0F, unit_of(p, scale), multiplier_of(p, scale), x);
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
    store_codes<N>(p, w, codes);
  }
  template <class T, int N, class W>
  __device__ static float scale_of(const Place& p, const W& w, const T (&x)[N]) {
    float magnitude = 0.0F;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      if (w.has(n)) magnitude = larger(magnitude, fabsf(static_cast<float>(x[n])));
    }
    // Bits of magnitudes order as the numbers do, and a NaN above all.
    uint32_t most = w.any() ? algorithms::bits_of(magnitude) : 0;
    if constexpr (W::kPlain) {
      most = __reduce_max_sync(0xffffffffU, most);
    } else {
      for (int step = w.lanes / 2; step > 0; step /= 2) most = max(most, __shfl_xor_sync(0xffffffffU, most, step));
    }
    const float largest = algorithms::float_of(most);
    return of_second(p) ? algorithms::second_moment_scale(largest) : algorithms::usable_scale(largest);
  }
  /// What magnitudes are multiplied with to become squares of codes.
  __device__ static float multiplier_of(const Place& p, float scale) {
    const int levels = four_bits(p) ? algorithms::kLevelsInt4 : algorithms::kLevelsInt8;
    return scale > 0.0F ? algorithms::code_multiplier(scale, levels) : 0.0F;
  }
  /// What squares of codes are multiplied with to become magnitudes.
  __device__ static float unit_of(const Place& p, float scale) {
    return scale * (four_bits(p) ? kUnit<algorithms::kLevelsInt4> : kUnit<algorithms::kLevelsInt8>);
  }
  /// Codes of a momentum with a scale that is `usable`; leaves in x what is stored.
  template <class T, int N>
  __device__ static uint32_t encode(const Place& p, bool usable, float unit, float multiplier, T (&x)[N]) {
    const uint32_t codes = four_bits(p) ? encode<algorithms::kLevelsInt4, 4>(unit, multiplier, x)
                                        : encode<algorithms::kLevelsInt8, 8>(unit, multiplier, x);
    return usable ? codes : 0U;
  }
  template <int N, class W>
  __device__ static void store_codes(const Place& p, const W& w, uint32_t codes) {
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
  template <int Levels>
  static constexpr float kUnit = 1.0F / static_cast<float>(Levels* Levels);

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
  /// algorithms::decode, but for a rounding; `unit` is the scale over the square of the largest code.
  __device__ static float value_of(float code, float unit) { return unit * (code * fabsf(code)); }
  /// algorithms::encode, but for magnitudes that lie within a few roundings of the middle between two codes.  Leaves in
  /// x what is stored.
  template <int Levels, int Bits, class T, int N>
  __device__ static uint32_t encode(float unit, float multiplier, T (&x)[N]) {
    uint32_t bits[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const auto m = static_cast<float>(x[n]);
      // The middle between the squares of k - 1 and k is (k - 1/2)^2 + 1/4, so the root of what is above 1/4 is
      // rounded. Below 1/4 the root of the difference is at most 1/2 and becomes 0; 2^-21 keeps it from 1/2, since it
      // is not exact.
      const float above = __fmaf_rn(fabsf(m), multiplier, 0x1p-21F - 0.25F);
      const float root = fminf(nearly_root(fabsf(above)), static_cast<float>(Levels));
      const float code = copysignf((root + kWhole) - kWhole, m);
      bits[n] = algorithms::bits_of(code + (kWhole + static_cast<float>(1 << Bits)));
      x[n] = value_of(code, unit);
    }
    uint32_t codes = 0;
    if constexpr (Bits == 8) {
      codes = __byte_perm(__byte_perm(bits[0], bits[1], 0x0040U), __byte_perm(bits[2], bits[3], 0x0040U), 0x5410U);
    } else {
#pragma unroll
      for (int n = 0; n < N; ++n) codes |= (bits[n] & ((1U << Bits) - 1)) << (Bits * n);
    }
    return codes;
  }
};

using Codes = CodesAs<>;

}  // namespace came::cuda
