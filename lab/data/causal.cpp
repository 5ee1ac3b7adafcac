// The next token: T + 1 tokens, of which the first T are read and the last T predicted.  Windows share the token at
// their border, so that in a pass each token is a target once.
#include <utility>

#include "data/sequences.hpp"
#include "error.hpp"

namespace lab {

namespace {

class Causal final : public Sequences {
 public:
  Causal(std::shared_ptr<const TokenFile> file, const BatchOptions& options)
      : Sequences(std::move(file), options, options.length, options.length + 1) {}

  [[nodiscard]] Sequence at(int64_t number) const override {
    Sequence sequence;
    append(window(number), options().length + 1, sequence.input);
    sequence.targets.assign(sequence.input.begin() + 1, sequence.input.end());
    sequence.input.pop_back();
    return sequence;
  }
};

}  // namespace

std::unique_ptr<Sequences> make_causal(std::shared_ptr<const TokenFile> file, const BatchOptions& options) {
  if (options.length < 1) fail("a sequence length of {}: expected 1 or more", options.length);
  return std::make_unique<Causal>(std::move(file), options);
}

}  // namespace lab
