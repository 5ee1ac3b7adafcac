// A moment of one tensor with a number per element, whatever it is stored as: f64, f32, bf16, or codes with a scale per
// block.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "algorithms/quantize.hpp"
#include "reference/subject.hpp"

namespace came::reference {

class Moment {
 public:
  /// The momentum; false if the optimizer keeps none.
  static Moment first(const Subject& s);
  /// The second moment of an optimizer that keeps one per element.
  static Moment second(const Subject& s);

  explicit operator bool() const { return static_cast<bool>(cells_); }

  [[nodiscard]] double get(int64_t b, int64_t i, int64_t j) const;

  /// For every element of a tile: x <- value(b, i, j, x), and when it is stored, after(b, i, j, stored x).
  template <class Value, class After>
  void update(const Tile& tile, Value value, After after) const;

 private:
  static constexpr int64_t kBlock = algorithms::kMomentumBlock;
  using Values = std::array<double, kBlock>;
  enum class Code { none, int8, int4, second_moment };

  Moment(const Subject& s, Cells cells, Cells scales, Code code) : s_(s), cells_(cells), scales_(scales), code_(code) {}

  /// Stores the elements [j, j + count) of a row; with codes, j is a multiple of the block.
  void store(int64_t b, int64_t i, int64_t j, int64_t count, const Values& values) const;
  /// Stores an element that is no code, with the rounding the options ask for.
  void store_number(int64_t b, int64_t i, int64_t j, double value) const;

  [[nodiscard]] int levels() const { return code_ == Code::int8 ? algorithms::kLevelsInt8 : algorithms::kLevelsInt4; }
  [[nodiscard]] int code(int64_t b, int64_t i, int64_t j) const;
  void set_code(int64_t b, int64_t i, int64_t j, int code) const;
  [[nodiscard]] uint8_t& int4_byte(int64_t b, int64_t i, int64_t j) const;
  [[nodiscard]] float& scale(int64_t b, int64_t i, int64_t j) const;

  const Subject& s_;
  Cells cells_;
  Cells scales_;
  Code code_;
};

template <class Value, class After>
void Moment::update(const Tile& tile, Value value, After after) const {
  const int64_t end = tile.cols.begin + tile.cols.count;
  for (int64_t b = tile.batch.begin; b < tile.batch.begin + tile.batch.count; ++b) {
    for (int64_t i = tile.rows.begin; i < tile.rows.begin + tile.rows.count; ++i) {
      for (int64_t first = tile.cols.begin; first < end; first += kBlock) {
        const int64_t count = std::min(kBlock, end - first);
        Values values;
        for (int64_t k = 0; k < count; ++k) {
          values[static_cast<size_t>(k)] = value(b, i, first + k, get(b, i, first + k));
        }
        store(b, i, first, count, values);
        for (int64_t k = 0; k < count; ++k) after(b, i, first + k, get(b, i, first + k));
      }
    }
  }
}

}  // namespace came::reference
