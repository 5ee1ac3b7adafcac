// Event files as TensorBoard reads them: scalars over steps and texts.  Every call reaches the kernel before it
// returns, so that what was written outlives a kill.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "storage/file.hpp"

namespace lab {

/// One events.out.tfevents.<time>.<host>.<pid>.  Each start of a run writes its own, named to come after the earlier
/// ones in its folder; TensorBoard joins them.
class EventFile {
 public:
  /// Makes the folder where it is missing.  With `restart`, TensorBoard drops what earlier files hold at that step and
  /// later: give the first step that this process will write.
  explicit EventFile(const std::filesystem::path& folder, std::optional<int64_t> restart = std::nullopt);

  /// Where it is.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Points of several charts at one step: tag ("loss/train") and value.
  void scalars(int64_t step, std::span<const std::pair<std::string, double>> values);
  /// A point of one chart.
  void scalar(int64_t step, const std::string& tag, double value);
  /// Markdown, shown under the tag: the run's settings.
  void text(int64_t step, const std::string& tag, const std::string& text);

 private:
  void write(const std::string& event);

  std::filesystem::path path_;
  Descriptor file_;
  int64_t size_ = 0;
};

}  // namespace lab
