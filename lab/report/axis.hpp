// Private to lab/report: from values to places on paper, and the round numbers beside an axis.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/chart.hpp"

namespace lab::detail {

struct Tick {
  double value;
  std::string label;
};

/// One axis: what it spans and where its ticks are.
struct Axis {
  bool log = false;
  double low = 0;
  double high = 1;
  std::vector<Tick> ticks;

  /// Where a value lies: 0 at the low end, 1 at the high end.
  [[nodiscard]] double at(double value) const;
};

/// Both axes of a chart, with about so many ticks each.  Across end to end, upwards with a little room at both ends.
struct Axes {
  Axis x;
  Axis y;
};
[[nodiscard]] Axes make_axes(const Chart& chart, int x_ticks, int y_ticks);

/// Points of a curve as places from 0 to 1, in stretches without interruption.
using Stretch = std::vector<std::pair<double, double>>;
[[nodiscard]] std::vector<Stretch> stretches(const Chart& chart, const Series& series, const Axes& axes);

}  // namespace lab::detail
