// Files that a reader finds either old or whole: written beside, flushed to disk and renamed.  The few system calls
// that the rest of this folder needs, with errors that say which file and why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace lab {

/// An open file descriptor, closed at the end.
class Descriptor {
 public:
  /// open(2), with O_CLOEXEC; throws an Error that begins with the path.
  Descriptor(std::filesystem::path path, int flags);
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int number() const { return number_; }
  /// Bytes in the file.
  [[nodiscard]] int64_t size() const;
  /// Writes all of it; an Error says how many bytes were to be written.
  void write(std::span<const std::byte> bytes) const;
  /// Writes all of it in one call and says whether that succeeded; errno says why not.
  [[nodiscard]] bool write_at_once(std::string_view text) const;
  /// Cuts the file.
  void truncate(int64_t length) const;
  /// Flushes to disk.
  void sync() const;

 private:
  std::filesystem::path path_;
  int number_;
};

/// A whole file in memory, read only; pages come in as they are touched.
class MappedFile {
 public:
  /// Throws an Error that begins with the path, also where this is no plain file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// Lets `write` fill a file beside `path`, flushes it to disk and renames it.  After an Error, `path` is as it was.
void replace_file(const std::filesystem::path& path, const std::function<void(const Descriptor&)>& write);
/// The same with a text.
void write_file(const std::filesystem::path& path, std::string_view text);
/// A whole file as text.
[[nodiscard]] std::string read_file(const std::filesystem::path& path);

/// Flushes a file, or the names in a folder, to disk.
void sync_path(const std::filesystem::path& path);
/// Makes a folder and those above it, and flushes their names to disk.
void make_folders(const std::filesystem::path& folder);

}  // namespace lab
