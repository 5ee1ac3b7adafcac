// A SentencePiece model with the special pieces that all three families need, at the same ids always.
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
inline constexpr int64_t kFirstPiece = kSentinel + kSentinels;  // the first one that stands for text

/// Text to tokens and back: decode(encode(text)) == text for valid UTF-8.
class Tokenizer {
 public:
  /// Reads a file that `came-lab data` wrote; throws an Error if it is no such model.
  explicit Tokenizer(const std::filesystem::path& file);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  [[nodiscard]] std::vector<int64_t> encode(std::string_view text) const;
  /// Special pieces are left out.
  [[nodiscard]] std::string decode(std::span<const int64_t> tokens) const;
  [[nodiscard]] int64_t size() const;

 private:
  struct Processor;
  std::unique_ptr<Processor> processor_;
};

}  // namespace lab
