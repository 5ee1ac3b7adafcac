// Widths of characters, after the East Asian Width property of Unicode where it is Wide or Fullwidth, in ranges coarse
// enough to read here.
#include "report/text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "report/table.hpp"

namespace lab {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// Combining marks, joiners and variation selectors.
constexpr std::array<Range, 13> kNarrowest{{{0x0300, 0x036F},
                                            {0x0483, 0x0489},
                                            {0x0591, 0x05BD},
                                            {0x064B, 0x065F},
                                            {0x0E34, 0x0E3A},
                                            {0x0E47, 0x0E4E},
                                            {0x1AB0, 0x1AFF},
                                            {0x1DC0, 0x1DFF},
                                            {0x200B, 0x200F},
                                            {0x20D0, 0x20FF},
                                            {0xFE00, 0xFE0F},
                                            {0xFE20, 0xFE2F},
                                            {0xFEFF, 0xFEFF}}};
// Hangul, CJK, kana, fullwidth forms, emoji.
constexpr std::array<Range, 12> kWide{{{0x1100, 0x115F},
                                       {0x231A, 0x231B},
                                       {0x2E80, 0x303E},
                                       {0x3041, 0x33FF},
                                       {0x3400, 0x4DBF},
                                       {0x4E00, 0xA4CF},
                                       {0xAC00, 0xD7A3},
                                       {0xF900, 0xFAFF},
                                       {0xFE30, 0xFE6F},
                                       {0xFF00, 0xFF60},
                                       {0x1F300, 0x1FAFF},
                                       {0x20000, 0x3FFFD}}};

template <size_t N>
bool in(const std::array<Range, N>& ranges, char32_t character) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const Range& range) { return range.first <= character && character <= range.last; });
}

bool is_control(char32_t character) { return character < 0x20 || (character >= 0x7F && character < 0xA0); }

}  // namespace

char32_t detail::next_character(std::string_view& text) {
  constexpr char32_t kReplacement = 0xFFFD;
  const auto byte = [&](size_t at) { return static_cast<char32_t>(static_cast<unsigned char>(text[at])); };
  const char32_t first = byte(0);
  const size_t size = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
  char32_t character = size == 1 ? first : size == 0 ? kReplacement : first & (0x7FU >> size);
  bool good = size != 0 && size <= text.size();
  for (size_t k = 1; good && k < size; ++k) {
    good = byte(k) >> 6 == 2;
    character = character << 6 | (byte(k) & 63);
  }
  // Neither longer than needed, nor half of a pair, nor past the end of Unicode.
  constexpr std::array<char32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  good = good && character >= kLeast[size] && (character < 0xD800 || character > 0xDFFF) && character <= 0x10FFFF;
  text.remove_prefix(good ? size : 1);
  return good ? character : kReplacement;
}

void detail::append_character(std::string& text, char32_t character) {
  const auto put = [&](char32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (character < 0x80) return put(character);
  if (character < 0x800) {
    put(0xC0 | character >> 6);
  } else {
    if (character < 0x10000) {
      put(0xE0 | character >> 12);
    } else {
      put(0xF0 | character >> 18);
      put(0x80 | (character >> 12 & 63));
    }
    put(0x80 | (character >> 6 & 63));
  }
  put(0x80 | (character & 63));
}

int detail::width_of(char32_t character) {
  if (is_control(character) || in(kNarrowest, character)) return 0;
  return in(kWide, character) ? 2 : 1;
}

std::string detail::clip(std::string_view text, int width) {
  std::string clipped;
  std::string shorter;  // with room for the ellipsis
  int used = 0;
  while (!text.empty()) {
    char32_t character = next_character(text);
    if (is_control(character)) character = ' ';
    used += width_of(character);
    if (used > width) return width > 0 ? shorter + "…" : "";
    append_character(clipped, character);
    if (used < width) shorter = clipped;
  }
  return clipped;
}

std::string detail::spaces(int count) { return std::string(static_cast<size_t>(std::max(count, 0)), ' '); }

int text_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) width += detail::width_of(detail::next_character(text));
  return width;
}

std::string escape_html(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const char32_t character = detail::next_character(text);
    switch (character) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      case '\t':
      case '\n':
        escaped += static_cast<char>(character);
        break;
      default:
        if (!is_control(character) && character != 0xFFFE && character != 0xFFFF) {
          detail::append_character(escaped, character);
        }
    }
  }
  return escaped;
}

}  // namespace lab
