// A page with awkward text for the Python tests to parse: came_lab_probe_report [page|chart]
#include <cmath>
#include <iostream>

#include "report/page.hpp"

int main(int count, char** words) {
  const std::string awkward = "<b>\"x\" & 'y'</b> \x01\xFF é日本 ]]> <!-- --";
  lab::Chart chart{awkward, awkward, awkward, false, true, {}};
  for (int k = 0; k < 10; ++k) {
    lab::Series series{awkward + std::to_string(k), {}, {}};
    for (int step = 0; step < 100; ++step) {
      series.x.push_back(step);
      series.y.push_back(step == 50 ? NAN : 1 + k + std::exp(-0.1 * step));
    }
    chart.series.push_back(series);
  }
  if (count > 1 && words[1] == std::string("chart")) {
    std::cout << lab::chart_svg(chart);
    return 0;
  }
  lab::Page page(awkward);
  page.note(awkward + "\n\n" + awkward);
  page.section(awkward);
  page.chart(chart);
  page.table({awkward, {awkward, "n"}, {{awkward, "1"}, {"", "2"}}});
  std::cout << page.html();
  return 0;
}
