// A SentencePiece model with the special pieces that all three families need, at the same ids always.  Text is taken
// word by word: a newline is one, and else some spaces and what follows them.  Knows nothing of torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lab {

/// Ids of the special pieces.
inline constexpr int64_t kPad = 0;
inline constexpr int64_t kEnd = 1;  // of a document
inline constexpr int64_t kUnknown = 2;
inline constexpr int64_t kClass = 3;      // [CLS]
inline constexpr int64_t kSeparator = 4;  // [SEP]
inline constexpr int64_t kMask = 5;       // [MASK]
inline constexpr int64_t kSentinel = 6;   // <extra_id_0>; the others follow
inline constexpr int64_t kSentinels = 100;
inline constexpr int64_t kFirstPiece = kSentinel + kSentinels;         // the first one that stands for text: the byte 0
inline constexpr int64_t kSmallestVocabulary = kFirstPiece + 256 + 1;  // all bytes, and one more: there must be one

/// Text to tokens and back: decode(encode(text)) == text for valid UTF-8.
class Tokenizer {
 public:
  /// Reads a file that `came-lab data` wrote; throws an Error if it is no such model.
  explicit Tokenizer(const std::filesystem::path& file);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// Never special pieces, whatever the text; some threads may call it at once.
  [[nodiscard]] std::vector<int64_t> encode(std::string_view text) const;
  /// Special pieces are left out.
  [[nodiscard]] std::string decode(std::span<const int64_t> tokens) const;
  [[nodiscard]] int64_t size() const;
  /// What a token stands for, as text that can be printed: "[MASK]", "<0x0A>", "▁the".
  [[nodiscard]] std::string piece(int64_t token) const;
  /// A number that tells models apart.
  [[nodiscard]] uint64_t fingerprint() const;

  /// How many bytes of a text that is not empty the first word takes.
  [[nodiscard]] static size_t word_bytes(std::string_view text);
  /// Appends one word's tokens.
  void encode_word(std::string_view word, std::vector<int64_t>& tokens) const;

 private:
  struct Processor;
  std::unique_ptr<Processor> processor_;
};

/// Encodes as Tokenizer does, and remembers the words it has seen: some ten times as fast for a thread that encodes
/// much text.
class WordCache {
 public:
  explicit WordCache(const Tokenizer& tokenizer);
  ~WordCache();
  WordCache(WordCache&&) noexcept;

  /// Appends a text's tokens.
  void encode(std::string_view text, std::vector<int64_t>& tokens);

 private:
  struct Words;
  const Tokenizer* tokenizer_;
  std::unique_ptr<Words> words_;
};

/// Throws an Error unless there can be a tokenizer of so many pieces.
void check_vocabulary(int64_t vocabulary);
/// A model of `vocabulary` pieces for text such as these lines, as the bytes of a file: byte pair encoding, which gives
/// the same on any machine.  Characters that are rare, or too many, have no piece and become bytes.  Throws an Error
/// that says the largest vocabulary that works where this one does not.
[[nodiscard]] std::string train_tokenizer(const std::vector<std::string>& lines, int64_t vocabulary);

}  // namespace lab
