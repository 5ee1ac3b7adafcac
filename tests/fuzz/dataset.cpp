// What must hold of any data.json: it is refused with an Error, or its counts are counts, and writing what was read
// gives a file that reads the same.
#include <cmath>
#include <cstring>

#include "check.hpp"
#include "data/dataset_json.hpp"
#include "data/info.hpp"
#include "error.hpp"

namespace came_fuzz {

bool check_dataset(Input input) {
  static const InputFile file("data.json");
  file.write(input);
  lab::DatasetInfo info;
  try {
    info = within_bounds(input.size(), [&] { return lab::read_dataset_info(file.folder()); });
  } catch (const lab::Error& error) {
    require_message(error.what());
    return false;
  }
  for (const int64_t count : {info.vocabulary, info.train_tokens, info.valid_tokens, info.train_documents,
                              info.valid_documents, info.train_bytes, info.valid_bytes, info.bytes_read}) {
    require(count >= 0, "a negative count");
  }
  for (const double number : {info.validation_share, info.bytes_per_token, info.unigram_loss}) {
    require(std::isfinite(number), "a number that is none");
  }
  file.write(lab::to_json(info).dump(2));
  const lab::DatasetInfo again = lab::read_dataset_info(file.folder());
  // Of eight-byte numbers alone: nothing lies between them.
  require(std::memcmp(&info, &again, sizeof(info)) == 0, "what was written reads otherwise");
  return true;
}

}  // namespace came_fuzz
