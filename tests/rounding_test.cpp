// Conversions to and from 16 bits, exhaustively, and the random bits of stochastic rounding.
#include "algorithms/rounding.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "gtest/gtest.h"

namespace came::algorithms {
namespace {

/// The value of a 16-bit float with these field widths, computed from its definition.
double value_of(uint16_t h, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (h >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = h & ((1 << fraction_bits) - 1);
  const double sign = (h & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

struct Format {
  const char* name;
  int exponent_bits;
  int fraction_bits;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
  uint16_t (*narrow_stochastic)(float, uint32_t);
};

class Rounding : public testing::TestWithParam<Format> {
 protected:
  [[nodiscard]] double value(uint16_t h) const {
    return value_of(h, GetParam().exponent_bits, GetParam().fraction_bits);
  }
  [[nodiscard]] uint16_t infinity() const {
    return static_cast<uint16_t>(((1 << GetParam().exponent_bits) - 1) << GetParam().fraction_bits);
  }
};

TEST_P(Rounding, WideningIsExactForEveryPattern) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const double expected = value(static_cast<uint16_t>(h));
    const double given = GetParam().widen(static_cast<uint16_t>(h));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(given)) << h;
    } else {
      EXPECT_EQ(given, expected) << h;
      EXPECT_EQ(std::signbit(given), std::signbit(expected)) << h;
    }
  }
}

#if defined(__SSE__)
// Programs that flush subnormals to zero, as many that train do, must not lose half of f16's small numbers.
TEST_P(Rounding, WideningIsExactWhereTheCpuFlushesSubnormals) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040U);  // flush to zero, denormals are zero
  std::vector<uint32_t> wide;
  for (uint32_t h = 0; h < 65536; ++h) wide.push_back(bits_of(GetParam().widen(static_cast<uint16_t>(h))));
  _mm_setcsr(before);
  for (uint32_t h = 0; h < 65536; ++h) {
    EXPECT_EQ(wide[h], bits_of(GetParam().widen(static_cast<uint16_t>(h)))) << h;
  }
}
#endif

TEST_P(Rounding, NarrowingGivesBackEveryPattern) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float wide = GetParam().widen(static_cast<uint16_t>(h));
    const uint16_t back = GetParam().narrow(wide);
    const uint16_t back_stochastic = GetParam().narrow_stochastic(wide, 0xffffffffU);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(GetParam().widen(back)) && std::isnan(GetParam().widen(back_stochastic))) << h;
    } else {
      EXPECT_EQ(back, h);
      EXPECT_EQ(back_stochastic, h);
    }
  }
}

// Between two neighbours a < b: below the middle to a, above it to b, the middle to the even one.
TEST_P(Rounding, NarrowingIsToNearestEven) {
  for (uint16_t h = 0; h + 1 < infinity(); ++h) {
    const double a = value(h);
    const double b = value(static_cast<uint16_t>(h + 1));
    const auto middle = static_cast<float>((a + b) / 2);
    const auto even = static_cast<uint16_t>(h % 2 == 0 ? h : h + 1);
    if (static_cast<double>(middle) != (a + b) / 2) continue;  // below f32's own smallest step
    EXPECT_EQ(GetParam().narrow(middle), even) << h;
    EXPECT_EQ(GetParam().narrow(std::nextafter(middle, 0.0F)), h);
    EXPECT_EQ(GetParam().narrow(std::nextafter(middle, std::numeric_limits<float>::infinity())), h + 1);
    EXPECT_EQ(GetParam().narrow(-middle), even | 0x8000);
  }
}

TEST_P(Rounding, OverflowGoesToInfinity) {
  const double largest = value(static_cast<uint16_t>(infinity() - 1));
  const double step = largest - value(static_cast<uint16_t>(infinity() - 2));
  EXPECT_EQ(GetParam().narrow(static_cast<float>(largest + 0.49 * step)), infinity() - 1);
  EXPECT_EQ(GetParam().narrow(static_cast<float>(largest + step / 2)), infinity());
  EXPECT_EQ(GetParam().narrow(std::numeric_limits<float>::infinity()), infinity());
  EXPECT_EQ(GetParam().narrow(-std::numeric_limits<float>::infinity()), infinity() | 0x8000);
}

