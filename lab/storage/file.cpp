// The system calls behind storage/file.hpp.
#include "storage/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "error.hpp"

namespace lab {
namespace {

/// What the last failed call says of itself, and what helps where something does.
std::string reason() {
  const int error = errno;
  std::string text = std::strerror(error);
  if (error == ENOSPC || error == EDQUOT) text += "; free some space or choose another folder";
  if (error == EACCES || error == EPERM || error == EROFS) text += "; choose a folder that may be written";
  return text;
}

}  // namespace

Descriptor::Descriptor(const std::filesystem::path& path, int flags, const std::filesystem::path& shown)
    : path_((shown.empty() ? path : shown).string()), number_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
  if (number_ < 0) fail("{}: cannot open: {}", path_, reason());
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : path_(std::move(other.path_)), number_(std::exchange(other.number_, -1)) {}

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}

int64_t Descriptor::size() const {
  struct stat about {};
  if (::fstat(number_, &about) != 0) fail("{}: cannot find its size: {}", path_, reason());
  return about.st_size;
}

size_t Descriptor::read(std::span<std::byte> bytes) const {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(number_, &bytes[done], bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("{}: cannot read: {}", path_, reason());
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

std::byte Descriptor::byte_at(int64_t offset) const {
  std::byte byte{};
  if (::pread(number_, &byte, 1, offset) != 1) fail("{}: cannot read byte {}: {}", path_, offset, reason());
  return byte;
}

void Descriptor::reserve(int64_t bytes) const {
  if (bytes == 0 || ::fallocate(number_, 0, 0, bytes) == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return;
  fail("{}: cannot write {} bytes: {}", path_, bytes, reason());
}

void Descriptor::write(std::span<const std::byte> bytes) const {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = ::write(number_, &bytes[done], bytes.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("{}: cannot write {} bytes: {}", path_, bytes.size(), reason());
    done += static_cast<size_t>(put);
  }
}

void Descriptor::append(std::string_view text, int64_t size) const {
  ssize_t put = -1;
  do {
    put = ::write(number_, text.data(), text.size());
  } while (put < 0 && errno == EINTR);
  if (put == static_cast<ssize_t>(text.size())) return;
  // A part of it is as bad as nothing: a reader would take it for a whole record.  A short write means that there is
  // no room for the rest.
  const std::string why = put < 0 ? reason() : "the disk is full";
  if (put > 0) truncate(size);
  fail("{}: cannot append {} bytes: {}", path_, text.size(), why);
}

void Descriptor::truncate(int64_t length) const {
  if (::ftruncate(number_, length) != 0) fail("{}: cannot cut to {} bytes: {}", path_, length, reason());
}

void Descriptor::sync() const {
  // Some filesystems cannot flush a folder (EINVAL); there, renames are as durable as they get.
  if (::fsync(number_) != 0 && errno != EINVAL) fail("{}: cannot flush to disk: {}", path_, reason());
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY | O_NONBLOCK);  // which does not wait for the other end of a pipe
  if (!is_file(path)) fail("{}: not a plain file", path.string());
  const auto size = static_cast<size_t>(file.size());
  if (size == 0) return;  // which mmap refuses
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (at == MAP_FAILED) fail("{}: cannot map {} bytes: {}", path.string(), size, reason());
  bytes_ = {static_cast<const std::byte*>(at), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void replace_file(const std::filesystem::path& path, const std::function<void(const Descriptor&)>& write) {
  // What a link leads to is replaced, not the link.
  std::error_code nowhere;
  const bool linked = std::filesystem::is_symlink(path, nowhere);
  const auto target = linked ? std::filesystem::canonical(path, nowhere) : path;
  if (linked && nowhere) fail("{}: a link that leads nowhere: {}", path.string(), nowhere.message());
  // The process in the name: two that replace one file do not write into each other's.
  const auto beside =
      target.parent_path() / fmt::format(".{}.{}.tmp", target.filename().string(), static_cast<int64_t>(::getpid()));
  try {
    const Descriptor file(beside, O_WRONLY | O_CREAT | O_TRUNC, target);
    write(file);
    file.sync();
    rename_path(beside, target);
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
  sync_path(target.parent_path());
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  replace_file(path, [&](const Descriptor& file) { file.write(bytes_of(text)); });
}

std::string read_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail("{}: cannot rename {} to it: {}", to.string(), from.filename().string(), reason());
  }
}

void sync_path(const std::filesystem::path& path) { Descriptor(path.empty() ? "." : path, O_RDONLY).sync(); }

void make_folders(const std::filesystem::path& folder) {
  if (folder.empty() || is_folder(folder)) return;
  const auto parent = folder.parent_path();
  if (parent != folder) make_folders(parent);
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    fail("{}: cannot make this folder: {}", folder.string(), reason());
  }
  if (!is_folder(folder)) fail("{}: not a folder; choose another path", folder.string());
  sync_path(parent);
}

bool is_file(const std::filesystem::path& path) {
  std::error_code unreachable;
  return std::filesystem::is_regular_file(path, unreachable);
}

bool is_folder(const std::filesystem::path& path) {
  std::error_code unreachable;
  return std::filesystem::is_directory(path, unreachable);
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (auto at = std::filesystem::directory_iterator(folder, error); !error && at != end(at); at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) fail("{}: cannot list this folder: {}", folder.string(), error.message());
  std::sort(names.begin(), names.end());
  return names;
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace lab
