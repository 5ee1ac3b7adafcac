// Tables of a report: the same rows for the terminal and for a web page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lab {

/// Text in cells; a row may be shorter than the head.  A column whose cells all begin like numbers is right-aligned.
struct Table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

/// Lines for a terminal, each ended; columns are as wide as their widest cell.
[[nodiscard]] std::string table_text(const Table& table);
/// A <table> with its title as caption; all text is escaped.
[[nodiscard]] std::string table_html(const Table& table);

/// Columns of a terminal that UTF-8 text takes: 0 for combining marks, 2 for wide East Asian characters and emoji.
[[nodiscard]] int text_width(std::string_view text);
/// Text with & < > " ' as entities, and without control characters, which HTML and SVG forbid.
[[nodiscard]] std::string escape_html(std::string_view text);

}  // namespace lab
