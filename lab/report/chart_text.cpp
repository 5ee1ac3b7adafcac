// Charts in characters.  A braille character is a raster of 2 x 4 dots, so that 15 lines of a terminal show 60 heights.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "error.hpp"
#include "report/axis.hpp"
#include "report/table.hpp"
#include "report/text.hpp"

namespace lab {
namespace {

// Colours that most terminals show well on black and on white, and the signs that stand at the ends of curves.
constexpr std::array<int, 6> kColours{34, 31, 32, 35, 33, 36};
constexpr std::string_view kMarks = "123456789abcdefghijklmnopqrstuvwxyz";

std::string painted(const std::string& text, size_t number, bool color) {
  return color ? fmt::format("\x1b[{}m{}\x1b[0m", kColours[number % kColours.size()], text) : text;
}

std::string mark_of(size_t number) { return std::string(1, kMarks[number % kMarks.size()]); }

/// Dots and marks, each of a curve.
class Canvas {
 public:
  Canvas(int columns, int rows)
      : columns_(columns), rows_(rows), cells_(static_cast<size_t>(columns) * static_cast<size_t>(rows)) {}

  [[nodiscard]] int dot_x(double share) const { return static_cast<int>(std::lround(share * (2 * columns_ - 1))); }
  [[nodiscard]] int dot_y(double share) const { return static_cast<int>(std::lround((1 - share) * (4 * rows_ - 1))); }