// The chance to round up is the distance from below: 20000 draws have a standard deviation of at most 0.0036.
TEST_P(Rounding, StochasticIsUnbiased) {
  constexpr int kDraws = 20000;
  std::mt19937_64 engine(5);
  for (const uint16_t h : {uint16_t{0x0000}, uint16_t{0x0001}, uint16_t{0x03fe}, uint16_t{0x0400}, uint16_t{0x3c00},
                           uint16_t{0x4555}, static_cast<uint16_t>(infinity() - 2)}) {
    const double a = value(h);
    const double b = value(static_cast<uint16_t>(h + 1));
    for (const double part : {0.01, 0.25, 0.5, 0.9}) {
      const auto x = static_cast<float>(a + part * (b - a));
      const double chance = (static_cast<double>(x) - a) / (b - a);  // x itself is rounded to f32
      int up = 0;
      for (int k = 0; k < kDraws; ++k) {
        const uint16_t given = GetParam().narrow_stochastic(x, static_cast<uint32_t>(engine()));
        ASSERT_TRUE(given == h || given == h + 1) << given << " beside " << h;
        up += given == h + 1 ? 1 : 0;
      }
      EXPECT_NEAR(static_cast<double>(up) / kDraws, chance, 4.5 * 0.0036) << h << " part " << part;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Rounding,
                         testing::Values(Format{"bf16", 8, 7, f32_from_bf16, bf16_from_f32, bf16_from_f32_stochastic},
                                         Format{"f16", 5, 10, f32_from_f16, f16_from_f32, f16_from_f32_stochastic}),
                         [](const auto& param) { return param.param.name; });

// Every output bit must be set half the time, for consecutive elements, steps, tensors, seeds and streams alike.
TEST(RandomBits, EveryBitIsFairAlongEveryPartOfTheKey) {
  constexpr int kDraws = 1 << 16;
  const auto expect_fair = [](const char* along, auto draw) {
    std::array<int, 32> set{};
    int repeated = 0;
    uint32_t previous = 0;
    for (int k = 0; k < kDraws; ++k) {
      const uint32_t bits = draw(static_cast<uint64_t>(k));
      for (int b = 0; b < 32; ++b) set[static_cast<size_t>(b)] += static_cast<int>(bits >> b & 1U);
      repeated += std::popcount(bits ^ previous);
      previous = bits;
    }
    // Standard deviations: sqrt(2^16) / 2 = 128 for one bit, sqrt(2^21) / 2 = 724 for all flips; five of each.
    for (const int count : set) EXPECT_NEAR(count, kDraws / 2, 5 * 128) << along;
    EXPECT_NEAR(repeated, kDraws * 16, 5 * 724) << along;
  };
  expect_fair("elements", [](uint64_t k) { return random_bits(rounding_key(1, 2, 3, Stream::parameter), k); });
  expect_fair("far elements",
              [](uint64_t k) { return random_bits(rounding_key(1, 2, 3, Stream::parameter), k << 32); });
  expect_fair("steps", [](uint64_t k) { return random_bits(rounding_key(1, k, 3, Stream::parameter), 4); });
  expect_fair("tensors", [](uint64_t k) { return random_bits(rounding_key(1, 2, k, Stream::parameter), 4); });
  expect_fair("seeds", [](uint64_t k) { return random_bits(rounding_key(k, 2, 3, Stream::parameter), 4); });
}

TEST(RandomBits, ParametersAndMomentsDoNotShareTheirs) {
  int equal = 0;
  for (uint64_t k = 0; k < 1000; ++k) {
    const auto bits = [&](Stream stream) { return random_bits(rounding_key(1, 2, 3, stream), k); };
    equal += bits(Stream::parameter) == bits(Stream::momentum);
    equal += bits(Stream::parameter) == bits(Stream::second_moment);
    equal += bits(Stream::momentum) == bits(Stream::second_moment);
  }
  EXPECT_EQ(equal, 0);
}

}  // namespace
}  // namespace came::algorithms
