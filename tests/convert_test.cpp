// The conversions of the CPU backend give the bits of src/algorithms/, in every instruction set this CPU has.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "convert_test.cpp"
#include "hwy/foreach_target.h"

#include "cpu/kernels.hpp"
#include "cpu/stream-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace came::cpu {
namespace HWY_NAMESPACE {
namespace {

void draw_random(uint64_t key, uint64_t first, size_t n, uint32_t* to) {
  for_lanes<float>(n, [&](size_t j, auto) CAME_LANES {
    HWY_ALIGN uint32_t lanes[kLanes<float>];
    hn::Store(random_lanes(key, first + j), Lanes<uint32_t>(), lanes);
    for (size_t k = 0; k < hn::Lanes(Lanes<uint32_t>()) && j + k < n; ++k) to[j + k] = lanes[k];
  });
}

}  // namespace

struct Functions {
  void (*draw)(uint64_t key, uint64_t first, size_t n, uint32_t* to);
  void (*read)(const Storage& s, const Span& span, float* to);
  void (*write)(const Storage& s, const Span& span, const float* from);
};
constexpr Functions kFunctions{draw_random, read_f32, write_f32};

}  // namespace HWY_NAMESPACE
}  // namespace came::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "support.hpp"

namespace came::test {
namespace {

using algorithms::bits_of;
using algorithms::float_of;
using cpu::Span;
using cpu::Storage;

struct NamedFunctions {
  std::string name;
  void (*draw)(uint64_t key, uint64_t first, size_t n, uint32_t* to);
  void (*read)(const Storage& s, const Span& span, float* to);
  void (*write)(const Storage& s, const Span& span, const float* from);
};

std::vector<NamedFunctions> all_functions() {
  std::vector<NamedFunctions> list;
  const auto add = [&](const auto* functions, cpu::Target target) {
    for (const cpu::Target have : cpu::targets()) {
      if (have == target) list.push_back({cpu::target_name(have), functions->draw, functions->read, functions->write});
    }
  };
#if HWY_TARGETS & HWY_AVX3
  add(&cpu::N_AVX3::kFunctions, HWY_AVX3);
#endif
#if HWY_TARGETS & HWY_AVX2
  add(&cpu::N_AVX2::kFunctions, HWY_AVX2);
#endif
#if HWY_TARGETS & HWY_SSE4
  add(&cpu::N_SSE4::kFunctions, HWY_SSE4);
#endif
  if (HWY_STATIC_TARGET != HWY_SSE4 && HWY_STATIC_TARGET != HWY_AVX2 && HWY_STATIC_TARGET != HWY_AVX3) {
    add(&cpu::HWY_STATIC_DISPATCH(kFunctions), HWY_STATIC_TARGET);
  }
  return list;
}

/// Every exponent and sign with some mantissas, specials included.
std::vector<float> many_floats() {
  std::vector<float> list;
  for (uint32_t top = 0; top < 512; ++top) {
    for (const uint32_t low :
         {0U, 1U, 0xfffU, 0x1000U, 0x1001U, 0x3000U, 0x7fffU, 0x8000U, 0x8001U, 0x18000U, 0x7fffffU}) {
      list.push_back(float_of(top << 23 | low));
    }
    for (uint64_t k = 0; k < 20; ++k) {
      list.push_back(float_of(top << 23 | static_cast<uint32_t>(algorithms::mix64(top * 64 + k) & 0x7fffffU)));
    }
  }
  return list;
}

TEST(Convert, EveryInstructionSetIsTested) {
  size_t have = 0;
  for (const cpu::Target target : cpu::targets()) have += target != 0 ? 1 : 0;
  EXPECT_EQ(all_functions().size(), have);
}

TEST(Convert, DrawsTheRandomBitsOfTheElement) {
  for (const NamedFunctions& f : all_functions()) {
    for (const uint64_t first : {uint64_t{0}, uint64_t{12345}, (uint64_t{1} << 32) - 20, (uint64_t{7} << 32) - 1}) {
      for (size_t n = 1; n <= 40; ++n) {
        std::vector<uint32_t> drawn(n);
        f.draw(0x123456789abcdefULL, first, n, drawn.data());
        for (size_t k = 0; k < n; ++k) {
          ASSERT_EQ(drawn[k], algorithms::random_bits(0x123456789abcdefULL, first + k)) << f.name << " " << first + k;
        }
      }
    }
  }
}

TEST(Convert, WidensEvery16BitNumber) {
  for (const NamedFunctions& f : all_functions()) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      std::vector<uint16_t> all(65536);
      for (size_t k = 0; k < all.size(); ++k) all[k] = static_cast<uint16_t>(k);
      std::vector<float> wide(all.size());
      const Storage storage{all.data(), dtype, 65536};
      for (size_t k = 0; k < all.size(); k += 1024) {
        f.read(storage, {0, static_cast<int64_t>(k), k, 1024}, wide.data() + k);
      }
      for (size_t k = 0; k < all.size(); ++k) {
        const float expected =
            dtype == DType::bf16 ? algorithms::f32_from_bf16(all[k]) : algorithms::f32_from_f16(all[k]);
        ASSERT_EQ(bits_of(wide[k]), bits_of(expected)) << f.name << " " << k;
      }
    }
  }
}

