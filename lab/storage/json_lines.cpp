// Appending, cutting back and reading lines of JSON.
#include "storage/json_lines.hpp"

#include <fcntl.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "error.hpp"
#include "storage/json.hpp"

namespace lab {

int64_t length_to_keep(const std::filesystem::path& path, int64_t length) {
  if (!std::filesystem::exists(path)) return 0;
  const Descriptor file(path, O_RDONLY);
  const int64_t found = file.size();
  constexpr const char* kAdvice = "put the run's own file back, or move this one away to go on without it";
  if (length < 0 || found < length) {
    fail("{}: {} bytes, but the checkpoint was made when there were {}: {}", path.string(), found, length, kAdvice);
  }
  if (length > 0 && file.byte_at(length - 1) != std::byte{'\n'}) {
    fail("{}: no line ends at byte {}, where the checkpoint was made: not the file of this run; {}", path.string(),
         length, kAdvice);
  }
  return length;
}

int64_t whole_lines(const std::filesystem::path& path, int64_t length) {
  if (!is_file(path)) return 0;
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  const size_t end = text.substr(0, static_cast<size_t>(std::max<int64_t>(length, 0))).rfind('\n');
  return end == std::string_view::npos ? 0 : static_cast<int64_t>(end) + 1;
}

JsonLines::JsonLines(const std::filesystem::path& path, int64_t length)
    : size_(length_to_keep(path, length)), file_(path, O_RDWR | O_APPEND | O_CREAT) {
  file_.truncate(size_);
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
