// Charts: ticks, what is drawn where, and what interrupts a curve.
#include "report/chart.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "report/axis.hpp"
#include "report/page.hpp"

namespace lab_test {
namespace {

using lab::Chart;
using lab::Series;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Chart line_chart(std::vector<double> x, std::vector<double> y, bool log_x = false, bool log_y = false) {
  return {"title", "x", "y", log_x, log_y, {{"curve", std::move(x), std::move(y)}}};
}

std::string labels(const lab::detail::Axis& axis) {
  std::string text;
  for (const auto& tick : axis.ticks) text += (text.empty() ? "" : " ") + tick.label;
  return text;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

std::string ticks_of(double low, double high, bool log = false) {
  return labels(lab::detail::make_axes(line_chart({low, high}, {1, 2}, log), 5, 5).x);
}

TEST(Chart, TicksAreRoundNumbers) {
  EXPECT_EQ(ticks_of(0, 1), "0 0.2 0.4 0.6 0.8 1.0");
  EXPECT_EQ(ticks_of(0, 20000), "0 5k 10k 15k 20k");
  EXPECT_EQ(ticks_of(0, 2500000), "0 0.5M 1.0M 1.5M 2.0M 2.5M");
  EXPECT_EQ(ticks_of(-3, 3), "-3 -2 -1 0 1 2 3");
  EXPECT_EQ(ticks_of(2.93, 3.11), "2.95 3.00 3.05 3.10");
  EXPECT_EQ(ticks_of(0, 3e-5), "0 5e-06 1e-05 1.5e-05 2e-05 2.5e-05 3e-05");
  EXPECT_EQ(ticks_of(1, 1e6, true), "1 100 10k 1M");
  EXPECT_EQ(ticks_of(1, 50, true), "1 2 5 10 20 50");
  EXPECT_EQ(ticks_of(3, 7, true), "3 4 5 6 7");
}

TEST(Chart, EveryRangeHasTicksInside) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {5, 5}, {0, 0}, {-7, -7}, {1e-300, 1e-299}, {-1e300, 1e300}, {1e15, 1e15 + 2}, {1e-9, 1e9}, {-1e-5, 1e-7}}) {
    for (const bool log : {false, true}) {
      const auto axis = lab::detail::make_axes(line_chart({low, high}, {1, 2}, log), 5, 5).x;
      EXPECT_GE(axis.ticks.size(), 1U) << low << " " << high;
      EXPECT_LE(axis.ticks.size(), 40U) << low << " " << high;
      EXPECT_LT(axis.low, axis.high);
      for (const auto& tick : axis.ticks) {
        EXPECT_GE(axis.at(tick.value), -1e-3) << tick.label;
        EXPECT_LE(axis.at(tick.value), 1 + 1e-3) << tick.label;
      }
    }
  }
}

TEST(Chart, WhatCannotBeDrawnInterruptsTheCurve) {
  const Chart chart = line_chart({1, 2, 3, 4, 5, 6, 7}, {1, 2, kNan, 4, kInf, 6, 7});
  const auto axes = lab::detail::make_axes(chart, 5, 5);
  const auto parts = lab::detail::stretches(chart, chart.series[0], axes);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].size(), 2U);
  EXPECT_EQ(parts[1].size(), 1U);
  EXPECT_EQ(parts[2].back().first, 1.0);
  const std::string svg = lab::chart_svg(chart);
  EXPECT_EQ(count(svg, "<path class=\"curve c0\""), 4U);  // and its sign in the legend
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  const Chart log = line_chart({-1, 0, 1, 2}, {1, 2, 3, 0}, true, true);
  EXPECT_EQ(lab::detail::stretches(log, log.series[0], lab::detail::make_axes(log, 5, 5)).size(), 1U);
}

TEST(Chart, PutsPointsWhereTheAxesSay) {
  const std::string svg = lab::chart_svg(line_chart({0, 1}, {0, 1}), 500, 300);
  const size_t at = svg.find("<path class=\"curve c0\" d=\"M") + 27;
  double x1 = 0;
  double y1 = 0;
  double x2 = 0;
  double y2 = 0;
  ASSERT_EQ(std::sscanf(svg.c_str() + at, "%lf %lfL%lf %lf", &x1, &y1, &x2, &y2), 4) << svg.substr(at, 60);
  EXPECT_LT(x1, x2);
  EXPECT_GT(y1, y2);  // upwards is towards 0
  EXPECT_GT(x1, 20);
  EXPECT_LT(x2, 480);
  EXPECT_GT(y2, 40);
  EXPECT_LT(y1, 260);
}

TEST(Chart, ThinsLongCurvesButKeepsTheirPeaksAndDips) {
  Series series{"long", {}, {}};
  for (int k = 0; k < 200000; ++k) {
    series.x.push_back(k);
    series.y.push_back(k == 123456 ? 100 : k == 123460 ? -100 : std::sin(k));
  }
  const Chart chart{"", "", "", false, false, {series}};
  const std::string svg = lab::chart_svg(chart);
  EXPECT_LT(svg.size(), 80000U);
  // Both in one column of pixels, at the ends of the axis.
  const auto axes = lab::detail::make_axes(chart, 5, 5);
  for (const double value : {100.0, -100.0}) {
    char place[16];
    std::snprintf(place, sizeof place, " %.1fL", 44 + (1 - axes.y.at(value)) * (420 - 34 - 44));
    EXPECT_GE(count(svg, place), 1U) << value;
  }
}

