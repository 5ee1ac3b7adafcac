// Safetensors files: named arrays, read through a memory map and written so that a reader finds the old file or the
// whole new one.  Knows nothing of torch.  Data may begin at any byte: copy before use as anything wider.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lab {

class MappedFile;

/// One array; `data` belongs to someone else.
struct StoredTensor {
  std::string name;
  std::string dtype;  ///< As the format spells it: "F32", "BF16", "I64", "U8", ...
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

/// Bits per element of a dtype of the format, or 0 where it has no such dtype.
[[nodiscard]] int64_t safetensors_bits(std::string_view dtype);

/// What a file holds; the tensors' data lie in the bytes that were parsed.
struct Safetensors {
  std::vector<StoredTensor> tensors;  ///< In the order of their data.
  std::map<std::string, std::string> metadata;

  /// The tensor with this name, or nullptr.
  [[nodiscard]] const StoredTensor* find(const std::string& name) const;
};

/// Reads the header and checks all of it: sizes, dtypes, ranges, overlaps, holes, length.  Throws an Error; never
/// reads outside `file`.
[[nodiscard]] Safetensors parse_safetensors(std::span<const std::byte> file);

/// A file, memory-mapped while this lives.
class SafetensorsFile {
 public:
  /// Throws an Error that begins with the path.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  [[nodiscard]] const Safetensors& contents() const { return contents_; }

 private:
  std::unique_ptr<MappedFile> map_;
  Safetensors contents_;
};

/// The bytes before the data, as the reference implementation writes them, and the tensors in the order of their data:
/// the same tensors, in any order, give the same bytes.  Throws an Error where two share a name or one does not fit its
/// shape.
struct SafetensorsLayout {
  std::string head;
  std::vector<StoredTensor> tensors;
  uint64_t data_size = 0;  ///< Bytes of them all.
};
[[nodiscard]] SafetensorsLayout layout_safetensors(std::span<const StoredTensor> tensors,
                                                   const std::map<std::string, std::string>& metadata = {});

/// Writes a file beside `path`, flushes it to disk and renames it; throws an Error, and leaves what was at `path`.
void write_safetensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace lab
