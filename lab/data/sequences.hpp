// Which sequence comes when, and what is done to it, as plain numbers.  Private to the data side; dataset.cpp makes
// tensors of it.
//
// A half of a dataset is a ring of tokens.  Each pass cuts it into windows, beginning at a place of its own, and takes
// them in an order of its own; a window may run over the end of the ring as over the end of any document.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/sequence_options.hpp"
#include "data/token_file.hpp"

namespace lab {

/// One sequence; the fields are those of Batch, and empty where its are undefined.
struct Sequence {
  std::vector<int64_t> input, segments, decoder_input;
  std::vector<int64_t> positions;  ///< Within the sequence.
  std::vector<int64_t> targets;
  std::vector<int64_t> next;  ///< One number or none.
};

/// An endless list of sequences.
class Sequences {
 public:
  virtual ~Sequences() = default;
  /// Number `number`, from 0.
  [[nodiscard]] virtual Sequence at(int64_t number) const = 0;
  /// How many there are in a pass.
  [[nodiscard]] int64_t pass() const { return pass_; }

 protected:
  /// Windows of `length` tokens, `stride` from one to the next.  Throws an Error where there is not even one.
  Sequences(std::shared_ptr<const TokenFile> file, const BatchOptions& options, int64_t stride, int64_t length);

  /// Where the window of this sequence begins.
  [[nodiscard]] int64_t window(int64_t number) const;
  /// Appends `count` tokens of the ring to `tokens`.
  void append(int64_t start, int64_t count, std::vector<int64_t>& tokens) const;

  [[nodiscard]] const TokenFile& file() const { return *file_; }
  [[nodiscard]] const BatchOptions& options() const { return options_; }

 private:
  std::shared_ptr<const TokenFile> file_;
  BatchOptions options_;
  int64_t stride_, pass_;
};

/// The sequences of an objective; throws an Error that names the option that makes none.
[[nodiscard]] std::unique_ptr<Sequences> make_sequences(std::shared_ptr<const TokenFile> file,
                                                        const BatchOptions& options);

// One per objective; causal.cpp, masked.cpp and spans.cpp.
[[nodiscard]] std::unique_ptr<Sequences> make_causal(std::shared_ptr<const TokenFile> file,
                                                     const BatchOptions& options);
[[nodiscard]] std::unique_ptr<Sequences> make_masked(std::shared_ptr<const TokenFile> file,
                                                     const BatchOptions& options);
[[nodiscard]] std::unique_ptr<Sequences> make_spans(std::shared_ptr<const TokenFile> file, const BatchOptions& options);

/// `count` of the numbers 0 .. n - 1, ascending, all sets alike.
class Random;
[[nodiscard]] std::vector<int64_t> choose(int64_t count, int64_t n, Random& random);

}  // namespace lab
