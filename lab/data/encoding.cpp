// Blocks of text, encoded and written.
#include "data/encoding.hpp"

#include <cmath>
#include <span>
#include <string_view>
#include <utility>

namespace lab {

Block Encoders::encode(Block block) {
  WordCache words = borrow();
  size_t begin = 0;
  for (Block::Piece& piece : block.pieces) {
    words.encode(std::string_view(block.text).substr(begin, piece.end - begin), block.tokens);
    begin = std::exchange(piece.end, block.tokens.size());
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(words));
  return block;
}

WordCache Encoders::borrow() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return WordCache(tokenizer_);
  WordCache words = std::move(idle_.back());
  idle_.pop_back();
  return words;
}

Halves::Halves(const std::filesystem::path& folder, const Tokenizer& tokenizer)
    : train_(folder / "train.tokens", tokenizer.size(), tokenizer.fingerprint()),
      valid_(folder / "valid.tokens", tokenizer.size(), tokenizer.fingerprint()) {
  for (auto& counts : counts_) counts.resize(static_cast<size_t>(tokenizer.size()));
}

void Halves::write(const Block& block) {
  size_t begin = 0;
  for (const Block::Piece& piece : block.pieces) {
    const std::span<const int64_t> tokens = std::span(block.tokens).subspan(begin, piece.end - begin);
    begin = piece.end;
    TokenWriter& writer = piece.valid ? valid_ : train_;
    auto& counts = counts_[piece.valid ? 1 : 0];
    writer.add(tokens);
    for (const int64_t token : tokens) ++counts[static_cast<size_t>(token)];
    if (piece.ends) {
      writer.end_document();
      ++counts[static_cast<size_t>(kEnd)];
    }
  }
}

void Halves::finish(DatasetInfo& info) {
  train_.finish();
  valid_.finish();
  info.vocabulary = static_cast<int64_t>(counts_[0].size());
  info.train_tokens = train_.tokens();
  info.valid_tokens = valid_.tokens();
  info.train_documents = train_.documents();
  info.valid_documents = valid_.documents();
  const auto all = static_cast<double>(info.train_tokens + info.valid_tokens);
  info.validation_share = static_cast<double>(info.valid_tokens) / all;
  info.bytes_per_token = static_cast<double>(info.train_bytes + info.valid_bytes) / all;
  info.unigram_loss = unigram_loss();
}

// Each piece counts once more than it was seen, so that none has probability zero.
double Halves::unigram_loss() const {
  const double all = static_cast<double>(train_.tokens()) + static_cast<double>(counts_[0].size());
  double sum = 0;
  for (size_t k = 0; k < counts_[0].size(); ++k) {
    sum -= static_cast<double>(counts_[1][k]) * std::log((static_cast<double>(counts_[0][k]) + 1) / all);
  }
  return sum / static_cast<double>(valid_.tokens());
}

}  // namespace lab
