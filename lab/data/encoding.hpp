// What the second pass does with a block of text: encode it, on any thread, and write its tokens, in order.  Private to
// prepare.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "data/info.hpp"
#include "data/token_file.hpp"
#include "data/tokenizer.hpp"

namespace lab {

/// Some text on its way through the threads.
struct Block {
  struct Piece {
    size_t end = 0;  // in `text`, later in `tokens`
    bool valid = false, ends = false;
  };
  std::string text;
  std::vector<Piece> pieces;
  std::vector<int64_t> tokens;
};

/// Encodes blocks; each call is lent one of the caches.
class Encoders {
 public:
  explicit Encoders(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// The block with its tokens; some threads may call it at once.
  [[nodiscard]] Block encode(Block block);

 private:
  WordCache borrow();

  const Tokenizer& tokenizer_;
  std::mutex mutex_;
  std::vector<WordCache> idle_;
};

/// Writes both halves and counts what it writes.
class Halves {
 public:
  Halves(const std::filesystem::path& folder, const Tokenizer& tokenizer);

  void write(const Block& block);
  /// Ends the files and fills in what follows from the tokens.
  void finish(DatasetInfo& info);

 private:
  [[nodiscard]] double unigram_loss() const;

  TokenWriter train_, valid_;
  std::array<std::vector<int64_t>, 2> counts_;  // of each piece: train, valid
};

}  // namespace lab
