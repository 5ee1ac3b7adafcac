// Eight bytes at a time, through the instruction of x86 where there is one, and through eight tables elsewhere.  On one
// core of an EPYC server the instruction takes 6 GB/s and the tables 1 GB/s.
#include "storage/crc32c.hpp"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace lab {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // bits reversed

using Tables = std::array<std::array<uint32_t, 256>, 8>;

/// tables[k][b]: what byte b does to the checksum once k more zero bytes have followed it.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 255];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

uint64_t load(const std::byte* bytes) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

uint32_t add_byte(uint32_t crc, std::byte byte) {
  return (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint32_t>(byte)) & 255];
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_instruction(std::span<const std::byte> bytes, uint32_t before) {
  uint64_t crc = ~before;
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) crc = _mm_crc32_u64(crc, load(&bytes[at]));
  auto rest = static_cast<uint32_t>(crc);
  for (; at < bytes.size(); ++at) rest = add_byte(rest, bytes[at]);
  return ~rest;
}
#endif

}  // namespace

uint32_t detail::crc32c_tables(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t crc = ~before;
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    const uint64_t word = load(&bytes[at]) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 255];
  }
  for (; at < bytes.size(); ++at) crc = add_byte(crc, bytes[at]);
  return ~crc;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
#if defined(__x86_64__)
  static const bool instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (instruction) return crc32c_instruction(bytes, before);
#endif
  return detail::crc32c_tables(bytes, before);
}

}  // namespace lab