TEST(Convert, RoundsTo16BitsAsTheScalarFunctionsDo) {
  const std::vector<float> values = many_floats();
  for (const NamedFunctions& f : all_functions()) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      for (const bool stochastic : {false, true}) {
        std::vector<uint16_t> rounded(values.size());
        const auto cols = static_cast<int64_t>(values.size());
        const Storage storage{rounded.data(), dtype, cols, nullptr, false, stochastic, 99};
        for (int64_t k = 0; k < cols; k += 1000) {
          const auto n = static_cast<size_t>(std::min<int64_t>(1000, cols - k));
          f.write(storage, {0, k, static_cast<uint64_t>(k), n}, values.data() + k);
        }
        for (size_t k = 0; k < values.size(); ++k) {
          const uint32_t random = algorithms::random_bits(99, k);
          const float v = values[k];
          const uint16_t expected =
              dtype == DType::bf16
                  ? (stochastic ? algorithms::bf16_from_f32_stochastic(v, random) : algorithms::bf16_from_f32(v))
                  : (stochastic ? algorithms::f16_from_f32_stochastic(v, random) : algorithms::f16_from_f32(v));
          ASSERT_EQ(rounded[k], expected) << f.name << " " << v << (stochastic ? " stochastic" : "");
        }
      }
    }
  }
}

/// Rows of 300 values: blocks of ordinary, tiny, huge, zero and not finite numbers.
std::vector<float> block_values(int64_t row, bool positive) {
  std::vector<float> values;
  for (int64_t j = 0; j < 300; ++j) {
    double v = Trial::draw(5, static_cast<size_t>(row), j);
    if (positive) v *= v;
    if (row == 1) v *= 1e-38;
    if (row == 2) v *= 1e37;
    if (row == 3) v = 0;
    if (row == 4 && j == 130) v = std::nan("");
    if (row == 5 && j == 3) v = INFINITY;
    if (row == 6) v *= std::exp(8 * Trial::draw(6, 1, j));
    values.push_back(static_cast<float>(v));
  }
  return values;
}

TEST(Convert, CodesAreThoseOfTheScalarFunctions) {
  constexpr int64_t kCols = 300;
  for (const NamedFunctions& f : all_functions()) {
    for (const int kind : {0, 1, 2}) {  // int8, int4, second moment
      for (int64_t row = 0; row < 8; ++row) {
        std::vector<uint8_t> codes(static_cast<size_t>(8 * kCols), 0);
        std::vector<float> scales(8 * 3, 0.0F);
        const Storage storage{
            codes.data(), kind == 0 ? DType::i8 : DType::u8, kCols, scales.data(), kind == 2, false, 17};
        const std::vector<float> values = block_values(row, kind == 2);
        const Span span{row, 0, static_cast<uint64_t>(row * kCols), 300};
        f.write(storage, span, values.data());
        std::vector<float> decoded(300);
        f.read(storage, span, decoded.data());
        for (int64_t j = 0; j < kCols; ++j) {
          float largest = 0;
          for (int64_t x = j / 128 * 128; x < std::min(kCols, j / 128 * 128 + 128); ++x) {
            const float magnitude = std::abs(values[static_cast<size_t>(x)]);
            if (magnitude > largest || std::isnan(magnitude)) largest = magnitude;
          }
          const float v = values[static_cast<size_t>(j)];
          const uint32_t random = algorithms::random_bits(17, static_cast<uint64_t>(row * kCols + j));
          const float scale = kind == 2 ? algorithms::second_moment_scale(largest) : algorithms::usable_scale(largest);
          const int levels = kind == 0 ? algorithms::kLevelsInt8 : algorithms::kLevelsInt4;
          const float expected =
              kind == 2 ? algorithms::decode_second_moment(algorithms::encode_second_moment(v, scale, random), scale)
                        : algorithms::decode(algorithms::encode(v, scale, levels), scale, levels);
          const float got = decoded[static_cast<size_t>(j)];
          ASSERT_TRUE(bits_of(got) == bits_of(expected) || (std::isnan(got) && std::isnan(expected)))
              << f.name << " kind " << kind << " row " << row << " column " << j << ": " << got << " " << expected;
        }
      }
    }
  }
}

}  // namespace
}  // namespace came::test
#endif
