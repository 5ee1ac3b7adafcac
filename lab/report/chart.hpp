// Line charts of a report: the same curves as an SVG picture and in characters for the terminal.
#pragma once

#include <string>
#include <vector>

namespace lab {

/// One curve.  Points that are not finite, or not positive on a logarithmic axis, interrupt it.
struct Series {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;
};

/// Several curves over the same axes.
struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_x = false;
  bool log_y = false;
  std::vector<Series> series;
};

/// An <svg> element that stands alone or in a page and follows a reader's light or dark setting.  Curves have colours
/// that the colour-blind can tell apart, and dashes after the eighth; all text is escaped.
[[nodiscard]] std::string chart_svg(const Chart& chart, int width = 720, int height = 420);
/// Lines for a terminal, each ended: `height` lines of braille dots between the axes, with a legend; `color` adds
/// escape sequences, and without it the curves are numbered where they end.
[[nodiscard]] std::string chart_text(const Chart& chart, int width = 80, int height = 15, bool color = false);

}  // namespace lab
