// Ticks are 1, 2 or 5 times a power of ten; a logarithmic axis over several decades has powers of ten alone.
#include "report/axis.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "error.hpp"

namespace lab::detail {
namespace {

/// Larger numbers are no loss that can be drawn, and their differences overflow.
constexpr double kMost = 1e300;
constexpr double kRoom = 0.03;  // above and below the curves

bool drawable(double value, bool log) { return std::abs(value) <= kMost && (!log || value >= 1 / kMost); }

/// A range that is wide enough to be divided.
void widen(double& low, double& high, bool log) {
  if (log) {
    if (high / low < 1.001) {
      low /= 1.1;
      high *= 1.1;
    }
    return;
  }
  const double size = std::max(std::abs(low), std::abs(high));
  if (high - low <= std::max(1e-9 * size, 1e-30)) {
    const double pad = std::max(0.1 * size, 1e-12);
    low -= pad;
    high += pad;
  }
}

/// The round step that divides a range into about so many.
double round_step(double range, int count) {
  const double rough = range / std::max(count, 1);
  const double unit = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * unit >= 0.75 * rough) return factor * unit;
  }
  return 10 * unit;
}

/// Numbers like 20k and 1.5M, with the decimals that tell one step from the next.
std::string label_of(double value, double step, double size) {
  if (std::abs(value) < step * 1e-6) return "0";
  if (size < 0.9e-3 || size >= 1e12) return fmt::format("{:.3g}", value);
  struct Suffix {
    double from;
    double scale;
    const char* text;
  };
  constexpr std::array<Suffix, 4> kSuffixes{{{1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {2e3, 1e3, "k"}, {0, 1, ""}}};
  const auto* suffix =
      std::find_if(kSuffixes.begin(), kSuffixes.end(), [&](const Suffix& s) { return size >= s.from; });
  const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(step / suffix->scale) - 1e-9)), 0, 12);
  return fmt::format("{:.{}f}{}", value / suffix->scale, decimals, suffix->text);
}

std::vector<Tick> linear_ticks(double low, double high, double step) {
  std::vector<Tick> ticks;
  const double size = std::max(std::abs(low), std::abs(high));
  const double slack = 1e-6 * step;
  for (double k = std::ceil((low - slack) / step); k * step <= high + slack; ++k) {
    ticks.push_back({k * step, label_of(k * step, step, size)});
  }
  return ticks;
}

std::vector<Tick> log_ticks(double low, double high, int count) {
  // Within one decade, the round numbers of a linear axis.
  if (high / low < 10) return linear_ticks(low, high, round_step(high - low, count));
  std::vector<Tick> ticks;
  const auto first = static_cast<int>(std::floor(std::log10(low)));
  const auto last = static_cast<int>(std::ceil(std::log10(high)));
  const int every = std::max(1, (last - first + count - 1) / std::max(count, 1));
  const bool decades = std::log10(high / low) >= 2;
  for (int power = first; power <= last; ++power) {
    for (const int factor : {1, 2, 5}) {
      const double value = factor * std::pow(10, power);
      if (decades && (factor != 1 || (power - first) % every != 0)) continue;
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9))
        ticks.push_back({value, label_of(value, value, value)});
    }
  }
  return ticks;
}

Axis make_axis(double low, double high, bool log, int count, double room) {
  if (low > high) {  // no point at all
    low = log ? 1 : 0;
    high = log ? 10 : 1;
  }
  widen(low, high, log);
  if (log) {
    const double factor = std::pow(high / low, room);
    low /= factor;
    high *= factor;
    return {log, low, high, log_ticks(low, high, count)};
  }
  const double pad = room * (high - low);
  low = low >= 0 ? std::max(low - pad, 0.0) : low - pad;  // a loss is not negative, nor is its axis
  high += pad;
  return {log, low, high, linear_ticks(low, high, round_step(high - low, count))};
}

/// Calls with each point, and with whether it can be drawn.
template <class Function>
void for_each_point(const Chart& chart, const Series& series, Function function) {
  const size_t count = std::min(series.x.size(), series.y.size());
  for (size_t k = 0; k < count; ++k) {
    function(series.x[k], series.y[k], drawable(series.x[k], chart.log_x) && drawable(series.y[k], chart.log_y));
  }
}

}  // namespace

double Axis::at(double value) const {
  if (log) return std::log(value / low) / std::log(high / low);
  return (value - low) / (high - low);
}

Axes make_axes(const Chart& chart, int x_ticks, int y_ticks) {
  double x_low = 2 * kMost;
  double y_low = 2 * kMost;
  double x_high = -x_low;
  double y_high = -y_low;
  for (const Series& series : chart.series) {
    for_each_point(chart, series, [&](double x, double y, bool good) {
      if (!good) return;
      x_low = std::min(x_low, x);
      x_high = std::max(x_high, x);
      y_low = std::min(y_low, y);
      y_high = std::max(y_high, y);
    });
  }
  return {make_axis(x_low, x_high, chart.log_x, x_ticks, 0), make_axis(y_low, y_high, chart.log_y, y_ticks, kRoom)};
}

std::vector<Stretch> stretches(const Chart& chart, const Series& series, const Axes& axes) {
  std::vector<Stretch> all;
  bool open = false;
  for_each_point(chart, series, [&](double x, double y, bool good) {
    if (good && !open) all.emplace_back();
    if (good) all.back().emplace_back(std::clamp(axes.x.at(x), 0.0, 1.0), std::clamp(axes.y.at(y), 0.0, 1.0));
    open = good;
  });
  return all;
}

}  // namespace lab::detail
