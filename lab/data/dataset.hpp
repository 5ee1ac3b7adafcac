// Batches from token files: which sequence comes when, and what is hidden in it, depend on the seed and on the
// sequence's number alone, so that a run resumes anywhere and batches may be cut into any micro-batches.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "data/batch.hpp"
#include "data/info.hpp"
#include "data/sequence_options.hpp"

namespace lab {

class Tokenizer;

/// One half of a dataset as an endless list of sequences: each pass in another order and with other masks.
class Batches {
 public:
  virtual ~Batches() = default;
  /// Sequences first .. first + count - 1 of the list.
  [[nodiscard]] virtual Batch batch(int64_t first, int64_t count) const = 0;
  /// Sequences in one pass.
  [[nodiscard]] virtual int64_t pass() const = 0;
};

/// A folder that `came-lab data` wrote, memory-mapped.
class Dataset {
 public:
  enum class Half { train, valid };

  /// Opens it; throws an Error that says what is missing or does not fit.
  explicit Dataset(const std::filesystem::path& folder);
  ~Dataset();
  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;

  [[nodiscard]] const DatasetInfo& info() const;
  [[nodiscard]] const Tokenizer& tokenizer() const;
  /// The file that the tokenizer was read from.
  [[nodiscard]] const std::filesystem::path& tokenizer_file() const;
  /// Sequences of one half.  The validation half's order and masks are those of `options.seed` too; it is the caller
  /// who asks for the same ones each time.  Throws an Error where the half is shorter than one sequence.
  [[nodiscard]] std::unique_ptr<Batches> batches(Half half, const BatchOptions& options) const;

 private:
  struct Files;
  std::unique_ptr<Files> files_;
};

}  // namespace lab
