// SentencePiece does the merging inside a word; what surrounds it is done here, since it keeps neither newlines nor the
// character that it writes for a space (U+2581), and decodes the one as the other.
#include "data/tokenizer.hpp"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <unordered_map>

#include "data/random.hpp"
#include "data/utf8.hpp"
#include "error.hpp"

namespace lab {

namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, how SentencePiece writes a space
// Longer ones, such as a line of Chinese, are cut: the time to merge grows faster than the word.
constexpr size_t kLongestWord = 256;
// Words a cache holds before it begins anew: some 10 MB.
constexpr size_t kCachedWords = size_t{1} << 16;

/// The text that a piece stands for.
std::string text_of(std::string piece) {
  std::string text;
  for (size_t k = 0; k < piece.size();) {
    const bool space = std::string_view(piece).substr(k).starts_with(kSpace);
    text += space ? ' ' : piece[k];
    k += space ? kSpace.size() : 1;
  }
  return text;
}

uint64_t hash_of(std::string_view bytes) {
  uint64_t hash = bytes.size();
  for (const char byte : bytes) hash = mix_bits(hash + static_cast<unsigned char>(byte));
  return hash;
}

}  // namespace

struct Tokenizer::Processor {
  sentencepiece::SentencePieceProcessor model;
  std::vector<std::string> texts;  // of each piece; empty: it is special
  uint64_t fingerprint = 0;

  /// Whether all special pieces and bytes are where they must be.
  [[nodiscard]] bool fits() const {
    const int64_t size = model.GetPieceSize();
    if (size < kSmallestVocabulary) return false;
    const auto is = [&](int64_t id, const std::string& piece) {
      return model.IdToPiece(static_cast<int>(id)) == piece;
    };
    bool all = is(kClass, "[CLS]") && is(kSeparator, "[SEP]") && is(kMask, "[MASK]") && model.pad_id() == kPad &&
               model.eos_id() == kEnd && model.unk_id() == kUnknown;
    for (int64_t k = 0; k < kSentinels; ++k) all = all && is(kSentinel + k, fmt::format("<extra_id_{}>", k));
    for (int64_t k = 0; k < 256; ++k) all = all && is(kFirstPiece + k, fmt::format("<0x{:02X}>", k));
    return all;
  }
};

Tokenizer::Tokenizer(const std::filesystem::path& file) : processor_(std::make_unique<Processor>()) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) fail("{}: cannot be read; `came-lab data` writes one", file.native());
  const std::string bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!processor_->model.LoadFromSerializedProto(bytes).ok() || !processor_->fits()) {
    fail("{}: not a tokenizer that `came-lab data` wrote; prepare the data again", file.native());
  }
  processor_->fingerprint = hash_of(bytes);
  processor_->texts.resize(static_cast<size_t>(size()));
  for (int64_t k = kFirstPiece; k < size(); ++k) {
    const int64_t byte = k - kFirstPiece;
    processor_->texts[static_cast<size_t>(k)] = byte < 256 ? std::string(1, static_cast<char>(byte))
                                                           : text_of(processor_->model.IdToPiece(static_cast<int>(k)));
  }
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

int64_t Tokenizer::size() const { return processor_->model.GetPieceSize(); }
uint64_t Tokenizer::fingerprint() const { return processor_->fingerprint; }

std::string Tokenizer::piece(int64_t token) const {
  if (token < 0 || token >= size()) fail("token {}: expected 0 to {}", token, size() - 1);
  return processor_->model.IdToPiece(static_cast<int>(token));
}

size_t Tokenizer::word_bytes(std::string_view text) {
  if (text[0] == '\n') return 1;
  if (text.starts_with(kSpace)) return kSpace.size();
  const std::string_view head = text.substr(0, kLongestWord + 1);
  size_t end = std::min(head.find_first_not_of(' '), head.size());
  while (end < head.size() && head[end] != ' ' && head[end] != '\n') {
    if (head[end] == kSpace[0] && text.substr(end).starts_with(kSpace)) break;
    ++end;
  }
  return end <= kLongestWord ? end : character_start(text, kLongestWord);
}

void Tokenizer::encode_word(std::string_view word, std::vector<int64_t>& tokens) const {
  if (word == "\n" || word == kSpace) {
    for (const char byte : word) tokens.push_back(kFirstPiece + static_cast<unsigned char>(byte));
    return;
  }
  std::vector<int> ids;
  const auto status = processor_->model.Encode(word, &ids);
  if (!status.ok()) fail("SentencePiece could not encode some text: {}", status.message());
  tokens.insert(tokens.end(), ids.begin(), ids.end());
}

std::vector<int64_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int64_t> tokens;
  while (!text.empty()) {
    const size_t size = word_bytes(text);
    encode_word(text.substr(0, size), tokens);
    text.remove_prefix(size);
  }
  return tokens;
}

std::string Tokenizer::decode(std::span<const int64_t> tokens) const {
  std::string text;
  for (const int64_t token : tokens) {
    if (token < 0 || token >= size()) fail("token {}: expected 0 to {}", token, size() - 1);
    text += processor_->texts[static_cast<size_t>(token)];
  }
  return text;
}

struct WordCache::Words {
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };
  std::unordered_map<std::string, std::vector<int64_t>, Hash, std::equal_to<>> map;
};

WordCache::WordCache(const Tokenizer& tokenizer) : tokenizer_(&tokenizer), words_(std::make_unique<Words>()) {}
WordCache::~WordCache() = default;
WordCache::WordCache(WordCache&&) noexcept = default;

void WordCache::encode(std::string_view text, std::vector<int64_t>& tokens) {
  auto& map = words_->map;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, Tokenizer::word_bytes(text));
    text.remove_prefix(word.size());
    auto found = map.find(word);
    if (found == map.end()) {
      if (map.size() >= kCachedWords) map.clear();
      found = map.try_emplace(std::string(word)).first;
      tokenizer_->encode_word(word, found->second);
    }
    tokens.insert(tokens.end(), found->second.begin(), found->second.end());
  }
}

}  // namespace lab
