// Between f32 and what is stored in fewer bits: bf16, f16, and codes of 8 or 4 bits.  Lane by lane the formulas of
// src/algorithms/rounding.hpp and quantize.hpp, and the same bits; tests/cpu_test.cpp holds them to that.
#if defined(CAME_CPU_CONVERT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CAME_CPU_CONVERT_INL
#undef CAME_CPU_CONVERT_INL
#else
#define CAME_CPU_CONVERT_INL
#endif

#include <algorithm>

#include "algorithms/quantize.hpp"
#include "cpu/lanes-inl.hpp"
#include "cpu/storage.hpp"

HWY_BEFORE_NAMESPACE();
namespace came::cpu {
namespace HWY_NAMESPACE {

using VecF = Vec<float>;
using VecU = Vec<uint32_t>;
using VecI = Vec<int32_t>;

/// As many lanes as a vector of f32.
template <class U>
using Narrow = hn::Rebind<U, Lanes<float>>;

template <class U>
HWY_INLINE hn::Vec<Narrow<U>> load_narrow(const U* from, size_t left) {
  const Narrow<U> d;
  if (left >= hn::Lanes(d)) return hn::LoadU(d, from);
  HWY_ALIGN U all[kLanes<float>] = {};
  std::memcpy(all, from, left * sizeof(U));
  return hn::Load(d, all);
}

template <class U>
HWY_INLINE void store_narrow(hn::Vec<Narrow<U>> v, U* to, size_t left) {
  const Narrow<U> d;
  if (left >= hn::Lanes(d)) return hn::StoreU(v, d, to);
  HWY_ALIGN U all[kLanes<float>];
  hn::Store(v, d, all);
  std::memcpy(to, all, left * sizeof(U));
}

HWY_INLINE VecU set_bits(uint32_t value) { return hn::Set(Lanes<uint32_t>(), value); }
HWY_INLINE VecU bits_of(VecF v) { return hn::BitCast(Lanes<uint32_t>(), v); }
HWY_INLINE VecF float_of(VecU v) { return hn::BitCast(Lanes<float>(), v); }
HWY_INLINE VecF to_float(VecU v) { return hn::ConvertTo(Lanes<float>(), hn::BitCast(Lanes<int32_t>(), v)); }

/// algorithms::random_bits for the elements from `first` on.
HWY_INLINE VecU random_lanes(uint64_t key, uint64_t first) {
  const Lanes<uint32_t> d;
  const auto low = static_cast<uint32_t>(first);
  const VecU element = hn::Add(set_bits(low), hn::Iota(d, 0));
  // The upper half is one more for the elements whose lower half has wrapped around.
  const auto high = static_cast<uint32_t>(first >> 32);
  const uint32_t add = static_cast<uint32_t>(key >> 32);
  const VecU upper = hn::IfThenElse(hn::Lt(element, set_bits(low)), set_bits((high + 1) * 0x9e3779b9U + add),
                                    set_bits(high * 0x9e3779b9U + add));
  VecU x = hn::Xor(element, set_bits(static_cast<uint32_t>(key)));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<17>(x)), set_bits(0xed5ad4bbU));
  x = hn::Xor(x, upper);
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<11>(x)), set_bits(0xac4c1b51U));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), set_bits(0x31848babU));
  return hn::Xor(x, hn::ShiftRight<14>(x));
}

HWY_INLINE VecF widen_bf16(VecU h) { return float_of(hn::ShiftLeft<16>(h)); }

HWY_INLINE VecU round_bf16(VecF v, VecU addend) {
  const VecU bits = bits_of(v);
  const VecU exponent = set_bits(0x7f800000U);
  const VecU nan_bit = hn::IfThenElseZero(hn::Ne(hn::And(bits, set_bits(0x007fffffU)), set_bits(0)), set_bits(0x40U));
  const VecU nonfinite = hn::Or(hn::ShiftRight<16>(bits), nan_bit);
  const VecU rounded = hn::ShiftRight<16>(hn::Add(bits, addend));
  return hn::IfThenElse(hn::Eq(hn::And(bits, exponent), exponent), nonfinite, rounded);
}

HWY_INLINE VecU nearest_bf16(VecF v) {
  const VecU odd = hn::And(hn::ShiftRight<16>(bits_of(v)), set_bits(1));
  return round_bf16(v, hn::Add(set_bits(0x7fffU), odd));
}

