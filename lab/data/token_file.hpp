// A file of tokens: 64 bytes of header, the tokens as u16 or u32, zeros up to a multiple of 8 bytes, and where each
// document begins as u64.  All little-endian.  Each document ends with kEnd.  Knows nothing of torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lab {

/// Writes a file in the order of its bytes; errors name it.  Without finish() it is of no use.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, size_t bytes);
  /// Writes at a place that is written already.
  void overwrite(int64_t place, const void* data, size_t bytes);
  /// Flushes to disk and closes.
  void finish();

 private:
  [[noreturn]] void refuse() const;
  void flush();

  std::filesystem::path path_;
  std::vector<std::byte> buffer_;
  int file_ = -1;
};

class TokenWriter {
 public:
  /// `fingerprint` is the tokenizer's.
  TokenWriter(const std::filesystem::path& path, int64_t vocabulary, uint64_t fingerprint);

  /// Appends tokens to the document at hand.
  void add(std::span<const int64_t> tokens);
  /// Ends it with kEnd.
  void end_document();
  /// Writes what comes last; the starts, which may be many, wait in a file beside until then.
  void finish();

  [[nodiscard]] int64_t tokens() const { return tokens_; }
  [[nodiscard]] int64_t documents() const { return documents_; }

 private:
  std::filesystem::path starts_path_;
  OutputFile file_, starts_;
  int64_t vocabulary_, tokens_ = 0, documents_ = 0;
  uint64_t fingerprint_, start_ = 0;
  uint32_t width_;
};

/// A file of tokens, memory-mapped.
class TokenFile {
 public:
  /// Throws an Error that begins with the path where the header or the size is not right, or the file was made with
  /// another tokenizer.
  TokenFile(std::filesystem::path path, int64_t vocabulary, uint64_t fingerprint);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  [[nodiscard]] int64_t tokens() const { return tokens_; }
  [[nodiscard]] int64_t documents() const { return documents_; }
  [[nodiscard]] int64_t vocabulary() const { return vocabulary_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Token `place`; throws an Error where the file was damaged and it is none of the vocabulary.
  [[nodiscard]] int64_t token(int64_t place) const;
  /// Where a document begins; for documents(), where the last one ends.  Throws an Error where the file was damaged and
  /// that is not after the document before it.
  [[nodiscard]] int64_t document_start(int64_t document) const;
  /// Which document a token is in.
  [[nodiscard]] int64_t document_of(int64_t place) const;

 private:
  [[nodiscard]] uint64_t stored_start(int64_t document) const;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t tokens_ = 0, documents_ = 0, vocabulary_ = 0;
  size_t starts_ = 0;  // where the table is
  uint32_t width_ = 0;
};

}  // namespace lab
