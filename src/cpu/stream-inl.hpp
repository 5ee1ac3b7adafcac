// Pieces of rows as numbers of the arithmetic's type T, f32 or f64: in place where they are stored so, otherwise
// converted into the caller's scratch and back.
#if defined(CAME_CPU_STREAM_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CAME_CPU_STREAM_INL
#undef CAME_CPU_STREAM_INL
#else
#define CAME_CPU_STREAM_INL
#endif

#include "cpu/convert-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace came::cpu {
namespace HWY_NAMESPACE {

template <class T>
inline constexpr DType kType = std::is_same_v<T, double> ? DType::f64 : DType::f32;

inline void read_codes(const Storage& s, const Span& span, float* to) {
  if (s.second_moment) {
    const uint8_t* codes = static_cast<const uint8_t*>(s.data) + s.at(span);
    for_blocks(s, span, [&](size_t j, size_t n, float scale) { decode_second_moments(codes + j, n, scale, to + j); });
    return;
  }
  const bool wide = s.dtype == DType::i8;
  int8_t unpacked[kChunk];
  const int8_t* codes = static_cast<const int8_t*>(s.data) + s.at(span);
  if (!wide) {
    unpack_int4(static_cast<const uint8_t*>(s.data) + span.row * ((s.cols + 1) / 2) + span.col / 2, span.n, unpacked);
    codes = unpacked;
  }
  const int levels = wide ? algorithms::kLevelsInt8 : algorithms::kLevelsInt4;
  for_blocks(s, span, [&](size_t j, size_t n, float scale) { decode_block(codes + j, n, scale, levels, to + j); });
}

inline void write_codes(const Storage& s, const Span& span, const float* from) {
  if (s.second_moment) {
    uint8_t* codes = static_cast<uint8_t*>(s.data) + s.at(span);
    for_blocks(s, span, [&](size_t j, size_t n, float& scale) {
      scale = algorithms::second_moment_scale(largest_of(from + j, n));
      encode_second_moments(from + j, n, scale, s.key, span.whole + j, codes + j);
    });
    return;
  }
  const bool wide = s.dtype == DType::i8;
  const int levels = wide ? algorithms::kLevelsInt8 : algorithms::kLevelsInt4;
  int8_t packed[kChunk];
  int8_t* codes = wide ? static_cast<int8_t*>(s.data) + s.at(span) : packed;
  for_blocks(s, span, [&](size_t j, size_t n, float& scale) {
    scale = algorithms::usable_scale(largest_of(from + j, n));
    encode_block(from + j, n, scale, levels, codes + j);
  });
  if (!wide) {
    pack_int4(codes, span.n, static_cast<uint8_t*>(s.data) + span.row * ((s.cols + 1) / 2) + span.col / 2);
  }
}

template <class From, class To>
HWY_INLINE void copy(const From* from, size_t n, To* to) {
  for (size_t k = 0; k < n; ++k) to[k] = static_cast<To>(from[k]);
}

/// Elements of a storage that is not f64.
inline void read_f32(const Storage& s, const Span& span, float* to) {
  const int64_t at = s.at(span);
  switch (s.dtype) {
    case DType::bf16:
      return read_16(static_cast<const uint16_t*>(s.data) + at, span.n, to, widen_bf16);
    case DType::f16:
      return read_16(static_cast<const uint16_t*>(s.data) + at, span.n, to, widen_f16);
    case DType::f32:
      return copy(static_cast<const float*>(s.data) + at, span.n, to);
    default:
      return read_codes(s, span, to);
  }
}

inline void write_f32(const Storage& s, const Span& span, const float* from) {
  switch (s.dtype) {
    case DType::bf16:
      return write_16(s, span, from, nearest_bf16, stochastic_bf16);
    case DType::f16:
      return write_16(s, span, from, nearest_f16, stochastic_f16);
    case DType::f32:
      return copy(from, span.n, static_cast<float*>(s.data) + s.at(span));
    default:
      return write_codes(s, span, from);
  }
}

inline void convert(const Storage& s, const Span& span, float* to) {
  if (s.dtype != DType::f64) return read_f32(s, span, to);
  copy(static_cast<const double*>(s.data) + s.at(span), span.n, to);
}

inline void convert(const Storage& s, const Span& span, double* to) {
  float narrow[kChunk];
  read_f32(s, span, narrow);
  copy(narrow, span.n, to);
}

/// The elements of a span, to read and, followed by store(), to write.
template <class T>
HWY_INLINE T* values_of(const Storage& s, const Span& span, T* scratch) {
  if (s.dtype == kType<T>) return static_cast<T*>(s.data) + s.at(span);
  convert(s, span, scratch);
  return scratch;
}

/// Stores what values_of() gave; it stays as it was before it was rounded.
template <class T>
HWY_INLINE void store(const Storage& s, const Span& span, const T* values) {
  if (s.dtype == kType<T>) return;
  if constexpr (std::is_same_v<T, float>) {
    write_f32(s, span, values);
  } else {
    float narrow[kChunk];
    copy(values, span.n, narrow);
    write_f32(s, span, narrow);
  }
}

/// store(), and then what a later values_of() would give.
template <class T>
HWY_INLINE void store_rounded(const Storage& s, const Span& span, T* values) {
  if (s.dtype == kType<T>) return;
  store(s, span, values);
  convert(s, span, values);
}

}  // namespace HWY_NAMESPACE
}  // namespace came::cpu
HWY_AFTER_NAMESPACE();

#endif
