// Files of tokens, written through a buffer and read through a memory map.
#include "data/token_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "data/tokenizer.hpp"
#include "error.hpp"

namespace lab {

namespace {

static_assert(std::endian::native == std::endian::little, "token files are memory-mapped");

constexpr char kMagic[8] = {'c', 'a', 'm', 'e', 't', 'o', 'k', '\n'};
constexpr uint32_t kVersion = 1;
constexpr size_t kBuffer = size_t{1} << 20;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t width;  // bytes per token
  uint64_t vocabulary;
  uint64_t fingerprint;  // of the tokenizer
  uint64_t tokens;
  uint64_t documents;
  uint64_t zeros[2];
};
static_assert(sizeof(Header) == 64);

size_t padded(size_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file_ < 0) refuse();
  buffer_.reserve(kBuffer);
}

OutputFile::~OutputFile() {
  if (file_ >= 0) ::close(file_);
}

void OutputFile::refuse() const {
  const int error = errno;
  fail("cannot write {}: {}{}", path_.native(), std::strerror(error),
       error == ENOSPC || error == EDQUOT ? "; make room, or choose another folder" : "");
}

void OutputFile::write(const void* data, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  buffer_.insert(buffer_.end(), from, from + bytes);
  if (buffer_.size() >= kBuffer) flush();
}

void OutputFile::flush() {
  for (size_t done = 0; done < buffer_.size();) {
    const ssize_t written = ::write(file_, buffer_.data() + done, buffer_.size() - done);
    if (written < 0 && errno != EINTR) refuse();
    if (written > 0) done += static_cast<size_t>(written);
  }
  buffer_.clear();
}

void OutputFile::overwrite(int64_t place, const void* data, size_t bytes) {
  flush();
  if (::pwrite(file_, data, bytes, place) != static_cast<ssize_t>(bytes)) refuse();
}

void OutputFile::finish() {
  flush();
  // Some file systems say only here that the disk is full.
  if (::fsync(file_) != 0) refuse();
  if (::close(std::exchange(file_, -1)) != 0) refuse();
}

TokenWriter::TokenWriter(const std::filesystem::path& path, int64_t vocabulary, uint64_t fingerprint)
    : starts_path_(path.native() + ".starts"),
      file_(path),
      starts_(starts_path_),
      vocabulary_(vocabulary),
      fingerprint_(fingerprint),
      width_(vocabulary <= 0x10000 ? 2 : 4) {
  const Header empty{};
  file_.write(&empty, sizeof(empty));
}

void TokenWriter::add(std::span<const int64_t> tokens) {
  for (const int64_t token : tokens) {
    const auto stored = static_cast<uint32_t>(token);
    file_.write(&stored, width_);  // little-endian: the low bytes come first
  }
  tokens_ += static_cast<int64_t>(tokens.size());
}

void TokenWriter::end_document() {
  const int64_t end = kEnd;
  add({&end, 1});
  starts_.write(&start_, sizeof(start_));
  start_ = static_cast<uint64_t>(tokens_);
  ++documents_;
}

void TokenWriter::finish() {
  const uint64_t zero = 0;
  const size_t bytes = static_cast<size_t>(tokens_) * width_;
  file_.write(&zero, padded(bytes) - bytes);
  starts_.finish();
  const int starts = ::open(starts_path_.c_str(), O_RDONLY | O_CLOEXEC);
  std::vector<std::byte> buffer(kBuffer);
  ssize_t got = -1;
  while (starts >= 0 && (got = ::read(starts, buffer.data(), buffer.size())) > 0) {
    file_.write(buffer.data(), static_cast<size_t>(got));
  }
  const int error = errno;
  if (starts >= 0) ::close(starts);
  if (got < 0) fail("cannot read {}: {}", starts_path_.native(), std::strerror(error));
  std::filesystem::remove(starts_path_);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.width = width_;
  header.vocabulary = static_cast<uint64_t>(vocabulary_);
  header.fingerprint = fingerprint_;
  header.tokens = static_cast<uint64_t>(tokens_);
  header.documents = static_cast<uint64_t>(documents_);
  file_.overwrite(0, &header, sizeof(header));
  file_.finish();
}

