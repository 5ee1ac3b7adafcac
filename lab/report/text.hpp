// Private to lab/report: UTF-8 text cut into what a terminal shows.
#pragma once

#include <string>
#include <string_view>

namespace lab::detail {

/// Takes the first character off `text` and returns it; U+FFFD for a byte that is not UTF-8.
[[nodiscard]] char32_t next_character(std::string_view& text);
/// Appends a character as UTF-8.
void append_character(std::string& text, char32_t character);
/// Columns of a terminal that it takes: 0, 1 or 2.
[[nodiscard]] int width_of(char32_t character);
/// The text as a terminal may show it, without control characters, at most `width` columns wide, the last of them an
/// ellipsis where it was longer.
[[nodiscard]] std::string clip(std::string_view text, int width);
/// So many spaces.
[[nodiscard]] std::string spaces(int count);

}  // namespace lab::detail
