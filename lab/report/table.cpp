// Tables as text and as HTML.
#include "report/table.hpp"

#include <algorithm>
#include <limits>

#include "report/text.hpp"

namespace lab {
namespace {

/// Whether a cell reads as a quantity: "12", "-1.5e-3", "+0.3 %", "1.2 GB", "~3", "-", "" do.
bool is_number(std::string_view cell) {
  while (!cell.empty() && (cell.front() == '+' || cell.front() == '-' || cell.front() == '~')) cell.remove_prefix(1);
  if (cell.starts_with('.')) cell.remove_prefix(1);
  return cell.empty() || (cell.front() >= '0' && cell.front() <= '9') || cell == "nan" || cell == "inf";
}

const std::string& cell_of(const std::vector<std::string>& row, size_t column) {
  static const std::string empty;
  return column < row.size() ? row[column] : empty;
}

/// How many columns there are, in the head or in the longest row.
size_t column_count(const Table& table) {
  size_t count = table.columns.size();
  for (const auto& row : table.rows) count = std::max(count, row.size());
  return count;
}

/// Which are right-aligned.
std::vector<bool> numeric_columns(const Table& table) {
  std::vector<bool> numeric(column_count(table), !table.rows.empty());
  for (size_t column = 0; column < numeric.size(); ++column) {
    for (const auto& row : table.rows) numeric[column] = numeric[column] && is_number(cell_of(row, column));
  }
  return numeric;
}

/// As a terminal may show it: on one line.
std::string shown(const std::string& cell) { return detail::clip(cell, std::numeric_limits<int>::max()); }

}  // namespace

std::string table_text(const Table& table) {
  const std::vector<bool> numeric = numeric_columns(table);
  std::vector<int> widths(numeric.size(), 0);
  const auto widen = [&](const std::vector<std::string>& row) {
    for (size_t k = 0; k < row.size(); ++k) widths[k] = std::max(widths[k], text_width(shown(row[k])));
  };
  widen(table.columns);
  for (const auto& row : table.rows) widen(row);

  std::string text = table.title.empty() ? "" : shown(table.title) + "\n";
  const auto add = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t k = 0; k < widths.size(); ++k) {
      const std::string cell = shown(cell_of(row, k));
      const std::string padding = detail::spaces(widths[k] - text_width(cell));
      line += (k > 0 ? "  " : "") + (numeric[k] ? padding + cell : cell + padding);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  if (!table.columns.empty()) {
    add(table.columns);
    std::string rule;
    for (size_t k = 0; k < widths.size(); ++k) {
      rule += k > 0 ? "  " : "";
      for (int column = 0; column < widths[k]; ++column) rule += "─";
    }
    text += rule + "\n";
  }
  for (const auto& row : table.rows) add(row);
  return text;
}

std::string table_html(const Table& table) {
  const std::vector<bool> numeric = numeric_columns(table);
  std::string html = "<table>\n";
  if (!table.title.empty()) html += "<caption>" + escape_html(table.title) + "</caption>\n";
  const auto add = [&](const std::vector<std::string>& row, const std::string& tag) {
    html += "<tr>";
    for (size_t k = 0; k < numeric.size(); ++k) {
      html.append("<").append(tag).append(numeric[k] ? " class=\"number\">" : ">");
      html.append(escape_html(cell_of(row, k))).append("</").append(tag).append(">");
    }
    html += "</tr>\n";
  };
  if (!table.columns.empty()) {
    html += "<thead>\n";
    add(table.columns, "th");
    html += "</thead>\n";
  }
  html += "<tbody>\n";
  for (const auto& row : table.rows) add(row, "td");
  return html + "</tbody>\n</table>\n";
}

}  // namespace lab
