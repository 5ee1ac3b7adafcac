// Numbers that depend on a key and a count alone: no state to save, and the same on every machine.  The mixing function
// is that of SplitMix64 (Steele, Lea, Flood, 2014).
#pragma once

#include <bit>
#include <cstdint>

namespace lab {

/// A bijection of 64 bits in which every bit of the result depends on every bit of `x`.
[[nodiscard]] constexpr uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// What numbers are drawn for: each purpose has its own, so that none is used twice.
enum class Purpose : uint64_t { split, sample, offset, order, mask, pair, spans };

/// The numbers of one (seed, item, purpose).
class Random {
 public:
  constexpr Random(uint64_t seed, uint64_t item, Purpose purpose)
      : key_(mix_bits(mix_bits(mix_bits(seed + kStep) + item + kStep) + static_cast<uint64_t>(purpose) + kStep)) {}

  constexpr uint64_t next() { return mix_bits(key_ += kStep); }
  /// From [0, n); the remainder favours small numbers by less than n / 2^64.
  constexpr int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  /// From [0, 1), in steps of 2^-53.
  constexpr double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15U;
  uint64_t key_;
};

/// 0 .. n - 1 in another order, without a table: a Feistel network over the next even power of two, walked until it
/// falls below n (fewer than four rounds of it on average).
class Permutation {
 public:
  constexpr Permutation(int64_t n, uint64_t key)
      : n_(static_cast<uint64_t>(n)), key_(key), half_(static_cast<int>(std::bit_width(n_ > 1 ? n_ - 1 : 1) + 1) / 2) {}

  [[nodiscard]] constexpr int64_t at(int64_t i) const {
    auto x = static_cast<uint64_t>(i);
    do {
      x = shuffle(x);
    } while (x >= n_);
    return static_cast<int64_t>(x);
  }

 private:
  [[nodiscard]] constexpr uint64_t shuffle(uint64_t x) const {
    const uint64_t mask = (uint64_t{1} << half_) - 1;
    uint64_t left = x >> half_, right = x & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t mixed = left ^ (mix_bits(mix_bits(key_ + round) + right) & mask);
      left = right;
      right = mixed;
    }
    return left << half_ | right;
  }

  uint64_t n_, key_;
  int half_;
};

}  // namespace lab
