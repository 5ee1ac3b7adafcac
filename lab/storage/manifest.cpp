// manifest.json: {"format", "step", "about", "files": {name: {"size", "crc32c"}}, "crc32c"}; the last is that of the
// others written on one line, so that a flipped digit does not pass for another one.
#include "storage/manifest.hpp"

#include <fcntl.h>

#include <charconv>
#include <vector>

#include "error.hpp"
#include "json_number.hpp"
#include "storage/crc32c.hpp"
#include "storage/file.hpp"
#include "storage/json.hpp"

namespace lab::detail {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "came-lab checkpoint 1";
constexpr std::string_view kStep = "step-";

std::string hex(uint32_t crc) { return fmt::format("{:08x}", crc); }

uint32_t crc_of(const json& value) { return crc32c(bytes_of(dump_json(value))); }

FileRecord read_record(const std::string& name, const json& value) {
  FileRecord record;
  const std::string crc = value.at("crc32c").get<std::string>();
  const auto parsed = std::from_chars(crc.data(), crc.data() + crc.size(), record.crc, 16);
  record.size = json_count(value, "size");
  if (!plain_name(name) || parsed.ec != std::errc() || hex(record.crc) != crc) {
    fail("an entry for {} that is no plain file", quote_name(name));
  }
  return record;
}

Manifest read(json value) {
  if (!value.is_object() || value.value("format", json()) != kFormat) {
    fail("\"format\" is not \"{}\": not a checkpoint of came-lab, or one of another version", kFormat);
  }
  const json found = value.value("crc32c", json());
  value.erase("crc32c");
  if (found != hex(crc_of(value)))
    fail("its own CRC-32C is {}, but should be {}", dump_json(found), hex(crc_of(value)));
  Manifest manifest;
  manifest.step = json_count(value, "step");
  manifest.about = value.at("about");
  const json& files = value.at("files");
  if (!manifest.about.is_object() || !files.is_object()) fail("\"about\" or \"files\" is no object");
  for (const auto& [name, record] : files.items()) manifest.files[name] = read_record(name, record);
  return manifest;
}

}  // namespace

bool plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos && name != kManifest;
}

std::string step_name(int64_t step) { return fmt::format("{}{:08}", kStep, step); }

std::string hidden_step_name(int64_t step, std::string_view ending) {
  return fmt::format(".{}{}", step_name(step), ending);
}

std::optional<int64_t> parse_step_name(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  int64_t step = -1;
  std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
  // Whatever else is not the name that the step gives.
  return step >= 0 && step_name(step) == name ? std::optional(step) : std::nullopt;
}

std::optional<int64_t> parse_hidden_step_name(std::string_view name, std::string_view ending) {
  if (!name.starts_with('.') || !name.ends_with(ending)) return std::nullopt;
  name.remove_prefix(1);
  name.remove_suffix(ending.size());
  return parse_step_name(name);
}

FileRecord record_of(const std::filesystem::path& file) {
  // Read rather than mapped: a bad sector is an error here and a signal there.
  const Descriptor open(file, O_RDONLY);
  std::vector<std::byte> buffer(size_t{1} << 20);
  FileRecord record;
  while (const size_t got = open.read(buffer)) {
    record.crc = crc32c(std::span(buffer).first(got), record.crc);
    record.size += static_cast<int64_t>(got);
  }
  return record;
}

std::string write_manifest(const Manifest& manifest) {
  json value{{"format", kFormat}, {"step", manifest.step}, {"about", manifest.about}, {"files", json::object()}};
  for (const auto& [name, record] : manifest.files) {
    value["files"][name] = {{"size", record.size}, {"crc32c", hex(record.crc)}};
  }
  value["crc32c"] = hex(crc_of(value));
  return value.dump(2) + '\n';
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const auto path = folder / kManifest;
  const std::string text = read_file(path);
  try {
    return read(parse_json(text));
  } catch (const Error& error) {
    fail("{}: {}", path.string(), error.what());
  } catch (const json::exception&) {
    fail("{}: not a manifest of came-lab", path.string());
  }
}

}  // namespace lab::detail
