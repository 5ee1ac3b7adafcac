// What the tests of the data side share: folders that vanish, text to fill them with, and an error's message.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/prepare.hpp"
#include "data/random.hpp"
#include "data/token_file.hpp"
#include "data/tokenizer.hpp"
#include "error.hpp"

namespace lab_test {

namespace fs = std::filesystem;

/// A folder that is empty at first and gone at the end.
class TempFolder {
 public:
  TempFolder() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name =
        fmt::format("came_lab_data_{}_{}_{}_{}", test->test_suite_name(), test->name(), ::getpid(), count_++);
    std::replace(name.begin(), name.end(), '/', '_');  // in the names of tests with parameters
    path_ = fs::temp_directory_path() / name;
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~TempFolder() { fs::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  [[nodiscard]] fs::path operator/(std::string_view name) const { return path_ / name; }
  [[nodiscard]] const fs::path& path() const { return path_; }
  /// What is in it, sorted, hidden names too.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(path_)) all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  static inline int count_ = 0;
  fs::path path_;
};

inline fs::path write(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

inline std::string read(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

/// The message of the Error that `call` throws; empty: it throws none.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const lab::Error& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  }
  return "";
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// Text of about so many bytes, in lines of some words; other text for another seed.
inline std::string make_text(size_t bytes, uint64_t seed = 0) {
  lab::Random random(seed, 0, lab::Purpose::sample);
  const char* const syllables[] = {"ka", "mo", "ti", "ren", "sul", "ba", "pri", "lo", "den", "shu", "ve", "or"};
  std::string text;
  while (text.size() < bytes) {
    for (int64_t word = random.below(9) + 2; word > 0; --word) {
      for (int64_t k = random.below(3) + 1; k > 0; --k) text += syllables[random.below(12)];
      text += word > 1 ? " " : ".\n";
    }
  }
  return text;
}

/// Options that prepare some small text quickly.
inline lab::PrepareOptions small_options(std::vector<fs::path> inputs, fs::path output) {
  lab::PrepareOptions options;
  options.inputs = std::move(inputs);
  options.output = std::move(output);
  options.vocabulary = 420;
  options.validation_share = 0.25;
  return options;
}

/// A folder of `count` text files in `folder`.
inline fs::path make_corpus(const fs::path& folder, int count, size_t bytes = 3000) {
  for (int k = 0; k < count; ++k) {
    write(folder / fmt::format("{:03}.txt", k), make_text(bytes, static_cast<uint64_t>(k)));
  }
  return folder;
}

/// A tokenizer trained on some text.
inline lab::Tokenizer make_tokenizer(const fs::path& file, const std::vector<std::string>& lines, int64_t vocabulary) {
  write(file, lab::train_tokenizer(lines, vocabulary));
  return lab::Tokenizer(file);
}

/// A file of tokens with documents of these lengths (ends included), whose tokens say where they are: place + 200.
inline std::shared_ptr<const lab::TokenFile> make_tokens(const fs::path& path, const std::vector<int64_t>& documents,
                                                         int64_t vocabulary = 100000) {
  lab::TokenWriter writer(path, vocabulary, 7);
  for (const int64_t length : documents) {
    for (int64_t k = 0; k + 1 < length; ++k) {
      const int64_t token = writer.tokens() + 200;
      writer.add({&token, 1});
    }
    writer.end_document();
  }
  writer.finish();
  return std::make_shared<lab::TokenFile>(path, vocabulary, 7);
}

}  // namespace lab_test
