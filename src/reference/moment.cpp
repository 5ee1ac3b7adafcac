// Plain numbers are rounded element by element; codes need the largest magnitude of their block first.
#include "reference/moment.hpp"

namespace came::reference {

using algorithms::Stream;

Moment Moment::first(const Subject& s) {
  const Cells cells = s.state("exp_avg");
  const bool int8 = cells.dtype() == DType::i8;
  const bool int4 = cells.dtype() == DType::u8;
  return {s, cells, s.state("exp_avg_scale"), int8 ? Code::int8 : int4 ? Code::int4 : Code::none};
}

Moment Moment::second(const Subject& s) {
  const Cells cells = s.state("exp_avg_sq");
  return {s, cells, s.state("exp_avg_sq_scale"), cells.dtype() == DType::u8 ? Code::second_moment : Code::none};
}

double Moment::get(int64_t b, int64_t i, int64_t j) const {
  switch (code_) {
    case Code::none:
      return cells_.get(s_.at(b, i, j));
    case Code::second_moment:
      return static_cast<double>(algorithms::decode_second_moment(code(b, i, j), scale(b, i, j)));
    default:
      return static_cast<double>(algorithms::decode(code(b, i, j), scale(b, i, j), levels()));
  }
}

void Moment::store(int64_t b, int64_t i, int64_t j, int64_t count, const Values& values) const {
  if (code_ == Code::none) {
    for (int64_t k = 0; k < count; ++k) store_number(b, i, j + k, values[static_cast<size_t>(k)]);
    return;
  }
  float largest = 0;
  for (int64_t k = 0; k < count; ++k) {
    const auto magnitude = static_cast<float>(std::abs(values[static_cast<size_t>(k)]));
    if (magnitude > largest || std::isnan(magnitude)) largest = magnitude;
  }
  const bool second = code_ == Code::second_moment;
  const float block_scale = second ? algorithms::second_moment_scale(largest) : algorithms::usable_scale(largest);
  scale(b, i, j) = block_scale;
  for (int64_t k = 0; k < count; ++k) {
    const auto value = static_cast<float>(values[static_cast<size_t>(k)]);
    set_code(b, i, j + k,
             second
                 ? algorithms::encode_second_moment(value, block_scale, s_.random(Stream::second_moment, b, i, j + k))
                 : algorithms::encode(value, block_scale, levels()));
  }
}

void Moment::store_number(int64_t b, int64_t i, int64_t j, double value) const {
  // Of the moments only a momentum has a 16-bit type, the only ones that are rounded stochastically.
  if (s_.o.stochastic_rounding != 0) {
    cells_.set_stochastic(s_.at(b, i, j), value, s_.random(Stream::momentum, b, i, j));
  } else {
    cells_.set(s_.at(b, i, j), value);
  }
}

int Moment::code(int64_t b, int64_t i, int64_t j) const {
  if (code_ != Code::int4) return static_cast<int>(cells_.get(s_.at(b, i, j)));
  return algorithms::unpack_int4(int4_byte(b, i, j), j % 2 != 0);
}

void Moment::set_code(int64_t b, int64_t i, int64_t j, int code) const {
  if (code_ != Code::int4) {
    cells_.set(s_.at(b, i, j), code);
    return;
  }
  uint8_t& byte = int4_byte(b, i, j);
  byte = algorithms::pack_int4(byte, j % 2 != 0, code);
}

uint8_t& Moment::int4_byte(int64_t b, int64_t i, int64_t j) const {
  const int64_t bytes = (s_.t.local.cols.count + 1) / 2;
  return static_cast<uint8_t*>(cells_.data())[s_.row_at(b, i) * bytes + j / 2];
}

float& Moment::scale(int64_t b, int64_t i, int64_t j) const {
  const int64_t blocks = (s_.t.local.cols.count + kBlock - 1) / kBlock;
  return static_cast<float*>(scales_.data())[s_.row_at(b, i) * blocks + j / kBlock];
}

}  // namespace came::reference
