// data.json, read.
#include "data/info.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/dataset_json.hpp"
#include "error.hpp"
#include "json_number.hpp"

namespace lab {

nlohmann::ordered_json to_json(const DatasetInfo& info) {
  return {
      {"format", kDatasetFormat},
      {"version", kDatasetVersion},
      {"vocabulary", info.vocabulary},
      {"train", {{"documents", info.train_documents}, {"tokens", info.train_tokens}, {"bytes", info.train_bytes}}},
      {"valid", {{"documents", info.valid_documents}, {"tokens", info.valid_tokens}, {"bytes", info.valid_bytes}}},
      {"bytes_read", info.bytes_read},
      {"validation_share", info.validation_share},
      {"bytes_per_token", info.bytes_per_token},
      {"unigram_loss", info.unigram_loss},
  };
}

namespace {

bool has_our_format(const nlohmann::json& json) {
  return json.is_object() && json.value("format", nlohmann::json()) == kDatasetFormat;
}

}  // namespace

bool is_dataset(const std::filesystem::path& folder) {
  std::ifstream stream(folder / "data.json");
  return stream && has_our_format(nlohmann::json::parse(stream, nullptr, false));
}

DatasetInfo read_dataset_info(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "data.json";
  std::ifstream stream(file);
  if (!stream) {
    fail("{}: no dataset, it has no data.json that can be read; `came-lab data` makes one", folder.native());
  }
  const auto json = nlohmann::json::parse(stream, nullptr, false);
  if (!has_our_format(json)) {
    fail("{}: not written by `came-lab data`; prepare the data again", file.native());
  }
  try {
    if (const int64_t version = json_count(json, "version"); version != kDatasetVersion) {
      fail("version {}, expected {}", version, kDatasetVersion);
    }
    const auto train = json.value("train", nlohmann::json());
    const auto valid = json.value("valid", nlohmann::json());
    DatasetInfo info;
    info.vocabulary = json_count(json, "vocabulary");
    info.train_documents = json_count(train, "documents");
    info.train_tokens = json_count(train, "tokens");
    info.train_bytes = json_count(train, "bytes");
    info.valid_documents = json_count(valid, "documents");
    info.valid_tokens = json_count(valid, "tokens");
    info.valid_bytes = json_count(valid, "bytes");
    info.bytes_read = json_count(json, "bytes_read");
    info.validation_share = json_number(json, "validation_share");
    info.bytes_per_token = json_number(json, "bytes_per_token");
    info.unigram_loss = json_number(json, "unigram_loss");
    return info;
  } catch (const Error& error) {
    fail("{}: {}; prepare the data again", file.native(), error.what());
  }
}

}  // namespace lab
