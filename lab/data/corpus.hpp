// The text that a dataset is made of: files, and the documents in them, read in chunks of a MiB or two at the most.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/prepare.hpp"

namespace lab {

class Corpus {
 public:
  /// Takes some text of a document; `ends`: the document is over with it.  No document is empty, though its last chunk
  /// may be.
  using Sink = std::function<void(std::string_view text, bool ends)>;

  /// Lists the files and settles the rule; throws an Error where there is nothing to read.
  explicit Corpus(const PrepareOptions& options);

  /// Hands every document to `sink`, in order.  Where chunks are cut depends on the text alone.  Throws an Error that
  /// names the place where a file is no UTF-8 or no JSONL.
  void read(const Sink& sink);

  /// Bytes of all files, and how many of them the current read() has read.
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] int64_t bytes_read() const { return bytes_read_; }
  [[nodiscard]] const std::vector<std::filesystem::path>& files() const { return files_; }
  /// Never `automatic`.
  [[nodiscard]] DocumentRule rule() const { return rule_; }

 private:
  void add_folder(const std::filesystem::path& folder, const std::vector<std::string>& suffixes);
  void add_file(const std::filesystem::path& file);
  void read_json_lines(const std::filesystem::path& file, const Sink& sink);
  void read_lines(const std::filesystem::path& file, const Sink& sink);
  void read_whole(const std::filesystem::path& file, const Sink& sink);
  void read_chunks(const std::filesystem::path& path, const std::function<void(std::string_view)>& take);

  std::vector<std::filesystem::path> files_;
  std::string text_key_;
  DocumentRule rule_;
  int64_t bytes_ = 0;
  int64_t bytes_read_ = 0;
};

/// A rule's name on the command line and in data.json: "auto", "file", "blank-line", "line".
[[nodiscard]] std::string_view name_of(DocumentRule rule);

}  // namespace lab
