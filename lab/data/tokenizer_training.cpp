// Trains the SentencePiece model.  Characters outside the alphabet chosen here never reach it: it would give each a
// piece, or refuse a vocabulary that has no room for them.
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "data/tokenizer.hpp"
#include "data/utf8.hpp"
#include "error.hpp"
#include "range.hpp"

namespace lab {

namespace {

using Alphabet = std::unordered_set<std::string_view>;

// The rarest characters, one in 2000 in all, are spelled in bytes.
constexpr double kCoverage = 0.9995;
// SentencePiece keeps these to itself: a boundary, its space and its sign for the unknown.
constexpr std::string_view kReserved[] = {"\t", "\xe2\x96\x81", "\xe2\x96\x85", std::string_view("\0", 1)};

template <class Take>
void for_each_character(std::string_view text, Take&& take) {
  for (size_t k = 0; k < text.size();) {
    const size_t size = character_bytes(text, k);
    take(text.substr(k, size));
    k += size;
  }
}

/// The characters worth a piece of their own, the most frequent first.
std::vector<std::string_view> frequent_characters(const std::vector<std::string>& lines) {
  std::unordered_map<std::string_view, int64_t> counts;
  for (const std::string& line : lines) {
    for_each_character(line, [&](std::string_view character) { ++counts[character]; });
  }
  for (const std::string_view reserved : kReserved) counts.erase(reserved);
  std::vector<std::pair<int64_t, std::string_view>> order;
  int64_t all = 0;
  for (const auto& [character, count] : counts) {
    order.emplace_back(-count, character);
    all += count;
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string_view> frequent;
  int64_t covered = 0;
  for (const auto& [count, character] : order) {
    if (static_cast<double>(covered) >= kCoverage * static_cast<double>(all)) break;
    frequent.push_back(character);
    covered -= count;
  }
  return frequent;
}

/// The lines, cut wherever there is a character outside of the alphabet.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  Lines(const std::vector<std::string>& lines, const Alphabet& alphabet) : lines_(lines), alphabet_(alphabet) {
    Next();
  }

  [[nodiscard]] bool done() const override { return piece_.empty(); }
  [[nodiscard]] const std::string& value() const override { return piece_; }
  [[nodiscard]] sentencepiece::util::Status status() const override { return {}; }
  void Next() override {
    piece_.clear();
    for (; line_ < lines_.size(); ++line_, at_ = 0) {
      const std::string_view line = lines_[line_];
      while (at_ < line.size()) {
        const std::string_view character = line.substr(at_, character_bytes(line, at_));
        at_ += character.size();
        if (alphabet_.contains(character)) {
          piece_ += character;
        } else if (!piece_.empty()) {
          return;
        }
      }
      if (!piece_.empty()) return;
    }
  }

 private:
  const std::vector<std::string>& lines_;
  const Alphabet& alphabet_;
  size_t line_ = 0, at_ = 0;
  std::string piece_;
};

struct Trained {
  std::string model;
  int64_t pieces = 0;
};

Trained train(const std::vector<std::string>& lines, const Alphabet& alphabet, int64_t vocabulary) {
  std::string control = "[CLS],[SEP],[MASK]";
  for (int64_t k = 0; k < kSentinels; ++k) control += fmt::format(",<extra_id_{}>", k);
  const std::unordered_map<std::string, std::string> options{
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(vocabulary)},
      {"hard_vocab_limit", "false"},  // fewer pieces are noticed by the caller
      {"pad_id", std::to_string(kPad)},
      {"eos_id", std::to_string(kEnd)},
      {"unk_id", std::to_string(kUnknown)},
      {"bos_id", "-1"},
      {"control_symbols", control},
      {"byte_fallback", "true"},
      {"character_coverage", "1.0"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "false"},
      {"allow_whitespace_only_pieces", "true"},  // indentation is one piece
      {"max_sentence_length", "1000000"},
      {"num_threads", "1"},
      {"minloglevel", "3"},
  };
  Lines sentences(lines, alphabet);
  Trained trained;
  const auto status = sentencepiece::SentencePieceTrainer::Train(options, &sentences, &trained.model);
  if (!status.ok()) fail("SentencePiece could not train a tokenizer of {} pieces: {}", vocabulary, status.message());
  sentencepiece::SentencePieceProcessor model;
  if (!model.LoadFromSerializedProto(trained.model).ok())
    fail("SentencePiece cannot read the tokenizer it has trained");
  trained.pieces = model.GetPieceSize();
  return trained;
}

}  // namespace

void check_vocabulary(int64_t vocabulary) {
  if (vocabulary < kSmallestVocabulary) {
    fail("a vocabulary of {} is too small: {} special pieces and all bytes take part; give {} or more", vocabulary,
         kFirstPiece, kSmallestVocabulary);
  }
  if (vocabulary > kLargestVocabulary) {
    fail("a vocabulary of {} is too large: give {} or less", vocabulary, kLargestVocabulary);
  }
}

std::string train_tokenizer(const std::vector<std::string>& lines, int64_t vocabulary) {
  check_vocabulary(vocabulary);
  const std::vector<std::string_view> frequent = frequent_characters(lines);
  if (frequent.empty()) fail("the text holds no characters to train a tokenizer on; give more text");
  // Half of the room at first, since merged pieces are worth more than rare characters; where the text yields too few
  // of those, more characters.
  auto taken = std::min(frequent.size(), static_cast<size_t>((vocabulary - kSmallestVocabulary) / 2 + 1));
  while (true) {
    Trained trained =
        train(lines, Alphabet(frequent.begin(), frequent.begin() + static_cast<ptrdiff_t>(taken)), vocabulary);
    if (trained.pieces == vocabulary) return std::move(trained.model);
    if (taken == frequent.size()) {
      fail("a vocabulary of {} is too large: this text yields {} pieces; give {} or less, or more text", vocabulary,
           trained.pieces, trained.pieces);
    }
    taken = std::min(frequent.size(), taken + static_cast<size_t>(vocabulary - trained.pieces));
  }
}

}  // namespace lab
