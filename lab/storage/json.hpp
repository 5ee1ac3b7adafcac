// JSON from files that may be damaged or hostile: what the parser lets pass, repeated keys and bottomless nesting, is
// refused, and every fault is an Error.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lab {

/// Parses one JSON value; throws an Error such as "byte 17: not valid JSON".  `depth` is how many objects and arrays
/// may lie in one another.
[[nodiscard]] nlohmann::json parse_json(std::string_view text, size_t depth = 64);

/// One line of JSON; throws an Error if a string in it is not UTF-8.
[[nodiscard]] std::string dump_json(const nlohmann::json& value);

/// A name from a file as an error message can show it: in quotes, on one line, not too long.
[[nodiscard]] std::string quote_name(std::string_view name);

}  // namespace lab
