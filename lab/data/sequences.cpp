// Windows of the ring of tokens, in the order of a pass.
#include "data/sequences.hpp"

#include <utility>

#include "data/random.hpp"
#include "error.hpp"
#include "range.hpp"

namespace lab {

Sequences::Sequences(std::shared_ptr<const TokenFile> file, const BatchOptions& options, int64_t stride, int64_t length)
    : file_(std::move(file)), options_(options), stride_(stride), pass_(file_->tokens() / stride) {
  if (file_->tokens() < length) {
    fail(
        "{}: holds {} tokens, fewer than the {} that one sequence of length {} takes; use a shorter length or more "
        "text",
        file_->path().native(), file_->tokens(), length, options.length);
  }
}

int64_t Sequences::window(int64_t number) const {
  const auto pass = static_cast<uint64_t>(number / pass_);
  const int64_t offset = Random(options_.seed, pass, Purpose::offset).below(file_->tokens());
  const Permutation order(pass_, Random(options_.seed, pass, Purpose::order).next());
  return (offset + order.at(number % pass_) * stride_) % file_->tokens();
}

void Sequences::append(int64_t start, int64_t count, std::vector<int64_t>& tokens) const {
  const int64_t size = file_->tokens();
  for (int64_t k = 0; k < count; ++k) tokens.push_back(file_->token((start + k) % size));
}

std::vector<int64_t> choose(int64_t count, int64_t n, Random& random) {
  std::vector<int64_t> chosen;
  // Each number in turn, with the probability that it is among those still missing.
  for (int64_t k = 0; k < n && static_cast<int64_t>(chosen.size()) < count; ++k) {
    if (random.below(n - k) < count - static_cast<int64_t>(chosen.size())) chosen.push_back(k);
  }
  return chosen;
}

std::unique_ptr<Sequences> make_sequences(std::shared_ptr<const TokenFile> file, const BatchOptions& options) {
  if (options.length > kLongestSequence)
    fail("a sequence length of {}: expected {} or less", options.length, kLongestSequence);
  if (options.objective != Objective::causal && !(options.mask_rate > 0 && options.mask_rate <= 0.9)) {
    fail("a mask rate of {}: expected more than 0 and at most 0.9", options.mask_rate);
  }
  if (options.next_sentence && options.objective != Objective::masked) {
    fail("next-sentence prediction goes with masked tokens alone; leave it out");
  }
  switch (options.objective) {
    case Objective::causal:
      return make_causal(std::move(file), options);
    case Objective::masked:
      return make_masked(std::move(file), options);
    case Objective::spans:
      return make_spans(std::move(file), options);
  }
  fail("an unknown objective");
}

}  // namespace lab