HWY_INLINE VecU stochastic_bf16(VecF v, VecU random) { return round_bf16(v, hn::ShiftRight<16>(random)); }

HWY_INLINE VecF widen_f16(VecU h) {
  const VecU sign = hn::ShiftLeft<16>(hn::And(h, set_bits(0x8000U)));
  const VecU magnitude = hn::And(h, set_bits(0x7fffU));
  const VecU shifted = hn::ShiftLeft<13>(magnitude);
  const VecU nonfinite = hn::Or(set_bits(0x7f800000U), hn::And(shifted, set_bits(0x007fe000U)));
  const VecU subnormal = bits_of(hn::Mul(to_float(magnitude), set(0x1p-24F)));
  VecU value = hn::Add(shifted, set_bits(0x38000000U));
  value = hn::IfThenElse(hn::Lt(magnitude, set_bits(0x400U)), subnormal, value);
  value = hn::IfThenElse(hn::Gt(magnitude, set_bits(0x7bffU)), nonfinite, value);
  return float_of(hn::Or(sign, value));
}

/// Puts a conversion together: `small` below 2^-14, else `rounded` magnitude bits in f32 format.
HWY_INLINE VecU finish_f16(VecU bits, VecU small, VecU rounded) {
  const VecU sign = hn::And(hn::ShiftRight<16>(bits), set_bits(0x8000U));
  const VecU magnitude = hn::And(bits, set_bits(0x7fffffffU));
  VecU value = hn::ShiftRight<13>(hn::Sub(hn::AndNot(set_bits(0x1fffU), rounded), set_bits(0x38000000U)));
  value = hn::IfThenElse(hn::Gt(rounded, set_bits(0x477fffffU)), set_bits(0x7c00U), value);
  value = hn::IfThenElse(hn::Lt(magnitude, set_bits(0x38800000U)), small, value);
  value = hn::IfThenElse(hn::Gt(magnitude, set_bits(0x7f7fffffU)), set_bits(0x7c00U), value);
  value = hn::IfThenElse(hn::Gt(magnitude, set_bits(0x7f800000U)), set_bits(0x7e00U), value);
  return hn::Or(sign, value);
}

HWY_INLINE VecU nearest_f16(VecF v) {
  const VecU bits = bits_of(v);
  const VecU magnitude = hn::And(bits, set_bits(0x7fffffffU));
  const VecU small = hn::Sub(bits_of(hn::Add(float_of(magnitude), set(0.5F))), set_bits(0x3f000000U));
  const VecU odd = hn::And(hn::ShiftRight<13>(magnitude), set_bits(1));
  return finish_f16(bits, small, hn::Add(magnitude, hn::Add(set_bits(0xfffU), odd)));
}

HWY_INLINE VecU stochastic_f16(VecF v, VecU random) {
  const VecU bits = bits_of(v);
  const VecU magnitude = hn::And(bits, set_bits(0x7fffffffU));
  // Only lanes below 2^-14 use this; the others must not overflow the conversion.
  const VecF steps = hn::Min(hn::Mul(float_of(magnitude), set(0x1p24F)), set(2048.0F));
  const VecU whole = hn::BitCast(Lanes<uint32_t>(), hn::ConvertTo(Lanes<int32_t>(), steps));
  const VecF fraction = hn::Sub(steps, to_float(whole));
  const VecF draw = hn::Mul(to_float(hn::ShiftRight<8>(random)), set(0x1p-24F));
  const VecU up = hn::IfThenElseZero(hn::RebindMask(Lanes<uint32_t>(), hn::Lt(draw, fraction)), set_bits(1));
  return finish_f16(bits, hn::Add(whole, up), hn::Add(magnitude, hn::ShiftRight<19>(random)));
}

/// The larger of numbers that are not negative; NaN if either is: as whole numbers their bits have the same order, and
/// a NaN, of whatever sign, is above all others.
template <class T>
HWY_INLINE Vec<T> larger(Vec<T> a, Vec<T> b) {
  const hn::RebindToUnsigned<Lanes<T>> bits;
  return hn::BitCast(Lanes<T>(), hn::Max(hn::BitCast(bits, a), hn::BitCast(bits, b)));
}

