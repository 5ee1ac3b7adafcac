// BERT's masked tokens (Devlin et al., 2019): [CLS] text [SEP], and with next-sentence prediction [CLS] A [SEP] B
// [SEP]. Of the text, round(rate * slots) tokens are predicted: the same number in every sequence, whatever it holds.
// 80 % of them are read as [MASK], 10 % as some piece, 10 % as they are.  Special tokens are never predicted.
#include <algorithm>
#include <cmath>
#include <utility>

#include "data/random.hpp"
#include "data/sequences.hpp"
#include "data/tokenizer.hpp"
#include "error.hpp"

namespace lab {

namespace {

// [CLS], and one [SEP] per sentence.
int64_t specials(const BatchOptions& options) { return options.next_sentence ? 3 : 2; }

class Masked final : public Sequences {
 public:
  Masked(std::shared_ptr<const TokenFile> file, const BatchOptions& options)
      : Sequences(std::move(file), options, options.length - specials(options), options.length - specials(options)),
        slots_(options.length - specials(options)) {}

  [[nodiscard]] Sequence at(int64_t number) const override {
    Sequence sequence;
    sequence.input.reserve(static_cast<size_t>(options().length));
    sequence.input.push_back(kClass);
    if (options().next_sentence) {
      add_pair(number, sequence);
    } else {
      append(window(number), slots_, sequence.input);
      sequence.segments.assign(static_cast<size_t>(options().length), 0);
    }
    sequence.input.push_back(kSeparator);
    hide(number, sequence);
    return sequence;
  }

 private:
  struct Range {
    int64_t start = 0, tokens = 0;  // without the document's end
  };

  [[nodiscard]] Range text_of(int64_t document) const {
    const int64_t start = file().document_start(document), end = file().document_start(document + 1);
    return {start, end - start - 1};
  }

  /// A place at or before `place` from which `count` tokens stay inside the document; its beginning where it is
  /// shorter, and then the tokens run over its end.
  [[nodiscard]] static int64_t fit(int64_t place, int64_t count, Range text) {
    return std::max(text.start, std::min(place, text.start + text.tokens - count));
  }

  void add_pair(int64_t number, Sequence& sequence) const {
    Random random(options().seed, static_cast<uint64_t>(number), Purpose::pair);
    const int64_t place = window(number);
    const int64_t document = file().document_of(place);
    const Range text = text_of(document);
    const bool other = random.below(2) == 1;
    // Neither sentence is shorter than a quarter, unless that is what it takes to end before the document does.
    int64_t first = slots_ / 4 + random.below(slots_ - 2 * (slots_ / 4) + 1);
    if (text.tokens < slots_ && !other) first = std::clamp<int64_t>(text.tokens / 2, 1, first);
    const int64_t second = slots_ - first;
    const int64_t start = fit(place, other ? first : slots_, text);
    append(start, first, sequence.input);
    sequence.input.push_back(kSeparator);
    append(other ? elsewhere(document, second, random) : start + first, second, sequence.input);
    sequence.segments.assign(static_cast<size_t>(first + 2), 0);
    sequence.segments.resize(static_cast<size_t>(options().length), 1);
    sequence.next.push_back(other ? 1 : 0);
  }

  /// Where `count` tokens of another document begin; long documents are likelier, as they are for the first sentence.
  [[nodiscard]] int64_t elsewhere(int64_t document, int64_t count, Random& random) const {
    const int64_t start = file().document_start(document), end = file().document_start(document + 1);
    int64_t place = random.below(file().tokens() - (end - start));
    if (place >= start) place += end - start;
    return fit(place, count, text_of(file().document_of(place)));
  }

  void hide(int64_t number, Sequence& sequence) const {
    Random random(options().seed, static_cast<uint64_t>(number), Purpose::mask);
    std::vector<int64_t> candidates;
    for (size_t k = 0; k < sequence.input.size(); ++k) {
      if (sequence.input[k] >= kFirstPiece) candidates.push_back(static_cast<int64_t>(k));
    }
    const auto available = static_cast<int64_t>(candidates.size());
    const int64_t wanted = std::max<int64_t>(1, std::llround(options().mask_rate * static_cast<double>(slots_)));
    for (const int64_t chosen : choose(std::min(wanted, available), available, random)) {
      const int64_t position = candidates[static_cast<size_t>(chosen)];
      int64_t& token = sequence.input[static_cast<size_t>(position)];
      sequence.positions.push_back(position);
      sequence.targets.push_back(token);
      const double draw = random.unit();
      if (draw < 0.8) {
        token = kMask;
      } else if (draw < 0.9) {
        token = kFirstPiece + random.below(file().vocabulary() - kFirstPiece);
      }
    }
  }

  int64_t slots_;
};

}  // namespace

std::unique_ptr<Sequences> make_masked(std::shared_ptr<const TokenFile> file, const BatchOptions& options) {
  // Two tokens in each sentence.
  const int64_t shortest = options.next_sentence ? 7 : 4;
  if (options.length < shortest) {
    fail("a sequence length of {}: masked tokens{} need {} or more", options.length,
         options.next_sentence ? " with next-sentence prediction" : "", shortest);
  }
  if (options.next_sentence && file->documents() < 2) {
    fail("{}: one document, but next-sentence prediction needs two; give more text, or say where documents end",
         file->path().native());
  }
  return std::make_unique<Masked>(std::move(file), options);
}

}  // namespace lab
