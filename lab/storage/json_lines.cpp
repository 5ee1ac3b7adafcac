// Appending, cutting back and reading lines of JSON.
#include "storage/json_lines.hpp"

#include <fcntl.h>

#include <string>
#include <string_view>

#include "error.hpp"
#include "storage/json.hpp"

namespace lab {

JsonLines::JsonLines(const std::filesystem::path& path, int64_t length)
    : file_(path, O_RDWR | O_APPEND | O_CREAT), size_(length) {
  const int64_t found = file_.size();
  if (found < length) {
    fail("{}: {} bytes, but the checkpoint was made when there were {}: go on from an earlier one, or begin a new run",
         path.string(), found, length);
  }
  if (length > 0 && file_.byte_at(length - 1) != std::byte{'\n'}) {
    fail("{}: no line ends at byte {}, where the checkpoint was made: not the file of this run", path.string(), length);
  }
  file_.truncate(length);
}

void JsonLines::append(const nlohmann::ordered_json& object) {
  if (!object.is_object()) fail("a line of metrics is a JSON object, not {}", object.type_name());
  std::string line;
  try {
    line = object.dump() + '\n';
  } catch (const nlohmann::json::exception&) {
    fail("metrics: a name or a text is not valid UTF-8");
  }
  file_.append(line, size_);
  size_ += static_cast<int64_t>(line.size());
}

void JsonLines::sync() { file_.sync(); }

std::vector<nlohmann::json> read_json_lines(const std::filesystem::path& path) {
  const MappedFile file(path);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::vector<nlohmann::json> objects;
  for (int64_t line = 1;; ++line) {
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) return objects;
    try {
      objects.push_back(parse_json(rest.substr(0, end)));
      if (!objects.back().is_object()) fail("not a JSON object");
    } catch (const Error& error) {
      fail("{}: line {}: {}", path.string(), line, error.what());
    }
    rest.remove_prefix(end + 1);
  }
}

}  // namespace lab
