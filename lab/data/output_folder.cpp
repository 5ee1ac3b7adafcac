// A folder that appears when it is whole.  Beside its place NAME lie, hidden, .NAME.partial-PID while a process fills
// it and, where the file system cannot exchange two folders, .NAME.replaced-PID for the moment between two renames.
#include "data/output_folder.hpp"

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include "data/info.hpp"
#include "error.hpp"
#include "remove_folder.hpp"

namespace lab {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPartial = "partial", kReplaced = "replaced";

/// What hidden folders of this kind begin with.
std::string stem(const fs::path& place, std::string_view kind) {
  return fmt::format(".{}.{}-", place.filename().native(), kind);
}

/// Beside the folder: a rename must not cross file systems.
fs::path beside(const fs::path& place, std::string_view kind) {
  return place.parent_path() / (stem(place, kind) + std::to_string(::getpid()));
}

/// Without links, ".." and a slash at the end.
fs::path real_place(const fs::path& given) {
  if (given.empty()) fail("no folder to write to was given");
  std::error_code error;
  fs::path place = fs::weakly_canonical(fs::absolute(given), error);
  if (error) fail("{}: {}; choose another folder", given.native(), error.message());
  if (!place.has_filename() && place != place.root_path()) place = place.parent_path();
  if (fs::is_symlink(place, error)) fail("{}: a link that leads nowhere; choose another folder", given.native());
  return place;
}

/// Whether a path is `folder` or lies in it.
bool is_in(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(fs::absolute(path), error);
  return !error && std::mismatch(folder.begin(), folder.end(), real.begin(), real.end()).first == folder.end();
}

/// A folder on which another file system is mounted cannot be renamed.
bool is_mounted(const fs::path& folder) {
  struct stat own {
  }, above{};
  return ::stat(folder.c_str(), &own) == 0 && ::stat(folder.parent_path().c_str(), &above) == 0 &&
         own.st_dev != above.st_dev;
}

/// Folders whose loss nobody asked for, whatever is in them.
void refuse_what_others_need(const fs::path& place, const std::vector<fs::path>& inputs) {
  const auto refuse = [&](const std::string& why) {
    fail("{}: {}, and the dataset would take its place; name a new folder, such as {}", place.native(), why,
         (place / "data").native());
  };
  std::error_code error;
  if (!fs::exists(place, error)) return;
  if (place == place.root_path()) refuse("the root of the file system");
  if (is_in(fs::current_path(), place)) refuse("the current folder, or one above it");
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0' && is_in(home, place)) refuse("your home folder, or one above it");
  for (const fs::path& input : inputs) {
    if (fs::is_directory(place, error) && is_in(input, place))
      refuse(fmt::format("{} of the text is there", input.native()));
  }
  if (is_mounted(place)) refuse("another file system is mounted there");
}

bool is_alive(pid_t process) { return ::kill(process, 0) == 0 || errno == EPERM; }

/// Hidden folders of processes that are gone: what was set aside gets its name back if nothing took its place, the rest
/// is removed.  Where it is not sure that the process is gone, nothing is done: it may run on another machine.
void tidy(const fs::path& place) {
  std::error_code error;
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(place.parent_path(), error)) all.push_back(entry.path());
  for (const fs::path& path : all) {
    for (const std::string_view kind : {kReplaced, kPartial}) {
      const std::string name = path.filename(), begin = stem(place, kind);
      pid_t process = 0;
      const char* const end = name.data() + name.size();
      if (!name.starts_with(begin) || std::from_chars(name.data() + begin.size(), end, process).ptr != end) continue;
      if (process != ::getpid() && is_alive(process)) continue;
      const FolderLock lock(path);
      if (!lock.held()) continue;
      if (kind == kReplaced && !fs::exists(fs::symlink_status(place, error))) {
        fs::rename(path, place, error);
      } else {
        (void)remove_folder(path);
      }
    }
  }
}

/// Flushes the names in a folder to disk, where the file system can.
void sync_folder(const fs::path& folder) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  (void)::fsync(file);
  ::close(file);
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& place, const std::vector<fs::path>& inputs, bool force)
    : force_(force), place_(real_place(place)) {
  refuse_what_others_need(place_, inputs);
  tidy(place_);
  refuse_to_replace();
  std::error_code error;
  fs::create_directories(place_.parent_path(), error);
  const fs::path hidden = beside(place_, kPartial);
  if (!error && !fs::create_directory(hidden, error) && !error) error = std::make_error_code(std::errc::file_exists);
  if (error) fail("cannot make the folder {}: {}", place_.native(), error.message());
  hidden_ = hidden;
  lock_ = FolderLock(hidden_);
}

OutputFolder::~OutputFolder() {
  if (!hidden_.empty()) (void)remove_folder(hidden_);
}

void OutputFolder::refuse_to_replace() const {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(place_, error))) return;
  if (!fs::is_directory(place_, error)) fail("{}: exists and is no folder; choose another place", place_.native());
  constexpr std::array<std::string_view, 4> kOurs{"data.json", "tokenizer.model", "train.tokens", "valid.tokens"};
  bool empty = true;
  for (const auto& entry : fs::directory_iterator(place_, error)) {
    empty = false;
    const std::string name = entry.path().filename();
    if (std::find(kOurs.begin(), kOurs.end(), name) == kOurs.end() || !fs::is_regular_file(entry.symlink_status())) {
      fail("{}: holds {}, which is not part of a dataset, and is not replaced; choose another folder", place_.native(),
           name);
    }
  }
  if (error) fail("{}: {}", place_.native(), error.message());
  if (empty) return;
  if (!is_dataset(place_)) fail("{}: is no dataset, and is not replaced; choose another folder", place_.native());
  if (!force_) fail("{}: is a dataset already; --force prepares it again", place_.native());
}

void OutputFolder::put_in_place(bool exchange) {
  std::error_code error;
  // An empty folder is replaced by the rename itself.
  const bool replaces = fs::exists(place_, error) && !fs::is_empty(place_, error);
  if (replaces && exchange && ::renameat2(AT_FDCWD, hidden_.c_str(), AT_FDCWD, place_.c_str(), RENAME_EXCHANGE) == 0) {
    return;  // the old one is hidden now, and is removed as what was not committed is
  }
  const fs::path old = beside(place_, kReplaced);
  const FolderLock lock(place_);
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

void OutputFolder::commit(bool exchange) {
  refuse_to_replace();  // again: much may have happened since
  sync_folder(hidden_);
  put_in_place(exchange);
  sync_folder(place_.parent_path());
  if (!hidden_.empty()) (void)remove_folder(hidden_);
  hidden_.clear();
}

}  // namespace lab
