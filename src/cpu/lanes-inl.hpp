// Vectors of at most 64 bytes, whole or in part, and sums whose order no vector width changes.  Included once per
// instruction set (hwy/foreach_target.h); no fused multiply-add, so that all of them give the same bits.
#if defined(CAME_CPU_LANES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CAME_CPU_LANES_INL
#undef CAME_CPU_LANES_INL
#else
#define CAME_CPU_LANES_INL
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"

// For lambdas over lanes: only inlined do they keep in registers what they capture.
#ifndef CAME_LANES
#define CAME_LANES __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace came::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Lanes of the widest vector; narrower ones take their place in order.
template <class T>
inline constexpr size_t kLanes = 64 / sizeof(T);

/// For an element type beside f32: as many lanes as `Lanes<float>`.
template <class T>
using Lanes = hn::CappedTag<T, kLanes<T>>;
template <class T>
using Vec = hn::Vec<Lanes<T>>;

/// Loads and stores of whole vectors.
template <class T>
struct Whole {
  HWY_INLINE Vec<T> load(const T* from) const { return hn::LoadU(Lanes<T>(), from); }
  HWY_INLINE void store(Vec<T> v, T* to) const { hn::StoreU(v, Lanes<T>(), to); }
};

/// The first `count` lanes: others load as zero and are not stored.  Memory beyond them is not touched.
template <class T>
struct Part {
  size_t count;

  HWY_INLINE Vec<T> load(const T* from) const {
    const Lanes<T> d;
#if HWY_MEM_OPS_MIGHT_FAULT
    HWY_ALIGN T all[kLanes<T>] = {};
    std::memcpy(all, from, count * sizeof(T));
    return hn::Load(d, all);
#else
    return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#endif
  }
  HWY_INLINE void store(Vec<T> v, T* to) const {
    const Lanes<T> d;
#if HWY_MEM_OPS_MIGHT_FAULT
    HWY_ALIGN T all[kLanes<T>];
    hn::Store(v, d, all);
    std::memcpy(to, all, count * sizeof(T));
#else
    hn::BlendedStore(v, hn::FirstN(d, count), d, to);
#endif
  }
};

/// Calls body(j, lanes) for [0, n), one vector of T at a time.
template <class T, class Body>
HWY_INLINE void for_lanes(size_t n, const Body& body) {
  const size_t step = hn::Lanes(Lanes<T>());
  size_t j = 0;
  for (; j + step <= n; j += step) body(j, Whole<T>{});
  if (j < n) body(j, Part<T>{n - j});
}

/// A sum over at most kChunk elements: element j goes to lane j modulo kLanes whatever the vectors' width is.
template <class T>
class Sum {
 public:
#if HWY_TARGET == HWY_AVX3
  HWY_INLINE Sum() : lanes_(hn::Zero(Lanes<T>())) {}
#endif

  HWY_INLINE void add(size_t j, Vec<T> v) {
#if HWY_TARGET == HWY_AVX3
    static_cast<void>(j);
    lanes_ = hn::Add(lanes_, v);
#else
    const Lanes<T> d;
    T* at = lanes_ + j % kLanes<T>;
    hn::StoreU(hn::Add(hn::LoadU(d, at), v), d, at);
#endif
  }
  [[nodiscard]] HWY_INLINE double total() const {
#if HWY_TARGET == HWY_AVX3
    HWY_ALIGN T all[kLanes<T>];
    hn::Store(lanes_, Lanes<T>(), all);
#else
    const T* all = lanes_;
#endif
    double sums[kLanes<T>];
    for (size_t k = 0; k < kLanes<T>; ++k) sums[k] = static_cast<double>(all[k]);
    for (size_t half = kLanes<T> / 2; half > 0; half /= 2) {
      for (size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
    }
    return sums[0];
  }

 private:
#if HWY_TARGET == HWY_AVX3  // one vector has them all
  Vec<T> lanes_;
#else
  HWY_ALIGN T lanes_[kLanes<T>] = {};
#endif
};

template <class T>
HWY_INLINE Vec<T> set(T value) {
  return hn::Set(Lanes<T>(), value);
}

template <class V>
HWY_INLINE V square(V v) {
  return hn::Mul(v, v);
}

/// An exponential moving average with algorithms::rate_of(beta).
template <class V>
HWY_INLINE V blend(V old, V rate, V value) {
  const hn::DFromV<V> d;
  const hn::RebindToSigned<hn::DFromV<V>> bits;
  // By the bit: -0 has a sign, too.
  const V anchors_value = hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(bits, rate)));
  return hn::Add(hn::IfVecThenElse(anchors_value, value, old), hn::Mul(rate, hn::Sub(value, old)));
}

/// 1 where a direction has the gradient's sign, else 0: docs/algorithms.md, equation (3).  Signs are compared, since a
/// product of tiny numbers is 0.
template <class T>
HWY_INLINE Vec<T> agreeing(Vec<T> direction, Vec<T> gradient) {
  const Lanes<T> d;
  const auto zero = hn::Zero(d);
  const auto both_up = hn::And(hn::Gt(direction, zero), hn::Gt(gradient, zero));
  const auto both_down = hn::And(hn::Lt(direction, zero), hn::Lt(gradient, zero));
  return hn::IfThenElseZero(hn::Or(both_up, both_down), hn::Set(d, T{1}));
}

}  // namespace HWY_NAMESPACE
}  // namespace came::cpu
HWY_AFTER_NAMESPACE();

#endif
