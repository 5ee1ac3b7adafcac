// nlohmann's parser with a callback that sees every key and every opening bracket.
#include "storage/json.hpp"

#include <set>
#include <vector>

#include "error.hpp"

namespace lab {

using nlohmann::json;

json parse_json(std::string_view text, size_t depth) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int level, json::parse_event_t event, const json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        keys.emplace_back();
        [[fallthrough]];
      case json::parse_event_t::array_start:
        if (static_cast<size_t>(level) >= depth) fail("JSON nested more than {} deep", depth);
        break;
      case json::parse_event_t::object_end:
        keys.pop_back();
        break;
      case json::parse_event_t::key:
        if (!keys.back().insert(parsed.get<std::string>()).second) {
          fail("{} occurs twice", quote_name(parsed.get_ref<const std::string&>()));
        }
        break;
      default:
        break;
    }
    return true;
  };
  // The parser takes a zero byte for the end and ignores what follows; JSON has none.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) fail("byte {}: not valid JSON", zero + 1);
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::parse_error& error) {
    fail("byte {}: not valid JSON", error.byte);
  } catch (const json::exception&) {
    fail("not valid JSON");  // a number beyond the range of double
  }
}

std::string dump_json(const json& value) {
  try {
    return value.dump();
  } catch (const json::exception&) {
    fail("not valid UTF-8: {}", value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 80));
  }
}

std::string quote_name(std::string_view name) {
  constexpr size_t kMost = 80;
  std::string text = json(name).dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() <= kMost) return text;
  size_t end = kMost;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not inside a character
  return text.substr(0, end) + "...\"";
}

}  // namespace lab
