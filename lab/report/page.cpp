// The frame of a page and its style.
#include "report/page.hpp"

#include <algorithm>
#include <utility>

namespace lab {
namespace {

constexpr const char* kPageStyle = R"(
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2.2rem}
p{max-width:46rem;white-space:pre-line}
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding-bottom:.3rem}
th,td{padding:.25rem .8rem;text-align:left;border-bottom:1px solid #8884}
th{border-bottom:2px solid #8888}
.number{text-align:right}
.wide{overflow-x:auto}
svg{max-width:100%;height:auto;display:block;margin:1rem 0}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#161618}}
)";

}  // namespace

Page::Page(std::string title) : title_(std::move(title)) {}

void Page::section(std::string_view title) { body_ += "<h2>" + escape_html(title) + "</h2>\n"; }

void Page::note(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find("\n\n"), text.size());
    const std::string paragraph = escape_html(text.substr(0, end));
    if (paragraph.find_first_not_of(" \n\t") != std::string::npos) body_ += "<p>" + paragraph + "</p>\n";
    text.remove_prefix(std::min(end + 2, text.size()));
  }
}

void Page::code(std::string_view text) { body_ += "<pre class=\"wide\">" + escape_html(text) + "</pre>\n"; }

void Page::table(const Table& table) { body_ += "<div class=\"wide\">\n" + table_html(table) + "</div>\n"; }

void Page::chart(const Chart& chart) { body_ += chart_svg(chart); }

std::string Page::html() const {
  const std::string title = escape_html(title_);
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>" +
         title + "</title>\n<style>" + kPageStyle + "</style>\n</head>\n<body>\n<h1>" + title + "</h1>\n" + body_ +
         "</body>\n</html>\n";
}

}  // namespace lab
