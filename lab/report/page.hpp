// A report as one HTML page that needs no other file, no script and no network.
#pragma once

#include <string>
#include <string_view>

#include "report/chart.hpp"
#include "report/table.hpp"

namespace lab {

/// Parts in the order they are added; all text is escaped.
class Page {
 public:
  explicit Page(std::string title);

  /// A heading.
  void section(std::string_view title);
  /// Plain text; empty lines separate paragraphs.
  void note(std::string_view text);
  /// Preformatted text in a monospaced font.
  void code(std::string_view text);
  void table(const Table& table);
  void chart(const Chart& chart);
  /// The whole page.
  [[nodiscard]] std::string html() const;

 private:
  std::string title_;
  std::string body_;
};

}  // namespace lab
