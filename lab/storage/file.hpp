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
#include <vector>

namespace lab {

/// An open file, closed at the end.  Errors begin with its path.
class Descriptor {
 public:
  /// open(2) with these flags, closed on exec.  Errors name `shown` where that is another path.
  Descriptor(const std::filesystem::path& path, int flags, const std::filesystem::path& shown = {});
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&&) = delete;

  [[nodiscard]] int number() const { return number_; }
  /// Bytes in the file.
  [[nodiscard]] int64_t size() const;
  /// Fills `bytes` as far as the file goes; returns how far.
  [[nodiscard]] size_t read(std::span<std::byte> bytes) const;
  /// The byte at this offset, which the file has.
  [[nodiscard]] std::byte byte_at(int64_t offset) const;
  /// Takes space for so many bytes in all, where the filesystem can, so that a full disk is noticed before anything is
  /// written.
  void reserve(int64_t bytes) const;
  /// Writes all of it; an Error says how many bytes there were to write.
  void write(std::span<const std::byte> bytes) const;
  /// Appends it in one call or, after an Error, not at all; `size` is the file's.
  void append(std::string_view text, int64_t size) const;
  /// Cuts the file.
  void truncate(int64_t length) const;
  /// Flushes to disk.
  void sync() const;

 private:
  std::string path_;
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
  MappedFile(MappedFile&&) = delete;
  MappedFile& operator=(MappedFile&&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// Lets `write` fill a file beside `path`, flushes it to disk and renames it.  After an Error, `path` is as it was.
/// Where `path` is a link, all this happens where it leads to.
void replace_file(const std::filesystem::path& path, const std::function<void(const Descriptor&)>& write);
/// The same with a text.
void write_file(const std::filesystem::path& path, std::string_view text);
/// A whole file as text.
[[nodiscard]] std::string read_file(const std::filesystem::path& path);

/// rename(2); throws an Error.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);
/// Flushes a file, or the names in a folder, to disk.
void sync_path(const std::filesystem::path& path);
/// Makes a folder and those above it, and flushes their names to disk.
void make_folders(const std::filesystem::path& folder);
/// Whether there is a plain file, or a folder, or a link to one.
[[nodiscard]] bool is_file(const std::filesystem::path& path);
[[nodiscard]] bool is_folder(const std::filesystem::path& path);
/// What lies in a folder, sorted.
[[nodiscard]] std::vector<std::string> names_in(const std::filesystem::path& folder);
/// The bytes of a text.
[[nodiscard]] std::span<const std::byte> bytes_of(std::string_view text);

}  // namespace lab
