// T5's span corruption (Raffel et al., 2020): spans of the text are replaced by sentinels, and the decoder says what
// was there.  As many tokens are taken that what remains, the sentinels and the end fill T exactly; then the decoder's
// length S is the same for every sequence too.
#include <algorithm>
#include <cmath>
#include <utility>

#include "data/random.hpp"
#include "data/sequences.hpp"
#include "data/tokenizer.hpp"
#include "error.hpp"

namespace lab {

namespace {

/// How many tokens a sequence is made of.
struct Lengths {
  int64_t text = 0, noise = 0, spans = 0;

  static Lengths of(int64_t text, const BatchOptions& options) {
    Lengths lengths{text, 0, 0};
    lengths.noise = std::clamp<int64_t>(std::llround(options.mask_rate * static_cast<double>(text)), 1,
                                        std::max<int64_t>(1, text - 1));
    // Every span has a token before it, and one of its own.
    lengths.spans = std::llround(static_cast<double>(lengths.noise) / options.span_length);
    lengths.spans =
        std::clamp<int64_t>(lengths.spans, 1, std::max<int64_t>(1, std::min(lengths.noise, text - lengths.noise)));
    return lengths;
  }
  /// With the sentinels and the end.
  [[nodiscard]] int64_t input() const { return text - noise + spans + 1; }
};

/// The most text whose corrupted form has T tokens.
Lengths longest(const BatchOptions& options) {
  Lengths best;
  for (int64_t text = 2; Lengths::of(text, options).input() <= options.length; ++text)
    best = Lengths::of(text, options);
  // Where spans are as many as what is kept allows, the form grows by two at once: one more is kept then.
  best.text += options.length - best.input();
  return best;
}

class Spans final : public Sequences {
 public:
  Spans(std::shared_ptr<const TokenFile> file, const BatchOptions& options, Lengths lengths)
      : Sequences(std::move(file), options, lengths.text, lengths.text), lengths_(lengths) {}

  [[nodiscard]] Sequence at(int64_t number) const override {
    Random random(options().seed, static_cast<uint64_t>(number), Purpose::spans);
    const std::vector<int64_t> noise = parts(lengths_.noise, random);
    const std::vector<int64_t> kept = parts(lengths_.text - lengths_.noise, random);
    Sequence sequence;
    int64_t place = window(number);
    for (int64_t span = 0; span < lengths_.spans; ++span) {
      const int64_t keep = kept[static_cast<size_t>(span)], hide = noise[static_cast<size_t>(span)];
      append(place, keep, sequence.input);
      sequence.input.push_back(kSentinel + span);
      sequence.targets.push_back(kSentinel + span);
      append(place + keep, hide, sequence.targets);
      place += keep + hide;
    }
    sequence.input.push_back(kEnd);
    sequence.targets.push_back(kEnd);
    sequence.decoder_input.push_back(kPad);
    sequence.decoder_input.insert(sequence.decoder_input.end(), sequence.targets.begin(), sequence.targets.end() - 1);
    return sequence;
  }

 private:
  /// `sum` as so many positive numbers as there are spans, all ways alike.
  [[nodiscard]] std::vector<int64_t> parts(int64_t sum, Random& random) const {
    std::vector<int64_t> numbers;
    int64_t last = 0;
    for (const int64_t cut : choose(lengths_.spans - 1, sum - 1, random)) {
      numbers.push_back(cut + 1 - last);
      last = cut + 1;
    }
    numbers.push_back(sum - last);
    return numbers;
  }

  Lengths lengths_;
};

}  // namespace

std::unique_ptr<Sequences> make_spans(std::shared_ptr<const TokenFile> file, const BatchOptions& options) {
  if (!(options.span_length >= 1)) fail("a span length of {}: expected 1 or more", options.span_length);
  // A token, a sentinel and the end.
  if (options.length < 3) fail("a sequence length of {}: corrupted spans need 3 or more", options.length);
  const Lengths lengths = longest(options);
  if (lengths.spans > kSentinels) {
    fail(
        "a sequence length of {} makes {} spans, and there are {} sentinels; use a shorter length, a lower rate or "
        "longer spans",
        options.length, lengths.spans, kSentinels);
  }
  return std::make_unique<Spans>(std::move(file), options, lengths);
}

}  // namespace lab