/// The largest magnitude; a NaN is never lost.
HWY_INLINE float largest_of(const float* values, size_t n) {
  VecF most = hn::Zero(Lanes<float>());
  for_lanes<float>(n, [&](size_t j, auto at) CAME_LANES { most = larger<float>(hn::Abs(at.load(values + j)), most); });
  HWY_ALIGN float lanes[kLanes<float>] = {};
  hn::Store(most, Lanes<float>(), lanes);
  float largest = 0;
  for (const float lane : lanes) {
    if (lane > largest || lane != lane) largest = lane;
  }
  return largest;
}

/// algorithms::encode
HWY_INLINE void encode_block(const float* values, size_t n, float scale, int levels, int8_t* codes) {
  if (!(scale > 0.0F)) {
    std::memset(codes, 0, n);
    return;
  }
  const VecF most = set(static_cast<float>(levels));
  const VecF multiplier = set(algorithms::code_multiplier(scale, levels));
  for_lanes<float>(n, [&](size_t j, auto at) CAME_LANES {
    const VecF m = at.load(values + j);
    const VecF squares = hn::Mul(hn::Abs(m), multiplier);
    const VecF t = hn::Sqrt(squares);
    const VecI code = hn::ConvertTo(Lanes<int32_t>(), hn::IfThenElse(hn::Lt(t, most), t, most));
    const VecF k = hn::ConvertTo(Lanes<float>(), code);
    const auto up = hn::And(hn::Lt(k, most), hn::Gt(squares, hn::Add(hn::Add(square(k), k), set(0.5F))));
    const VecF magnitude = hn::Add(k, hn::IfThenElseZero(up, set(1.0F)));
    const VecF value = hn::IfThenElse(hn::Lt(m, hn::Zero(Lanes<float>())), hn::Neg(magnitude), magnitude);
    const auto narrow = hn::DemoteTo(Narrow<int16_t>(), hn::ConvertTo(Lanes<int32_t>(), value));
    store_narrow<int8_t>(hn::DemoteTo(Narrow<int8_t>(), narrow), codes + j, n - j);
  });
}

/// algorithms::decode
HWY_INLINE void decode_block(const int8_t* codes, size_t n, float scale, int levels, float* values) {
  const VecF share = set(1.0F / static_cast<float>(levels * levels));
  for_lanes<float>(n, [&](size_t j, auto at) CAME_LANES {
    const VecI code = hn::PromoteTo(Lanes<int32_t>(), load_narrow<int8_t>(codes + j, n - j));
    const VecF k = hn::ConvertTo(Lanes<float>(), code);
    at.store(hn::Mul(set(scale), hn::Mul(hn::Mul(k, hn::Abs(k)), share)), values + j);
  });
}

/// algorithms::decode_second_moment
HWY_INLINE VecF decode_second_moment(VecF code, float scale) {
  const VecF t = hn::Mul(code, set(algorithms::kSecondMomentStep));
  return hn::Mul(set(scale), square(square(t)));
}

/// algorithms::encode_second_moment, drawing for the elements from `whole` on.
HWY_INLINE void encode_second_moments(const float* values, size_t n, float scale, uint64_t key, uint64_t whole,
                                      uint8_t* codes) {
  if (!(scale > 0.0F)) {
    std::memset(codes, 0, n);
    return;
  }
  const VecF zero = hn::Zero(Lanes<float>());
  const VecF one = set(1.0F);
  const VecF last = set(static_cast<float>(algorithms::kLevelsSecondMoment - 1));
  for_lanes<float>(n, [&](size_t j, auto at) CAME_LANES {
    const VecF v = at.load(values + j);
    const VecF root = hn::Sqrt(hn::Sqrt(hn::Div(v, set(scale))));
    const VecF t = hn::Mul(set(static_cast<float>(algorithms::kLevelsSecondMoment)), root);
    const VecI floor = hn::ConvertTo(Lanes<int32_t>(), hn::IfThenElse(hn::Lt(t, last), t, last));
    const VecF below = hn::ConvertTo(Lanes<float>(), floor);
    const VecF low = decode_second_moment(below, scale);
    const VecF high = decode_second_moment(hn::Add(below, one), scale);
    const VecF draw = hn::Mul(to_float(hn::ShiftRight<8>(random_lanes(key, whole + j))), set(0x1p-24F));
    const auto up = hn::Lt(hn::Mul(draw, hn::Sub(high, low)), hn::Sub(v, low));
    const VecF code = hn::Add(below, hn::IfThenElseZero(up, one));
    const VecF kept = hn::IfThenElse(hn::And(hn::Eq(code, zero), hn::Gt(v, zero)), one, code);
    const auto narrow = hn::DemoteTo(Narrow<uint8_t>(), hn::ConvertTo(Lanes<int32_t>(), kept));
    store_narrow<uint8_t>(narrow, codes + j, n - j);
  });
}

