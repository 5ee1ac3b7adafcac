// came-lab compare: runs side by side, as a table, as curves in the terminal and as one HTML page.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "commands/commands.hpp"
#include "error.hpp"
#include "report/chart.hpp"
#include "report/page.hpp"
#include "report/table.hpp"
#include "storage/file.hpp"
#include "storage/json_lines.hpp"
#include "train/progress.hpp"
#include "train/run_files.hpp"
#include "train/snapshot.hpp"

namespace lab {
namespace {

constexpr const char* kUnits =
    "Losses in nats per predicted token; the unigram baseline is a model that knows only token frequencies.";

struct CompareArguments {
  std::vector<std::string> runs;
  std::string html, svg;
};

struct RunFiles {
  std::string name;
  TrainConfig config;
  std::vector<nlohmann::json> metrics;
  nlohmann::json result;  // null while it is not done
};

// What has no number in it is no result, and not one of 0.
nlohmann::json read_result(const std::filesystem::path& folder) {
  const auto path = folder / kResultFile;
  auto result = nlohmann::json::parse(read_file(path), nullptr, false);
  const auto has = [&](const char* key) { return result.contains(key) && result.at(key).is_number(); };
  for (const char* key : {"valid_loss", "perplexity", "unigram_loss", "state_bytes", "parameters"}) {
    if (!result.is_object() || !has(key)) {
      fail("{}: {}, so not what came-lab train writes; came-lab train --resume {} writes it again", path.string(),
           result.is_object() ? fmt::format("{} is no number", key) : "not a JSON object", folder.string());
    }
  }
  return result;
}

RunFiles read_run(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / kConfigFile)) fail("{}: no run there", folder.string());
  RunFiles run;
  run.name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  read_config(run.config, folder / kConfigFile);
  if (std::filesystem::exists(folder / kMetricsFile)) run.metrics = read_json_lines(folder / kMetricsFile);
  for (const auto& entry : run.metrics) {
    if (!entry.contains("step") || !entry.at("step").is_number())
      fail("{}: an entry without a step; not what came-lab train writes", (folder / kMetricsFile).string());
  }
  if (std::filesystem::exists(folder / kResultFile)) run.result = read_result(folder);
  return run;
}

// One curve of a run: the entries of metrics.jsonl that have `key`.
Series curve(const RunFiles& run, const char* key) {
  Series series{run.name, {}, {}};
  for (const auto& entry : run.metrics) {
    if (!entry.contains(key) || !entry.at(key).is_number()) continue;
    series.x.push_back(entry.at("step").get<double>());
    series.y.push_back(entry.at(key).get<double>());
  }
  return series;
}

Chart chart_of(const std::vector<RunFiles>& runs, const char* key, const char* title) {
  Chart chart{title, "step", "nats per token", false, false, {}};
  for (const RunFiles& run : runs) chart.series.push_back(curve(run, key));
  return chart;
}

Table table_of(const std::vector<RunFiles>& runs) {
  Table table{"",
              {"run", "optimizer", "lr", "validation loss", "perplexity", "unigram baseline", "ms per step",
               "optimizer share", "state bytes", "bytes per parameter"},
              {}};
  for (const RunFiles& run : runs) {
    const auto rate = fmt::format("{:g}", run.config.lr);
    if (run.result.is_null()) {
      table.rows.push_back({run.name, run.config.optimizer, rate, "-"});
      continue;
    }
    const auto number = [&](const char* key) { return run.result.at(key).get<double>(); };
    // Times are lost with timing.jsonl.
    const auto timed = [&](const char* key, double scale, const char* unit) {
      const auto found = run.result.find(key);
      const bool known = found != run.result.end() && found->is_number();
      return known ? fmt::format("{:.1f}{}", scale * found->get<double>(), unit) : "-";
    };
    table.rows.push_back({run.name, run.config.optimizer, rate, fmt::format("{:.4f}", number("valid_loss")),
                          fmt::format("{:.2f}", number("perplexity")), fmt::format("{:.4f}", number("unigram_loss")),
                          timed("seconds_per_step", 1e3, ""), timed("optimizer_share", 100, " %"),
                          count_text(number("state_bytes"), 1024),
                          fmt::format("{:.2f}", number("state_bytes") / std::max(1.0, number("parameters")))});
  }
  return table;
}

void run_compare(const CompareArguments& given) {
  std::vector<RunFiles> runs;
  for (const std::string& folder : given.runs) runs.push_back(read_run(folder));
  const Table table = table_of(runs);
  const Chart valid = chart_of(runs, "valid_loss", "Validation loss"),
              training = chart_of(runs, "loss", "Training loss");
  fmt::print("{}\n{}{}\n", chart_text(valid, 80, 15, isatty(STDOUT_FILENO) != 0), table_text(table), kUnits);
  if (!given.svg.empty()) {
    write_file(given.svg, chart_svg(valid));
    fmt::print("curves: {}\n", given.svg);
  }
  if (given.html.empty()) return;
  Page page("came-lab: " + runs.front().config.model);
  page.table(table);
  page.note(kUnits);
  page.chart(valid);
  page.chart(training);
  for (const RunFiles& one : runs) {
    page.section(one.name);
    page.code(config_text(one.config));
  }
  write_file(given.html, page.html());
  fmt::print("report: {}\n", given.html);
}

}  // namespace

void add_compare(CLI::App& program) {
  CLI::App* command = program.add_subcommand("compare", "Show several runs in one table and one picture");
  command->footer(
      "Example:\n  came-lab compare runs/gpt2-tiny-came runs/gpt2-tiny-adamw --html compare.html --svg curves.svg\n");
  auto given = std::make_shared<CompareArguments>();
  command->add_option("runs", given->runs, "folders of runs")->required();
  command->add_option("--html", given->html, "write all of it as one page");
  command->add_option("--svg", given->svg, "write the validation curves as a picture");
  command->callback([given] { run_compare(*given); });
}

}  // namespace lab
