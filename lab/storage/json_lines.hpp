// Metrics: a file of JSON objects, one a line, only ever appended to.  A checkpoint keeps the file's length, so that a
// resumed run cuts off what came after it and goes on as if it had never stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "storage/file.hpp"

namespace lab {

/// How many bytes of such a file a checkpoint goes on with that was made when there were `length`: so many, or none
/// where the file is gone.  Throws an Error if the file is shorter, or if no line ends there.  Changes nothing.
[[nodiscard]] int64_t length_to_keep(const std::filesystem::path& path, int64_t length);
/// The same for a file that nobody has to have: as many whole lines as there are in its first `length` bytes.
[[nodiscard]] int64_t whole_lines(const std::filesystem::path& path, int64_t length);

/// Such a file, open for append.
class JsonLines {
 public:
  /// Opens it with its first `length` bytes and cuts off the rest; 0 begins a new one.  Throws an Error, and cuts
  /// nothing, as length_to_keep does.
  JsonLines(const std::filesystem::path& path, int64_t length);

  /// Adds a line in one write: it is there as a whole or, after an Error, not at all.  Keys keep their order; numbers
  /// that are not finite become null.
  void append(const nlohmann::ordered_json& object);
  /// Bytes so far.
  [[nodiscard]] int64_t size() const { return size_; }
  /// Flushes to disk; before a checkpoint that keeps size().
  void sync();

 private:
  int64_t size_;  // checked before the file is opened, which may make one
  Descriptor file_;
};

/// All objects of such a file.  A last line without its end, from a writer that was killed, is left out.
[[nodiscard]] std::vector<nlohmann::json> read_json_lines(const std::filesystem::path& path);

}  // namespace lab