TokenFile::TokenFile(std::filesystem::path path, int64_t vocabulary, uint64_t fingerprint)
    : path_(std::move(path)), vocabulary_(vocabulary) {
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail("{}: {}; prepare the data again", path_.native(), std::strerror(errno));
  struct stat status {};
  Header header{};
  const bool readable = ::fstat(file, &status) == 0 && ::pread(file, &header, sizeof(header), 0) == sizeof(header);
  const auto size = static_cast<size_t>(status.st_size);
  std::string wrong;
  if (!readable || std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    wrong = "not a file of tokens";
  } else if (header.version != kVersion) {
    wrong = fmt::format("version {}, expected {}", header.version, kVersion);
  } else if (header.width != (vocabulary <= 0x10000 ? 2U : 4U)) {
    wrong = fmt::format("{} bytes per token, which do not fit a vocabulary of {}", header.width, vocabulary);
  } else if (header.vocabulary != static_cast<uint64_t>(vocabulary)) {
    wrong = fmt::format("made for a vocabulary of {}, expected {}", header.vocabulary, vocabulary);
  } else if (header.fingerprint != fingerprint) {
    wrong = "made with another tokenizer than the one beside it";
  } else if (header.tokens > size || header.documents > header.tokens) {
    wrong = fmt::format("holds {} bytes, fewer than its header says; it was cut off", size);
  } else if (header.documents == 0 && header.tokens > 0) {
    wrong = fmt::format("holds {} tokens and no document", header.tokens);
  } else if (const size_t expected =
                 sizeof(Header) + padded(header.tokens * header.width) + header.documents * sizeof(uint64_t);
             size != expected) {
    wrong =
        fmt::format("holds {} bytes, expected {}; it was {}", size, expected, size < expected ? "cut off" : "added to");
  }
  void* map = MAP_FAILED;
  if (wrong.empty()) {
    map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) wrong = std::strerror(errno);
  }
  ::close(file);
  if (!wrong.empty()) fail("{}: {}; prepare the data again", path_.native(), wrong);
  data_ = static_cast<const std::byte*>(map);
  size_ = size;
  width_ = header.width;
  tokens_ = static_cast<int64_t>(header.tokens);
  documents_ = static_cast<int64_t>(header.documents);
  starts_ = sizeof(Header) + padded(header.tokens * header.width);
}

TokenFile::~TokenFile() { ::munmap(const_cast<std::byte*>(data_), size_); }

int64_t TokenFile::token(int64_t place) const {
  uint32_t token = 0;
  std::memcpy(&token, data_ + sizeof(Header) + static_cast<size_t>(place) * width_, width_);
  if (token >= vocabulary_) {
    fail("{}: token {} is {}, expected less than {}; the file is damaged, prepare the data again", path_.native(),
         place, token, vocabulary_);
  }
  return token;
}

uint64_t TokenFile::stored_start(int64_t document) const {
  uint64_t start = 0;
  std::memcpy(&start, data_ + starts_ + static_cast<size_t>(document) * sizeof(start), sizeof(start));
  return start;
}

int64_t TokenFile::document_start(int64_t document) const {
  if (document == documents_) return tokens_;
  const uint64_t start = stored_start(document);
  if (start >= static_cast<uint64_t>(tokens_)) {
    fail("{}: document {} begins at {}, expected less than {}; the file is damaged, prepare the data again",
         path_.native(), document, start, tokens_);
  }
  // No document is empty: each has its end.
  if (document == 0 ? start != 0 : start <= stored_start(document - 1)) {
    fail("{}: document {} begins at {}, expected {}; the file is damaged, prepare the data again", path_.native(),
         document, start, document == 0 ? "0" : fmt::format("more than {}", stored_start(document - 1)));
  }
  return static_cast<int64_t>(start);
}

int64_t TokenFile::document_of(int64_t place) const {
  int64_t low = 0, high = documents_;  // the answer is in [low, high)
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (document_start(middle) <= place ? low : high) = middle;
  }
  return low;
}

}  // namespace lab
