// data.json, read.
#include "data/info.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/dataset_json.hpp"
#include "error.hpp"

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
  if (const auto version = json.value("version", nlohmann::json()); version != kDatasetVersion) {
    fail("{}: version {}, expected {}; prepare the data again", file.native(), version.dump(), kDatasetVersion);
  }
  try {
    DatasetInfo info;
    json.at("vocabulary").get_to(info.vocabulary);
    json.at("train").at("documents").get_to(info.train_documents);
    json.at("train").at("tokens").get_to(info.train_tokens);
    json.at("train").at("bytes").get_to(info.train_bytes);
    json.at("valid").at("documents").get_to(info.valid_documents);
    json.at("valid").at("tokens").get_to(info.valid_tokens);
    json.at("valid").at("bytes").get_to(info.valid_bytes);
    json.at("bytes_read").get_to(info.bytes_read);
    json.at("validation_share").get_to(info.validation_share);
    json.at("bytes_per_token").get_to(info.bytes_per_token);
    json.at("unigram_loss").get_to(info.unigram_loss);
    return info;
  } catch (const nlohmann::json::exception& error) {
    fail("{}: {}; prepare the data again", file.native(), error.what());
  }
}

}  // namespace lab
