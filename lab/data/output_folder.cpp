// A folder that appears when it is whole.
#include "data/output_folder.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "data/info.hpp"
#include "error.hpp"
#include "remove_folder.hpp"

namespace lab {

namespace fs = std::filesystem;

namespace {

/// Beside the folder: a rename must not cross file systems.
fs::path beside(const fs::path& place, std::string_view what) {
  return place.parent_path() / fmt::format(".{}.{}-{}", place.filename().native(), what, ::getpid());
}

}  // namespace

OutputFolder::OutputFolder(fs::path place, bool force) {
  if (place.empty()) fail("no folder to write to was given");
  place = fs::absolute(place).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();
  place_ = std::move(place);
  refuse_to_replace(force);
  hidden_ = beside(place_, "partial");
  std::error_code error;
  fs::create_directories(place_.parent_path(), error);
  // One of the same name is of a process that is gone.
  if (!error) error = remove_folder(hidden_);
  if (!error) fs::create_directory(hidden_, error);
  if (error) fail("cannot make the folder {}: {}", place_.native(), error.message());
}

OutputFolder::~OutputFolder() {
  if (!hidden_.empty()) (void)remove_folder(hidden_);
}

void OutputFolder::refuse_to_replace(bool force) const {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(place_, error))) return;
  if (!fs::is_directory(place_, error)) fail("{}: exists and is no folder; choose another place", place_.native());
  constexpr std::array<std::string_view, 4> kOurs{"data.json", "tokenizer.model", "train.tokens", "valid.tokens"};
  bool empty = true;
  for (const auto& entry : fs::directory_iterator(place_, error)) {
    empty = false;
    const std::string name = entry.path().filename();
    if (std::find(kOurs.begin(), kOurs.end(), name) == kOurs.end()) {
      fail("{}: holds {}, which is not part of a dataset, and is not replaced; choose another folder", place_.native(),
           name);
    }
  }
  if (error) fail("{}: {}", place_.native(), error.message());
  if (empty) return;
  if (!fs::exists(place_ / "data.json", error)) {
    fail("{}: is no dataset, and is not replaced; choose another folder", place_.native());
  }
  if (!force) fail("{}: is a dataset already; --force prepares it again", place_.native());
}

void OutputFolder::commit() {
  std::error_code error;
  // An empty folder is replaced by the rename itself.
  const bool replaces = fs::exists(place_, error) && !fs::is_empty(place_, error);
  const fs::path old = beside(place_, "replaced");
  if (replaces) fs::rename(place_, old, error);
  if (!error) {
    fs::rename(hidden_, place_, error);
    std::error_code ignored;
    if (error && replaces) fs::rename(old, place_, ignored);
    if (!error && replaces) (void)remove_folder(old);
  }
  if (error) fail("cannot make the folder {}: {}", place_.native(), error.message());
  hidden_.clear();
}

}  // namespace lab
