// What a prepared dataset is, in numbers: data.json as a struct.  Knows nothing of torch.
#pragma once

#include <cstdint>
#include <filesystem>

namespace lab {

/// What `came-lab data` wrote: a folder with data.json, tokenizer.model, train.tokens and valid.tokens.
struct DatasetInfo {
  int64_t vocabulary = 0;    ///< Pieces of the tokenizer, special ones included.
  int64_t train_tokens = 0;  ///< Documents' ends included.
  int64_t valid_tokens = 0;
  int64_t train_documents = 0;
  int64_t valid_documents = 0;
  int64_t train_bytes = 0;  ///< Of text.
  int64_t valid_bytes = 0;
  int64_t bytes_read = 0;       ///< Of the files: JSON's quotes and blank lines between documents included.
  double validation_share = 0;  ///< Of the tokens, as it came out.
  double bytes_per_token = 0;   ///< Of text, over both halves.
  double unigram_loss = 0;      ///< Nats per validation token of the unigram baseline, which knows only the
                                ///< frequencies of tokens in the training half.
};

/// Whether a folder's data.json says that `came-lab data` wrote it, in whichever version.
[[nodiscard]] bool is_dataset(const std::filesystem::path& folder);
/// Reads data.json of a folder; throws an Error that says what is missing or does not fit.
[[nodiscard]] DatasetInfo read_dataset_info(const std::filesystem::path& folder);

}  // namespace lab
