// What must hold of any manifest.json: it is refused with an Error, or its files may lie in a checkpoint, and writing
// what was read gives a manifest that reads the same.  No fuzzer finds a checksum, so each input is tried with its own
// and with the right one.
#include "storage/manifest.hpp"

#include <optional>

#include "check.hpp"
#include "error.hpp"
#include "storage/checkpoint.hpp"
#include "storage/crc32c.hpp"
#include "storage/file.hpp"
#include "storage/json.hpp"

namespace came_fuzz {
namespace {

/// The same manifest with the checksum that belongs to it; nothing if it is no JSON object.
std::optional<std::string> with_checksum(Input input) {
  try {
    nlohmann::json value = lab::parse_json({reinterpret_cast<const char*>(input.data()), input.size()});
    if (!value.is_object()) return std::nullopt;
    value.erase("crc32c");
    value["crc32c"] = fmt::format("{:08x}", lab::crc32c(lab::bytes_of(lab::dump_json(value))));
    return lab::dump_json(value);
  } catch (const lab::Error& error) {
    require_message(error.what());
    return std::nullopt;
  }
}

bool check_one(const InputFile& file, std::string_view text) {
  file.write(text);
  // Another file, which most manifests do not name and none describes.
  try {
    (void)lab::open_checkpoint(file.folder());
    require(false, "a checkpoint with a file that its manifest does not know");
  } catch (const lab::Error& error) {
    require_message(error.what());
  }
  lab::detail::Manifest manifest;
  try {
    manifest = within_bounds(text.size(), [&] { return lab::detail::read_manifest(file.folder()); });
  } catch (const lab::Error& error) {
    require_message(error.what());
    return false;
  }
  require(manifest.step >= 0, "a negative step");
  require(manifest.about.is_object(), "about that is no object");
  for (const auto& [name, record] : manifest.files) {
    require(lab::detail::plain_name(name) && record.size >= 0, "a file that may not lie in a checkpoint");
  }
  file.write(lab::detail::write_manifest(manifest));
  const lab::detail::Manifest again = lab::detail::read_manifest(file.folder());
  require(again.step == manifest.step && again.about == manifest.about && again.files == manifest.files,
          "what was written reads otherwise");
  return true;
}

}  // namespace

bool check_manifest(Input input) {
  static const InputFile file("manifest.json");
  static const bool beside = [] {
    lab::write_file(file.folder() / "\x7f", "beside");
    return true;
  }();
  require(beside, "no file beside");
  const bool as_it_is = check_one(file, {reinterpret_cast<const char*>(input.data()), input.size()});
  const auto mended = with_checksum(input);
  return (mended && check_one(file, *mended)) || as_it_is;
}

}  // namespace came_fuzz
