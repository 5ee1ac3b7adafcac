// The momentum of one tensor, whatever it is stored as: f64, f32, bf16, or codes with a scale per block.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "algorithms/quantize.hpp"
#include "reference/kernel.hpp"

namespace came::reference {

class Momentum {
 public:
  explicit Momentum(const Subject& s);

  /// False if the optimizer keeps none.
  explicit operator bool() const { return data_ != nullptr; }

  [[nodiscard]] double get(int64_t b, int64_t i, int64_t j) const;

  /// For every element of a tile: m <- value(b, i, j, m), and when it is stored, after(b, i, j, stored m).
  template <class Value, class After>
  void update(const Tile& tile, Value value, After after) const;

 private:
  static constexpr int64_t kBlock = algorithms::kMomentumBlock;
  using Values = std::array<double, kBlock>;

  /// Stores the elements [j, j + count) of a row; with codes, j is a multiple of the block.
  void store(int64_t b, int64_t i, int64_t j, int64_t count, const Values& values) const;

  [[nodiscard]] int code(int64_t b, int64_t i, int64_t j) const;
  void set_code(int64_t b, int64_t i, int64_t j, int code) const;
  [[nodiscard]] float& scale(int64_t b, int64_t i, int64_t j) const;

  const Subject& s_;
  void* data_ = nullptr;
  DType dtype_ = DType::f32;
  Cells scales_;
  int levels_ = 0;  ///< Of the codes; 0: plain numbers.
};

template <class Value, class After>
void Momentum::update(const Tile& tile, Value value, After after) const {
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