TEST(Chart, EscapesAllText) {
  const Chart chart{"<t>", "<x>", "<y>", false, false, {{"<s>&\"", {1, 2}, {3, 4}}}};
  const std::string svg = lab::chart_svg(chart);
  for (const char* text : {"<t>", "<x>", "<y>", "<s>"}) EXPECT_EQ(svg.find(text), std::string::npos) << text;
  for (const char* text : {"&lt;t&gt;", "&lt;x&gt;", "&lt;y&gt;", "&lt;s&gt;&amp;&quot;"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
}

TEST(Chart, CurvesAfterTheEighthAreDashed) {
  Chart chart{"", "", "", false, false, {}};
  for (int k = 0; k < 9; ++k) chart.series.push_back({"s" + std::to_string(k), {0, 1}, {0, 1.0 * k}});
  EXPECT_EQ(count(lab::chart_svg(chart), "class=\"curve c0\" stroke-dasharray"), 2U);
  EXPECT_EQ(count(lab::chart_svg(chart), "stroke-dasharray"), 2U);
}

TEST(Chart, IsDrawnInTheTerminal) {
  const Chart chart{"Loss", "step", "nats", false, false, {{"up", {0, 10}, {0, 9}}, {"down", {0, 10}, {9, 0}}}};
  EXPECT_EQ(lab::chart_text(chart, 24, 5),
            "Loss\n"
            "nats\n"
            "  │⠒⠤⣀               ⣀⠤1\n"
            "  │   ⠉⠒⠢⢄⡀     ⢀⡠⠔⠒⠉\n"
            "5 ┤       ⠈⠉⣒⠤⣒⠉⠁\n"
            "  │    ⣀⡠⠔⠊⠉   ⠉⠑⠢⢄⣀\n"
            "0 ┤⣀⠤⠒⠉             ⠉⠒⠤2\n"
            "  └┬─────────┬─────────┬\n"
            "   0         5        10\n"
            "           step\n"
            "   1 up   2 down\n");
}

TEST(Chart, CurvesThatEndTogetherEachHaveTheirMark) {
  const Chart chart{"", "", "", false, false, {{"a", {3, 4, 5}, {3, 4, 5}}, {"b", {3, 4, 5}, {3, 4, 5}}}};
  const std::string text = lab::chart_text(chart, 40, 6);
  EXPECT_EQ(count(text, "1"), 2U) << text;  // on the curve and in the legend
  EXPECT_EQ(count(text, "2"), 2U) << text;
}

TEST(Chart, InTheTerminalKeepsToItsSize) {
  Chart chart{std::string(300, 't'), std::string(300, 'x'), "y", false, true, {}};
  for (int k = 0; k < 12; ++k) {
    Series series{"a long name of curve " + std::to_string(k) + std::string(100, '.'), {}, {}};
    for (int step = 0; step < 50; ++step) {
      series.x.push_back(step);
      series.y.push_back(std::exp(0.1 * k * step));
    }
    chart.series.push_back(series);
  }
  for (const int width : {20, 60, 100}) {
    const std::string text = lab::chart_text(chart, width, 15);
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      ASSERT_NE(end, std::string::npos);
      EXPECT_LE(lab::text_width(text.substr(at, end - at)), width) << text.substr(at, end - at);
      at = end + 1;
    }
    EXPECT_EQ(count(text, "│") + count(text, "┤"), 15U);
  }
}

TEST(Chart, ColoursReplaceTheMarks) {
  const Chart chart{"", "", "", false, false, {{"a", {0, 1}, {0, 1}}, {"b", {0, 1}, {1, 0}}}};
  const std::string text = lab::chart_text(chart, 40, 6, true);
  EXPECT_NE(text.find("\x1b[34m━\x1b[0m a   \x1b[31m━\x1b[0m b"), std::string::npos) << text;
  EXPECT_EQ(text.find("1 a"), std::string::npos);
  EXPECT_EQ(lab::chart_text(chart, 40, 6).find('\x1b'), std::string::npos);
}

TEST(Chart, CanBeEmpty) {
  EXPECT_NE(lab::chart_svg({}).find("</svg>"), std::string::npos);
  EXPECT_EQ(count(lab::chart_text({}, 40, 5), "\n"), 7U);
  const Chart nothing = line_chart({1, 2}, {kNan, kNan}, true, true);
  EXPECT_NE(lab::chart_svg(nothing).find("</svg>"), std::string::npos);
  EXPECT_NE(lab::chart_text(nothing).find("curve"), std::string::npos);
}

TEST(Page, HoldsItsPartsInOrderAndNeedsNothingElse) {
  lab::Page page("Runs & <results>");
  page.note("first <p>\nline\n\n\n\nsecond");
  page.section("Curves <1>");
  page.chart(line_chart({0, 1}, {2, 3}));
  page.table({"T", {"a"}, {{"<b>"}}});
  const std::string html = page.html();
  size_t at = 0;
  for (const char* part :
       {"<!DOCTYPE html>", "<title>Runs &amp; &lt;results&gt;</title>", "<h1>Runs &amp; &lt;results&gt;</h1>",
        "<p>first &lt;p&gt;\nline</p>\n<p>second</p>", "<h2>Curves &lt;1&gt;</h2>", "<svg ", "</svg>", "<table>",
        "&lt;b&gt;", "</body>\n</html>\n"}) {
    at = html.find(part, at);
    ASSERT_NE(at, std::string::npos) << part;
  }
  for (const char* outside : {"<script", "<link", "src=", "url(", "@import"}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
}

}  // namespace
}  // namespace lab_test
