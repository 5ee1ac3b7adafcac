// From text to a dataset: a SentencePiece model and two files of tokens, in memory that does not grow with the text.
// Reads the text twice: once to check it and to draw the sample that the tokenizer is trained on, once to tokenize it.
// The same input and options give the same bytes, however many threads there are.  Knows nothing of torch.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/info.hpp"

namespace lab {

/// Where one document of a text file ends.  In JSONL files each line is one, whatever the rule.
enum class DocumentRule {
  automatic,   ///< One text file alone: `blank_line`; anything else: `file`.
  file,        ///< With the file.
  blank_line,  ///< At lines that hold nothing but white space, which belong to no document.
  line,        ///< With the line.
};

struct PrepareOptions {
  /// Files, whatever they are called, and folders, of which all files with one of `suffixes` are read, in the order of
  /// their names, subfolders included, hidden ones and links to folders not.  Empty: default_corpus().
  std::vector<std::filesystem::path> inputs;
  std::filesystem::path output;  ///< The folder to make.
  std::vector<std::string> suffixes = {".jsonl", ".md", ".rst", ".txt"};
  DocumentRule documents = DocumentRule::automatic;
  std::string text_key = "text";             ///< Where the text is in a line of a file that ends in .jsonl.
  int64_t vocabulary = 4096;                 ///< Pieces, special ones and 256 bytes included.
  double validation_share = 0.05;            ///< Of the documents; each half gets one at the least.
  int64_t sample_bytes = int64_t{10} << 20;  ///< Of memory for lines of the training half, which train the tokenizer.
  uint64_t seed = 0;                         ///< Of the split and of the sample.
  int64_t threads = 0;                       ///< 0: as many as there are cores.
  bool force = false;                        ///< Replace a dataset that is there; what is no dataset is never replaced.
};

/// How far prepare() is.  A stage has come to its end when `done` is `total`.
struct Progress {
  std::string_view stage;  ///< "reading", "training tokenizer", "tokenizing", in this order.
  int64_t done = 0;        ///< Bytes.
  int64_t total = 0;
};

/// Makes a dataset.  The folder appears when it is whole: on any error, and when `interrupt` becomes true (such as by a
/// signal handler; it throws the Error "interrupted ..."), nothing is left behind and what was there stays.
/// `progress`, where there is one, is called on the calling thread, about once per MiB.
DatasetInfo prepare(const PrepareOptions& options, const std::function<void(const Progress&)>& progress = {},
                    const std::atomic<bool>* interrupt = nullptr);

/// Text that a Debian system has: the reST sources of Python's documentation.  Throws an Error that says which package
/// they come with where they are missing.
[[nodiscard]] std::filesystem::path default_corpus();

}  // namespace lab
