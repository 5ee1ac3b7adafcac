// Whether somebody is at work in a folder: a lock that the kernel lifts when its owner ends, however it ends.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

namespace lab {

/// An advisory lock on a folder, which stays with it when it is renamed.
class FolderLock {
 public:
  FolderLock() = default;
  /// Tries to take it.
  explicit FolderLock(const std::filesystem::path& folder)
      : file_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {
    if (file_ >= 0 && ::flock(file_, LOCK_EX | LOCK_NB) != 0) ::close(std::exchange(file_, -1));
  }
  ~FolderLock() {
    if (file_ >= 0) ::close(file_);
  }
  FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FolderLock& operator=(FolderLock&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Whether this has it: nobody else was at work there, and the file system has locks.
  [[nodiscard]] bool held() const { return file_ >= 0; }

 private:
  int file_ = -1;
};

}  // namespace lab
