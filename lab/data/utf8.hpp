// What has to be known of UTF-8: whether bytes are it, and where they may be cut.
#pragma once

#include <cstddef>
#include <string_view>

namespace lab {

/// Where the first byte is that cannot be valid UTF-8 (no overlong forms, no surrogates, nothing above U+10FFFF); npos:
/// nowhere.
[[nodiscard]] size_t find_invalid_utf8(std::string_view text);

/// The largest place <= `at` where no character is cut.
[[nodiscard]] inline size_t character_start(std::string_view text, size_t at) {
  if (at >= text.size()) return text.size();
  // Valid text has at most three such bytes in a row.
  for (int back = 0; back < 3 && at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; ++back) --at;
  return at;
}

/// How many bytes the character takes that begins at `at` of valid text.
[[nodiscard]] inline size_t character_bytes(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/// How much of a text to take at once, `limit` bytes at the most: all of it, or up to the last line's end, or up to the
/// last space, or up to the last character, so that words stay whole where they can.
[[nodiscard]] size_t find_cut(std::string_view text, size_t limit);

}  // namespace lab
