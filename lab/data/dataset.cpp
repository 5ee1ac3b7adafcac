// A dataset's files, and batches of their sequences.
#include "data/dataset.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "data/sequences.hpp"
#include "data/token_file.hpp"
#include "data/tokenizer.hpp"
#include "error.hpp"

namespace lab {

namespace {

/// Everything of one field, one sequence after the other; undefined where no sequence has any.
at::Tensor joined(const std::vector<Sequence>& sequences, std::vector<int64_t> Sequence::*field, bool as_rows) {
  int64_t all = 0;
  for (const Sequence& sequence : sequences) all += static_cast<int64_t>((sequence.*field).size());
  if (all == 0) return {};
  const auto rows = static_cast<int64_t>(sequences.size());
  at::Tensor tensor = as_rows ? at::empty({rows, all / rows}, at::kLong) : at::empty({all}, at::kLong);
  int64_t* to = tensor.mutable_data_ptr<int64_t>();
  for (const Sequence& sequence : sequences) to = std::copy((sequence.*field).begin(), (sequence.*field).end(), to);
  return tensor;
}

class SequenceBatches final : public Batches {
 public:
  explicit SequenceBatches(std::unique_ptr<Sequences> sequences) : sequences_(std::move(sequences)) {}

  [[nodiscard]] Batch batch(int64_t first, int64_t count) const override {
    if (first < 0 || count < 1) fail("{} sequences from number {}: expected 1 or more, from 0 or more", count, first);
    std::vector<Sequence> all;
    for (int64_t k = 0; k < count; ++k) {
      all.push_back(sequences_->at(first + k));
      const int64_t length = static_cast<int64_t>(all.back().input.size());
      for (int64_t& position : all.back().positions) position += k * length;
    }
    Batch batch;
    batch.input = joined(all, &Sequence::input, true);
    batch.segments = joined(all, &Sequence::segments, true);
    batch.decoder_input = joined(all, &Sequence::decoder_input, true);
    batch.positions = joined(all, &Sequence::positions, false);
    batch.targets = joined(all, &Sequence::targets, false);
    batch.next = joined(all, &Sequence::next, false);
    return batch;
  }
  [[nodiscard]] int64_t pass() const override { return sequences_->pass(); }

 private:
  std::unique_ptr<Sequences> sequences_;
};

}  // namespace

struct Dataset::Files {
  explicit Files(const std::filesystem::path& folder)
      : info(read_dataset_info(folder)), tokenizer_file(folder / "tokenizer.model"), tokenizer(tokenizer_file) {
    if (tokenizer.size() != info.vocabulary) {
      fail("{}: {} pieces, but data.json beside it says {}; prepare the data again", tokenizer_file.native(),
           tokenizer.size(), info.vocabulary);
    }
    const auto open = [&](const char* name, int64_t tokens, int64_t documents) {
      auto file = std::make_shared<TokenFile>(folder / name, info.vocabulary, tokenizer.fingerprint());
      if (file->tokens() != tokens || file->documents() != documents) {
        fail("{}: {} tokens in {} documents, but data.json beside it says {} in {}; prepare the data again",
             file->path().native(), file->tokens(), file->documents(), tokens, documents);
      }
      return file;
    };
    train = open("train.tokens", info.train_tokens, info.train_documents);
    valid = open("valid.tokens", info.valid_tokens, info.valid_documents);
  }

  DatasetInfo info;
  std::filesystem::path tokenizer_file;
  Tokenizer tokenizer;
  std::shared_ptr<const TokenFile> train, valid;
};

Dataset::Dataset(const std::filesystem::path& folder) : files_(std::make_unique<Files>(folder)) {}
Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;

const DatasetInfo& Dataset::info() const { return files_->info; }
const Tokenizer& Dataset::tokenizer() const { return files_->tokenizer; }

const std::filesystem::path& Dataset::tokenizer_file() const { return files_->tokenizer_file; }

std::unique_ptr<Batches> Dataset::batches(Half half, const BatchOptions& options) const {
  return std::make_unique<SequenceBatches>(
      make_sequences(half == Half::train ? files_->train : files_->valid, options));
}

}  // namespace lab
