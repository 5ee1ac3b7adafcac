// What data.json begins with.  Private to the data side: others read it through DatasetInfo.
#pragma once

#include <nlohmann/json.hpp>

#include "data/info.hpp"

namespace lab {

inline constexpr const char* kDatasetFormat = "came-lab dataset";
inline constexpr int64_t kDatasetVersion = 1;

/// data.json without the options.
[[nodiscard]] nlohmann::ordered_json to_json(const DatasetInfo& info);

}  // namespace lab
