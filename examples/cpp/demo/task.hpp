// The task of the demo: which digit is in a noisy picture of 12 by 12 pixels?  Each picture shows one of ten digits of
// a 5x7 font at a random place, in random strength, under noise; nothing is read from a file.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace demo {

inline constexpr int kSide = 12;
inline constexpr int kPixels = kSide * kSide;
inline constexpr int kClasses = 10;

/// Rows of five pixels, from the top; the highest of the five bits is the left one.
inline constexpr std::array<std::array<uint8_t, 7>, kClasses> kFont{{{14, 17, 19, 21, 25, 17, 14},
                                                                     {4, 12, 4, 4, 4, 4, 14},
                                                                     {14, 17, 1, 2, 4, 8, 31},
                                                                     {31, 2, 4, 2, 1, 17, 14},
                                                                     {2, 6, 10, 18, 31, 2, 2},
                                                                     {31, 16, 30, 1, 1, 17, 14},
                                                                     {6, 8, 16, 30, 17, 17, 14},
                                                                     {31, 1, 2, 4, 8, 8, 8},
                                                                     {14, 17, 17, 14, 17, 17, 14},
                                                                     {14, 17, 17, 15, 1, 2, 12}}};

/// Random numbers that are the same everywhere: the standard fixes the engine but not its distributions.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  /// In [0, 1).
  float uniform() { return static_cast<float>(engine_() >> 8) * 0x1p-24F; }
  /// In [0, count).
  int below(int count) { return static_cast<int>(uniform() * static_cast<float>(count)); }
  /// Mean 0, variance 1, nearly normal: four uniform numbers, added.
  float normal() { return (uniform() + uniform() + uniform() + uniform() - 2.0F) * 1.7320508F; }

 private:
  std::mt19937 engine_;
};

/// Pictures, one after the other, and the digit of each.
struct Pictures {
  std::vector<float> pixels;
  std::vector<int> digits;

  [[nodiscard]] int count() const { return static_cast<int>(digits.size()); }
};

inline Pictures make_pictures(int count, Random& random) {
  constexpr float kNoise = 0.35F;
  Pictures pictures;
  pictures.pixels.resize(static_cast<size_t>(count) * kPixels);
  for (int p = 0; p < count; ++p) {
    const int digit = random.below(kClasses);
    const int top = 1 + random.below(kSide - 8);
    const int left = 1 + random.below(kSide - 6);
    const float strength = 0.7F + 0.6F * random.uniform();
    float* picture = &pictures.pixels[static_cast<size_t>(p) * kPixels];
    for (int k = 0; k < kPixels; ++k) {
      const int y = k / kSide - top;
      const int x = k % kSide - left;
      const bool inside = y >= 0 && y < 7 && x >= 0 && x < 5;
      const bool ink = inside && (kFont[static_cast<size_t>(digit)][static_cast<size_t>(y)] >> (4 - x) & 1) != 0;
      picture[k] = (ink ? strength : 0.0F) + kNoise * random.normal();
    }
    pictures.digits.push_back(digit);
  }
  return pictures;
}

/// The first few pictures side by side, as text.
inline std::string draw(const Pictures& pictures, int count) {
  const std::string shades = "  .:-=+*#%@";
  std::string text;
  for (int y = 0; y < kSide; ++y) {
    text += "   ";
    for (int p = 0; p < count; ++p) {
      for (int x = 0; x < kSide; ++x) {
        const float value = pictures.pixels[static_cast<size_t>(p * kPixels + y * kSide + x)];
        const float clamped = value < 0.0F ? 0.0F : value > 1.0F ? 1.0F : value;
        text += shades[static_cast<size_t>(clamped * 10.0F)];
      }
      text += "   ";
    }
    text += '\n';
  }
  return text;
}

}  // namespace demo
