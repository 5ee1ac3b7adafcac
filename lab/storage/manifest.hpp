// Private to lab/storage: names of checkpoint folders, and the manifest that lies in each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace lab::detail {

inline constexpr std::string_view kManifest = "manifest.json";

// Hidden names of a checkpoint folder.
inline constexpr std::string_view kUnfinished = ".tmp";  // not yet committed
inline constexpr std::string_view kReplaced = ".old";    // set aside while another takes its place
inline constexpr std::string_view kDoomed = ".gone";     // being deleted

/// "step-00001200"; hidden: ".step-00001200" and the ending.
[[nodiscard]] std::string step_name(int64_t step);
[[nodiscard]] std::string hidden_step_name(int64_t step, std::string_view ending);
/// The step of such a name, where it is one.
[[nodiscard]] std::optional<int64_t> parse_step_name(std::string_view name);
[[nodiscard]] std::optional<int64_t> parse_hidden_step_name(std::string_view name, std::string_view ending);

/// Whether a file of a checkpoint may have this name: nothing that leads out of the folder or hides in it.
[[nodiscard]] bool plain_name(std::string_view name);

/// Puts folder `from` in the place of `to`, which it deletes; `aside` is where that may be meanwhile.  With `exchange`,
/// there is a folder at `to` at every moment, where the filesystem can do that.
void replace_folder(const std::filesystem::path& from, const std::filesystem::path& to,
                    const std::filesystem::path& aside, bool exchange);

/// What is known of one file.
struct FileRecord {
  int64_t size = 0;
  uint32_t crc = 0;
  bool operator==(const FileRecord&) const = default;
};

/// Reads a file to its end.
[[nodiscard]] FileRecord record_of(const std::filesystem::path& file);

/// manifest.json, with a checksum over itself.
struct Manifest {
  int64_t step = 0;
  nlohmann::json about;
  std::map<std::string, FileRecord> files;
};

/// Throws an Error if a text in `about` is not UTF-8.
[[nodiscard]] std::string write_manifest(const Manifest& manifest);
/// Reads FOLDER/manifest.json and checks it; throws an Error that begins with its path.
[[nodiscard]] Manifest read_manifest(const std::filesystem::path& folder);

}  // namespace lab::detail
