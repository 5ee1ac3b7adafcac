// Plain momentum is rounded element by element; codes need the largest magnitude of their block first.
#include "reference/momentum.hpp"

namespace came::reference {

Momentum::Momentum(const Subject& s) : s_(s), scales_(s.state("exp_avg_scale")) {
  const Cells cells = s.state("exp_avg");
  if (!cells) return;
  data_ = cells.data();
  dtype_ = cells.dtype();
  if (dtype_ == DType::i8) levels_ = algorithms::kLevelsInt8;
  if (dtype_ == DType::u8) levels_ = algorithms::kLevelsInt4;
}

double Momentum::get(int64_t b, int64_t i, int64_t j) const {
  if (levels_ == 0) return Cells(data_, dtype_).get(s_.at(b, i, j));
  return static_cast<double>(algorithms::decode(code(b, i, j), scale(b, i, j), levels_));
}

void Momentum::store(int64_t b, int64_t i, int64_t j, int64_t count, const Values& values) const {
  if (levels_ == 0) {
    for (int64_t k = 0; k < count; ++k) {
      s_.store_momentum(Cells(data_, dtype_), b, i, j + k, values[static_cast<size_t>(k)]);
    }
    return;
  }
  float largest = 0;
  for (int64_t k = 0; k < count; ++k) {
    const auto magnitude = static_cast<float>(std::abs(values[static_cast<size_t>(k)]));
    if (magnitude > largest || std::isnan(magnitude)) largest = magnitude;
  }
  scale(b, i, j) = algorithms::usable_scale(largest);
  for (int64_t k = 0; k < count; ++k) {
    const auto m = static_cast<float>(values[static_cast<size_t>(k)]);
    set_code(b, i, j + k, algorithms::encode(m, scale(b, i, j), levels_));
  }
}

int Momentum::code(int64_t b, int64_t i, int64_t j) const {
  if (dtype_ == DType::i8) return static_cast<const int8_t*>(data_)[s_.at(b, i, j)];
  const int64_t bytes = (s_.t.local.cols.count + 1) / 2;
  return algorithms::unpack_int4(static_cast<const uint8_t*>(data_)[s_.row_at(b, i) * bytes + j / 2], j % 2 != 0);
}

void Momentum::set_code(int64_t b, int64_t i, int64_t j, int code) const {
  if (dtype_ == DType::i8) {
    static_cast<int8_t*>(data_)[s_.at(b, i, j)] = static_cast<int8_t>(code);
    return;
  }
  const int64_t bytes = (s_.t.local.cols.count + 1) / 2;
  uint8_t& byte = static_cast<uint8_t*>(data_)[s_.row_at(b, i) * bytes + j / 2];
  byte = algorithms::pack_int4(byte, j % 2 != 0, code);
}

float& Momentum::scale(int64_t b, int64_t i, int64_t j) const {
  const int64_t blocks = (s_.t.local.cols.count + kBlock - 1) / kBlock;
  return static_cast<float*>(scales_.data())[s_.row_at(b, i) * blocks + j / kBlock];
}

}  // namespace came::reference