HWY_INLINE void decode_second_moments(const uint8_t* codes, size_t n, float scale, float* values) {
  for_lanes<float>(n, [&](size_t j, auto at) CAME_LANES {
    const VecI code = hn::PromoteTo(Lanes<int32_t>(), load_narrow<uint8_t>(codes + j, n - j));
    at.store(decode_second_moment(hn::ConvertTo(Lanes<float>(), code), scale), values + j);
  });
}

template <class Widen>
HWY_INLINE void read_16(const uint16_t* from, size_t n, float* to, const Widen& widen) {
  for_lanes<float>(n, [&](size_t j, auto at) CAME_LANES {
    at.store(widen(hn::PromoteTo(Lanes<uint32_t>(), load_narrow<uint16_t>(from + j, n - j))), to + j);
  });
}

/// Writes round(values, random); draws for the elements from `whole` on where the rounding is stochastic.
template <class Nearest, class Stochastic>
HWY_INLINE void write_16(const Storage& s, const Span& span, const float* values, const Nearest& nearest,
                         const Stochastic& stochastic) {
  auto* to = static_cast<uint16_t*>(s.data) + s.at(span);
  const auto narrow = [](VecU v) { return hn::DemoteTo(Narrow<uint16_t>(), hn::BitCast(Lanes<int32_t>(), v)); };
  if (s.stochastic) {
    for_lanes<float>(span.n, [&](size_t j, auto at) CAME_LANES {
      const VecU random = random_lanes(s.key, span.whole + j);
      store_narrow<uint16_t>(narrow(stochastic(at.load(values + j), random)), to + j, span.n - j);
    });
  } else {
    for_lanes<float>(span.n, [&](size_t j, auto at) CAME_LANES {
      store_narrow<uint16_t>(narrow(nearest(at.load(values + j))), to + j, span.n - j);
    });
  }
}

/// Calls f(offset in the span, elements, scale) for every block of codes.
template <class F>
HWY_INLINE void for_blocks(const Storage& s, const Span& span, const F& f) {
  constexpr auto kBlock = static_cast<size_t>(algorithms::kMomentumBlock);
  float* scale = s.scales + span.row * ((s.cols + algorithms::kMomentumBlock - 1) / algorithms::kMomentumBlock) +
                 span.col / algorithms::kMomentumBlock;
  for (size_t j = 0; j < span.n; j += kBlock) f(j, std::min(kBlock, span.n - j), *scale++);
}

/// Bytes of two codes, the even column low.
HWY_INLINE void pack_int4(const int8_t* codes, size_t n, uint8_t* bytes) {
  for (size_t k = 0; k < n / 2; ++k) {
    bytes[k] = static_cast<uint8_t>((codes[2 * k] & 15) | (codes[2 * k + 1] & 15) << 4);
  }
  if (n % 2 != 0) bytes[n / 2] = static_cast<uint8_t>(codes[n - 1] & 15);
}

HWY_INLINE void unpack_int4(const uint8_t* bytes, size_t n, int8_t* codes) {
  for (size_t k = 0; k < n / 2; ++k) {
    codes[2 * k] = static_cast<int8_t>(static_cast<int8_t>(bytes[k] << 4) >> 4);
    codes[2 * k + 1] = static_cast<int8_t>(static_cast<int8_t>(bytes[k]) >> 4);
  }
  if (n % 2 != 0) codes[n - 1] = static_cast<int8_t>(static_cast<int8_t>(bytes[n / 2] << 4) >> 4);
}

}  // namespace HWY_NAMESPACE
}  // namespace came::cpu
HWY_AFTER_NAMESPACE();

#endif
