// A folder that appears when it is whole: it is filled under another name beside its place, and renamed at the end.
#pragma once

#include <filesystem>

namespace lab {

class OutputFolder {
 public:
  /// Makes the hidden folder.  Throws an Error where there is something at `place` that may not be replaced: a dataset
  /// unless `force`, and anything else that is not an empty folder.
  OutputFolder(std::filesystem::path place, bool force);
  /// Removes what was not committed.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Where to write.
  [[nodiscard]] const std::filesystem::path& path() const { return hidden_; }
  /// Puts the folder in its place; what was there is removed after.
  void commit();

 private:
  void refuse_to_replace(bool force) const;

  std::filesystem::path place_, hidden_;
};

}  // namespace lab
