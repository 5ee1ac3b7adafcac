// UTF-8 as the Unicode standard's table 3-7 has it.
#include "data/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace lab {

size_t find_invalid_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const size_t size = text.size();
  size_t k = 0;
  while (k < size) {
    // Most text is ASCII: eight bytes at once.
    uint64_t eight = 0;
    while (k + 8 <= size && (std::memcpy(&eight, bytes + k, 8), (eight & 0x8080808080808080U) == 0)) k += 8;
    if (k >= size) break;
    const unsigned lead = bytes[k];
    if (lead < 0x80) {
      ++k;
      continue;
    }
    // 0x80 .. 0xc1: a byte of no character or an overlong form; 0xf5 and above: beyond U+10FFFF.
    if (lead < 0xc2 || lead > 0xf4) return k;
    const size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    // Of the second byte depends whether the form is overlong, a surrogate or too large.
    const unsigned low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (k + 1 >= size || bytes[k + 1] < low || bytes[k + 1] > high) return k;
    for (size_t i = 2; i < length; ++i) {
      if (k + i >= size || (bytes[k + i] & 0xc0) != 0x80) return k;
    }
    k += length;
  }
  return std::string_view::npos;
}

size_t find_cut(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text.size();
  const std::string_view head = text.substr(0, limit);
  if (const size_t line = head.rfind('\n'); line != std::string_view::npos) return line + 1;
  // Before the first of some spaces: they belong to the word that follows.
  if (const size_t last = head.rfind(' '); last != std::string_view::npos) {
    const size_t word = head.find_last_not_of(' ', last);
    if (word != std::string_view::npos) return word + 1;
  }
  const size_t cut = character_start(text, limit);
  return cut > 0 ? cut : limit;
}

}  // namespace lab
