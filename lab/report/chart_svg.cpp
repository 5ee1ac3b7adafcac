// Charts as SVG.  The plot is on the left, the legend on its right, so that no curve runs through it.
#include <algorithm>
#include <cmath>

#include "error.hpp"
#include "report/axis.hpp"
#include "report/table.hpp"
#include "report/text.hpp"

namespace lab {
namespace {

constexpr int kColourCount = 8;
constexpr double kCharacter = 6.5;  // width of one at 12 px, about
constexpr int kLegendCharacters = 26;

// After Okabe and Ito, whose colours the colour-blind can tell apart; their yellow, which white paper swallows, is grey
// here.  On a dark page the darker ones are lighter.
constexpr const char* kChartStyle = R"(<style>
.chart{font:12px system-ui,sans-serif}
.chart text{fill:#444}.chart .title{font-size:15px;font-weight:600;fill:#222}
.chart .grid{stroke:#888;stroke-opacity:.25}.chart .axis{stroke:#888}
.chart .curve{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.chart .c0{stroke:#0072b2}.chart .c1{stroke:#d55e00}.chart .c2{stroke:#009e73}.chart .c3{stroke:#cc79a7}
.chart .c4{stroke:#e69f00}.chart .c5{stroke:#56b4e9}.chart .c6{stroke:#7b3294}.chart .c7{stroke:#777}
@media(prefers-color-scheme:dark){.chart text{fill:#bbb}.chart .title{fill:#eee}
.chart .c0{stroke:#4aa3df}.chart .c1{stroke:#f0843c}.chart .c2{stroke:#2fc397}.chart .c6{stroke:#b98ad6}.chart .c7{stroke:#aaa}}
</style>
)";

struct Box {
  double left, top, right, bottom;
  [[nodiscard]] double x(double share) const { return left + share * (right - left); }
  [[nodiscard]] double y(double share) const { return bottom - share * (bottom - top); }
};

std::string text_at(double x, double y, const char* anchor, const std::string& text, const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                     escape_html(text));
}

/// Colour, and from the ninth on dashes.
std::string look_of(size_t number) {
  const char* dashes = number < kColourCount       ? ""
                       : number < 2 * kColourCount ? " stroke-dasharray=\"6 4\""
                                                   : " stroke-dasharray=\"2 4\"";
  return fmt::format("class=\"curve c{}\"{}", number % kColourCount, dashes);
}

/// The points that show at this width: of those in one column of pixels, the first, the lowest, the highest and the
/// last, in their order.
detail::Stretch thinned(const detail::Stretch& points, double width) {
  if (static_cast<double>(points.size()) <= 4 * width) return points;
  detail::Stretch kept;
  for (size_t begin = 0; begin < points.size();) {
    const auto column = [&](size_t k) { return std::floor(points[k].first * width); };
    size_t low = begin;
    size_t high = begin;
    size_t end = begin;
    for (; end < points.size() && column(end) == column(begin); ++end) {
      if (points[end].second < points[low].second) low = end;
      if (points[end].second > points[high].second) high = end;
    }
    size_t previous = points.size();
    for (const size_t k : {begin, std::min(low, high), std::max(low, high), end - 1}) {
      if (k != previous) kept.push_back(points[k]);
      previous = k;
    }
    begin = end;
  }
  return kept;
}

std::string grid(const detail::Axes& axes, const Box& box) {
  std::string svg;
  const auto line = [&](double x1, double y1, double x2, double y2, const char* kind) {
    svg += fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kind, x1, y1,
                       x2, y2);
  };
  for (const detail::Tick& tick : axes.y.ticks) {
    const double y = box.y(axes.y.at(tick.value));
    line(box.left, y, box.right, y, "grid");
    svg += text_at(box.left - 8, y + 4, "end", tick.label);
  }
  for (const detail::Tick& tick : axes.x.ticks) {
    const double x = box.x(axes.x.at(tick.value));
    line(x, box.top, x, box.bottom, "grid");
    svg += text_at(x, box.bottom + 18, "middle", tick.label);
  }
  line(box.left, box.bottom, box.right, box.bottom, "axis");
  line(box.left, box.top, box.left, box.bottom, "axis");
  return svg;
}

std::string curve(const Chart& chart, size_t number, const detail::Axes& axes, const Box& box) {
  std::string svg;
  for (const detail::Stretch& stretch : detail::stretches(chart, chart.series[number], axes)) {
    std::string path;
    for (const auto& [x, y] : thinned(stretch, box.right - box.left)) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", box.x(x), box.y(y));
    }
    // A point alone: a line of no length, which its round ends make a dot.
    if (stretch.size() == 1) path += "h0";
    svg += fmt::format("<path {} d=\"{}\"/>\n", look_of(number), path);
  }
  return svg;
}

std::string legend(const Chart& chart, const Box& box, double left) {
  std::string svg;
  const double step =
      std::min(20.0, (box.bottom - box.top) / static_cast<double>(std::max<size_t>(chart.series.size(), 1)));
  double y = box.top + 8;
  for (size_t k = 0; k < chart.series.size(); ++k, y += step) {
    svg += fmt::format("<path {} d=\"M{:.1f} {:.1f}h20\"/>\n", look_of(k), left, y);
    svg += text_at(left + 27, y + 4, "start", detail::clip(chart.series[k].name, kLegendCharacters));
  }
  return svg;
}

}  // namespace

std::string chart_svg(const Chart& chart, int width, int height) {
  const detail::Axes axes = detail::make_axes(chart, std::max(width / 110, 2), std::max(height / 60, 2));
  int label = 1;
  for (const detail::Tick& tick : axes.y.ticks) label = std::max(label, text_width(tick.label));
  int name = 0;
  for (const Series& series : chart.series)
    name = std::max(name, text_width(detail::clip(series.name, kLegendCharacters)));
  const double legend_width = chart.series.empty() ? 0 : 27 + kCharacter * name + 12;
  const Box box{24 + kCharacter * label + (chart.y_label.empty() ? 0 : 18), 44,
                std::max(width - 20 - legend_width, 0.4 * width), height - (chart.x_label.empty() ? 34.0 : 54.0)};

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "role=\"img\" aria-label=\"{2}\">\n<title>{2}</title>\n",
      width, height, escape_html(chart.title));
  svg += kChartStyle;
  svg += text_at(box.left, 24, "start", chart.title, " class=\"title\"");
  svg += grid(axes, box);
  if (!chart.x_label.empty()) svg += text_at(box.x(0.5), height - 14, "middle", chart.x_label);
  if (!chart.y_label.empty()) {
    svg += text_at(0, 0, "middle", chart.y_label,
                   fmt::format(" transform=\"translate(18 {:.1f})rotate(-90)\"", box.y(0.5)));
  }
  for (size_t k = 0; k < chart.series.size(); ++k) svg += curve(chart, k, axes, box);
  svg += legend(chart, box, box.right + 20);
  return svg + "</svg>\n";
}

}  // namespace lab
