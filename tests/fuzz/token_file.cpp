// What must hold of any file of tokens: it is refused with an Error when it is opened or where it is damaged, or
// sequences can be made of it, every token is in its document, and writing what was read gives a file that reads the
// same.
#include "data/token_file.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "check.hpp"
#include "data/sequences.hpp"
#include "data/tokenizer.hpp"
#include "error.hpp"

namespace came_fuzz {
namespace {

constexpr uint64_t kFingerprint = 7;
constexpr int64_t kSequences = 4;

struct Contents {
  std::vector<int64_t> tokens, starts;
  bool operator==(const Contents&) const = default;
};

Contents read(const lab::TokenFile& file) {
  Contents contents;
  for (int64_t k = 0; k < file.tokens(); ++k) contents.tokens.push_back(file.token(k));
  for (int64_t k = 0; k <= file.documents(); ++k) contents.starts.push_back(file.document_start(k));
  return contents;
}

/// Whether documents follow one another, none of them empty.
bool in_order(const Contents& contents) {
  if (contents.starts.front() != 0) return false;
  return std::adjacent_find(contents.starts.begin(), contents.starts.end(), std::greater_equal<>()) ==
         contents.starts.end();
}

/// Whether each document ends as came-lab ends one, so that it can be written again.
bool whole(const Contents& contents) {
  for (size_t k = 1; k < contents.starts.size(); ++k) {
    if (contents.tokens[static_cast<size_t>(contents.starts[k]) - 1] != lab::kEnd) return false;
  }
  return true;
}

void write(const InputFile& path, const Contents& contents, int64_t vocabulary) {
  lab::TokenWriter writer(path.path(), vocabulary, kFingerprint);
  for (size_t k = 0; k + 1 < contents.starts.size(); ++k) {
    const std::span<const int64_t> tokens(contents.tokens);
    const auto begin = static_cast<size_t>(contents.starts[k]);
    writer.add(tokens.subspan(begin, static_cast<size_t>(contents.starts[k + 1]) - begin - 1));
    writer.end_document();
  }
  writer.finish();
}

void make_sequences(const std::shared_ptr<const lab::TokenFile>& file) {
  for (const auto objective : {lab::Objective::causal, lab::Objective::masked, lab::Objective::spans}) {
    lab::BatchOptions options;
    options.objective = objective;
    options.length = 8;
    options.next_sentence = objective == lab::Objective::masked;
    try {
      const auto sequences = lab::make_sequences(file, options);
      for (int64_t k = 0; k < kSequences; ++k) (void)sequences->at(k);
    } catch (const lab::Error& error) {
      require_message(error.what());
    }
  }
}

bool check_one(const InputFile& path, size_t size, int64_t vocabulary) {
  std::shared_ptr<const lab::TokenFile> file;
  Contents contents;
  try {
    within_bounds(size, [&] { file = std::make_shared<lab::TokenFile>(path.path(), vocabulary, kFingerprint); });
    make_sequences(file);
    contents = read(*file);
  } catch (const lab::Error& error) {
    require_message(error.what());
    return false;
  }
  require(in_order(contents), "documents that are empty or not in order");
  for (int64_t k = 0; k < file->tokens(); ++k) {
    const int64_t document = file->document_of(k);
    require(document >= 0 && document < file->documents(), "a token in a document that there is not");
    const bool begun = contents.starts[static_cast<size_t>(document)] <= k;
    require(begun && k < contents.starts[static_cast<size_t>(document) + 1], "a token in another document");
  }
  if (whole(contents)) {
    file.reset();
    write(path, contents, vocabulary);
    require(contents == read(lab::TokenFile(path.path(), vocabulary, kFingerprint)),
            "what was written reads otherwise");
  }
  return true;
}

}  // namespace

bool check_token_file(Input input) {
  static const InputFile file("half.tokens");
  // One vocabulary of each width.
  bool accepted = false;
  for (const int64_t vocabulary : {int64_t{400}, int64_t{70000}}) {
    file.write(input);
    accepted = check_one(file, input.size(), vocabulary) || accepted;
  }
  return accepted;
}

}  // namespace came_fuzz
