// A folder that appears when it is whole: it is filled under another name beside its place, and renamed at the end.
#pragma once

#include <filesystem>
#include <vector>

#include "data/folder_lock.hpp"

namespace lab {

class OutputFolder {
 public:
  /// Makes the hidden folder, and removes those that killed processes left.  A link is followed: the folder that it
  /// leads to is the one that is replaced.  Throws an Error where there is something at `place` that may not be: a
  /// dataset unless `force`; anything else that is not an empty folder; and always the folder that one of `inputs`, the
  /// current folder or the user's home is, or is in.
  OutputFolder(const std::filesystem::path& place, const std::vector<std::filesystem::path>& inputs, bool force);
  /// Removes what was not committed.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  /// Where to write.
  [[nodiscard]] const std::filesystem::path& path() const { return hidden_; }
  /// Puts the folder in its place; what was there is removed after.  With `exchange`, there is a folder at every
  /// moment, where the file system can do that.
  void commit(bool exchange = true);

 private:
  void refuse_to_replace() const;
  void put_in_place(bool exchange);

  bool force_;
  std::filesystem::path place_, hidden_;
  FolderLock lock_;
};

}  // namespace lab