  void dot(int x, int y, size_t number) {
    constexpr std::array<std::array<unsigned, 2>, 4> kBits{{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};
    Cell& cell = cell_at(x / 2, y / 4);
    cell.dots |= kBits[static_cast<size_t>(y % 4)][static_cast<size_t>(x % 2)];
    cell.number = number;
  }

  /// Steps along the longer side.
  void line(int x1, int y1, int x2, int y2, size_t number) {
    const int steps = std::max({std::abs(x2 - x1), std::abs(y2 - y1), 1});
    for (int k = 0; k <= steps; ++k) {
      const double share = static_cast<double>(k) / steps;
      dot(x1 + static_cast<int>(std::lround(share * (x2 - x1))), y1 + static_cast<int>(std::lround(share * (y2 - y1))),
          number);
    }
  }

  /// Puts a curve's mark on a point of it; false where there is one already.
  bool mark(int x, int y, size_t number) {
    Cell& cell = cell_at(x / 2, y / 4);
    if (cell.marked) return false;
    cell.marked = true;
    cell.number = number;
    return true;
  }

  [[nodiscard]] std::string row(int y, bool color) const {
    std::string text;
    std::string run;  // neighbours of one colour
    int blanks = 0;   // which are written only where something follows
    for (int x = 0; x < columns_; ++x) {
      const Cell& cell = cells_[index(x, y)];
      if (cell.dots == 0 && !cell.marked) {
        ++blanks;
        continue;
      }
      text += detail::spaces(blanks);
      blanks = 0;
      if (cell.marked) {
        run += mark_of(cell.number);
      } else {
        detail::append_character(run, 0x2800 + cell.dots);
      }
      const Cell* next = x + 1 < columns_ ? &cell + 1 : nullptr;
      if (next != nullptr && next->number == cell.number && (next->dots != 0 || next->marked)) continue;
      text += painted(run, cell.number, color);
      run.clear();
    }
    return text;
  }

 private:
  struct Cell {
    unsigned dots = 0;
    size_t number = 0;
    bool marked = false;
  };
  [[nodiscard]] size_t index(int x, int y) const {
    return static_cast<size_t>(y) * static_cast<size_t>(columns_) + static_cast<size_t>(x);
  }
  Cell& cell_at(int x, int y) { return cells_[index(x, y)]; }

  int columns_;
  int rows_;
  std::vector<Cell> cells_;
};

void draw(Canvas& canvas, const Chart& chart, const detail::Axes& axes, bool color) {
  for (size_t number = 0; number < chart.series.size(); ++number) {
    for (const detail::Stretch& stretch : detail::stretches(chart, chart.series[number], axes)) {
      for (size_t k = 0; k < stretch.size(); ++k) {
        const auto& from = stretch[k == 0 ? 0 : k - 1];
        canvas.line(canvas.dot_x(from.first), canvas.dot_y(from.second), canvas.dot_x(stretch[k].first),
                    canvas.dot_y(stretch[k].second), number);
      }
    }
  }
  if (color || chart.series.size() < 2) return;
  // From the end backwards to the first place that is free.
  for (size_t number = 0; number < chart.series.size(); ++number) {
    const auto all = detail::stretches(chart, chart.series[number], axes);
    bool marked = false;
    for (auto stretch = all.rbegin(); stretch != all.rend() && !marked; ++stretch) {
      for (auto point = stretch->rbegin(); point != stretch->rend() && !marked; ++point) {
        marked = canvas.mark(canvas.dot_x(point->first), canvas.dot_y(point->second), number);
      }
    }
  }
}

/// The line of ticks under the plot and their labels, which never touch each other.
std::string bottom(const detail::Axis& axis, int margin, int columns) {
  std::string rule;
  std::vector<bool> ticks(static_cast<size_t>(columns), false);
  std::string labels;
  int used = 0;
  for (const detail::Tick& tick : axis.ticks) {
    const auto column = static_cast<int>(std::lround(axis.at(tick.value) * (columns - 1)));
    const int width = text_width(tick.label);
    const int begin = std::clamp(margin + 1 + column - width / 2, 0, std::max(margin + 1 + columns - width, 0));
    ticks[static_cast<size_t>(std::clamp(column, 0, columns - 1))] = true;
    if (begin < used + (used > 0 ? 1 : 0)) continue;
    labels += detail::spaces(begin - used) + tick.label;
    used = begin + width;
  }
  for (const bool tick : ticks) rule += tick ? "┬" : "─";
  return detail::spaces(margin) + "└" + rule + "\n" + labels + "\n";
}

std::string legend(const Chart& chart, int margin, int width, bool color) {
  std::string text;
  int used = 0;
  for (size_t k = 0; k < chart.series.size(); ++k) {
    const std::string name = detail::clip(chart.series[k].name, std::max(width - margin - 4, 8));
    const int needed = 2 + text_width(name);
    if (used > 0 && used + 3 + needed > width) {
      text += "\n";
      used = 0;
    }
    text += used == 0 ? detail::spaces(margin + 1) : "   ";
    used += used == 0 ? margin + 1 : 3;
    const std::string sign = color || chart.series.size() < 2 ? "━" : mark_of(k);
    text += painted(sign, k, color) + " " + name;
    used += needed;
  }
  return text.empty() ? text : text + "\n";
}

}  // namespace

std::string chart_text(const Chart& chart, int width, int height, bool color) {
  const int rows = std::max(height, 3);
  detail::Axes axes = detail::make_axes(chart, std::max(width / 13, 2), std::max(rows / 3, 2));
  int margin = 1;
  for (const detail::Tick& tick : axes.y.ticks) margin = std::max(margin, text_width(tick.label) + 1);
  const int columns = std::max(width - margin - 1, 10);
  Canvas canvas(columns, rows);
  draw(canvas, chart, axes, color);

  std::string text;
  if (!chart.title.empty()) text += detail::clip(chart.title, width) + "\n";
  if (!chart.y_label.empty()) text += detail::clip(chart.y_label, width) + "\n";
  for (int row = 0; row < rows; ++row) {
    const auto tick = std::find_if(axes.y.ticks.begin(), axes.y.ticks.end(),
                                   [&](const detail::Tick& t) { return canvas.dot_y(axes.y.at(t.value)) / 4 == row; });
    const std::string label = tick == axes.y.ticks.end() ? "" : tick->label + " ";
    text += detail::spaces(margin - text_width(label)) + label + (label.empty() ? "│" : "┤") + canvas.row(row, color) +
            "\n";
  }
  text += bottom(axes.x, margin, columns);
  if (!chart.x_label.empty()) {
    const std::string label = detail::clip(chart.x_label, columns);
    text += detail::spaces(margin + 1 + (columns - text_width(label)) / 2) + label + "\n";
  }
  return text + legend(chart, margin, width, color);
}

}  // namespace lab
