// Numbers from JSON files that may be damaged or hostile.  nlohmann's own conversions take a fraction, a number beyond
// the type's range or a flag for a whole number.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

#include "error.hpp"

namespace lab {

/// A count under a key of an object: a whole number, not negative; throws an Error that names the key.
inline int64_t json_count(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end()) fail("\"{}\" is missing", key);
  // What is not negative is unsigned to the parser.
  const bool fits = found->is_number_unsigned() && found->get<uint64_t>() <= std::numeric_limits<int64_t>::max();
  if (!fits) fail("\"{}\" is no whole number from 0 to 2^63 - 1", key);
  return found->get<int64_t>();
}

/// A number under a key of an object; throws an Error that names the key.
inline double json_number(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end()) fail("\"{}\" is missing", key);
  if (!found->is_number()) fail("\"{}\" is no number", key);
  return found->get<double>();
}

}  // namespace lab
