// Which files a corpus has.  How documents are cut out of them is in documents.cpp.
#include "data/corpus.hpp"

#include <algorithm>
#include <system_error>

#include "error.hpp"

namespace lab {

namespace fs = std::filesystem;

namespace {

bool is_json_lines(const fs::path& file) { return file.extension() == ".jsonl"; }

bool is_hidden(const fs::path& path) { return path.filename().native().starts_with('.'); }

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

}  // namespace

std::string_view name_of(DocumentRule rule) {
  switch (rule) {
    case DocumentRule::automatic:
      return "auto";
    case DocumentRule::file:
      return "file";
    case DocumentRule::blank_line:
      return "blank-line";
    case DocumentRule::line:
      return "line";
  }
  return "";
}

fs::path default_corpus() {
  // 3.11 first: it is what the published figures were measured with.
  for (const int minor : {11, 12, 13, 14, 10, 9, 8}) {
    fs::path folder = fmt::format("/usr/share/doc/python3.{}/html/_sources", minor);
    std::error_code error;
    if (fs::is_directory(folder, error)) return folder;
  }
  fail(
      "the default text, /usr/share/doc/python3.11/html/_sources, is missing: install the package python3.11-doc (slim "
      "container images leave /usr/share/doc out), or give files or folders of your own");
}

Corpus::Corpus(const PrepareOptions& options) : text_key_(options.text_key), rule_(options.documents) {
  const std::vector<fs::path> inputs =
      options.inputs.empty() ? std::vector<fs::path>{default_corpus()} : options.inputs;
  for (const fs::path& input : inputs) {
    std::error_code error;
    const fs::file_status status = fs::status(input, error);
    if (!fs::exists(status)) fail("{}: {}; give a file or a folder of text", input.native(), error.message());
    if (fs::is_directory(status)) {
      add_folder(input, options.suffixes);
    } else if (fs::is_regular_file(status)) {
      add_file(input);
    } else {
      fail("{}: neither a file nor a folder; text is read twice, so write it to a file first", input.native());
    }
  }
  if (rule_ == DocumentRule::automatic) {
    rule_ = files_.size() == 1 && !is_json_lines(files_[0]) ? DocumentRule::blank_line : DocumentRule::file;
  }
}

void Corpus::add_folder(const fs::path& folder, const std::vector<std::string>& suffixes) {
  std::vector<fs::path> found;
  int64_t others = 0;
  try {
    for (auto it = fs::recursive_directory_iterator(folder); it != fs::recursive_directory_iterator(); ++it) {
      if (is_hidden(it->path())) {
        if (it->is_directory()) it.disable_recursion_pending();
      } else if (it->is_regular_file()) {
        const std::string name = it->path().filename();
        const bool wanted = std::any_of(suffixes.begin(), suffixes.end(),
                                        [&](const std::string& suffix) { return name.ends_with(suffix); });
        if (wanted) {
          found.push_back(it->path());
        } else {
          ++others;
        }
      }
    }
  } catch (const fs::filesystem_error& error) {
    fail("{}: {}", error.path1().native(), error.code().message());
  }
  if (found.empty()) {
    fail("{}: no file in it ends in {} ({} end otherwise); give the files by name, or other suffixes", folder.native(),
         joined(suffixes), others);
  }
  // By bytes, so that the order does not depend on the locale or the file system.
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  for (const fs::path& file : found) add_file(file);
}

void Corpus::add_file(const fs::path& file) {
  std::error_code error;
  const uintmax_t size = fs::file_size(file, error);
  if (error) fail("{}: {}", file.native(), error.message());
  files_.push_back(file);
  bytes_ += static_cast<int64_t>(size);
}

void Corpus::read(const Sink& sink) {
  bytes_read_ = 0;
  for (const fs::path& file : files_) {
    if (is_json_lines(file)) {
      read_json_lines(file, sink);
    } else if (rule_ == DocumentRule::file) {
      read_whole(file, sink);
    } else {
      read_lines(file, sink);
    }
  }
}

}  // namespace lab
