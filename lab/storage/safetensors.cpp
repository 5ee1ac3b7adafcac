// A file is the length of its header (8 bytes, little-endian), the header in JSON, padded with spaces to a multiple of
// 8, and the arrays without gaps.  The header gives each array's dtype, shape and range of bytes after the header, and
// under __metadata__ a map of strings.
#include "storage/safetensors.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "error.hpp"
#include "storage/file.hpp"
#include "storage/json.hpp"

namespace lab {
namespace {

using nlohmann::json;

constexpr size_t kPrefix = 8;
constexpr uint64_t kMostHeader = 100'000'000;  // what the reference implementation reads
constexpr std::string_view kMetadata = "__metadata__";

struct Dtype {
  std::string_view name;
  int64_t bits;
};

/// In the order in which the reference implementation ranks them; it writes the highest first.
constexpr std::array<Dtype, 22> kDtypes{{
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
}};

/// Its rank, or the number of dtypes.
size_t rank_of(std::string_view dtype) {
  const auto* at = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) { return d.name == dtype; });
  return static_cast<size_t>(at - kDtypes.begin());
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

/// Bytes of an array; throws an Error where they are no number.
uint64_t byte_count(const std::string& dtype, const std::vector<int64_t>& shape) {
  const int64_t bits = safetensors_bits(dtype);
  if (bits == 0) fail("unknown dtype {}", quote_name(dtype));
  int64_t total = bits;
  bool empty = false;
  for (const int64_t size : shape) {
    if (size < 0) fail("negative size in shape {}", shape_text(shape));
    empty = empty || size == 0;
    // As if zeros were ones: strides of an empty array must be numbers too.
    if (__builtin_mul_overflow(total, std::max<int64_t>(size, 1), &total)) {
      fail("shape {} of {} overflows", shape_text(shape), dtype);
    }
  }
  if (empty) return 0;
  if (total % 8 != 0) fail("shape {} of {} does not end at a whole byte", shape_text(shape), dtype);
  return static_cast<uint64_t>(total / 8);
}

/// A number of the header: not negative, and an int64.
std::optional<int64_t> natural(const json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > std::numeric_limits<int64_t>::max()) return std::nullopt;
  return value.get<int64_t>();
}

std::map<std::string, std::string> read_metadata(const json& value) {
  if (!value.is_object()) fail("__metadata__ is not an object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) fail("__metadata__: {} is not a string", quote_name(key));
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

/// A tensor of the header, and where its data begin and end behind the header.
struct Entry {
  StoredTensor tensor;
  uint64_t begin = 0;
  uint64_t end = 0;
};

Entry read_entry(const std::string& name, const json& value, uint64_t data_size) {
  if (!value.is_object()) fail("not an object");
  for (const auto& [key, unused] : value.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") fail("unknown key {}", quote_name(key));
  }
  if (value.size() != 3) fail("dtype, shape or data_offsets is missing");
  Entry entry;
  entry.tensor.name = name;
  if (!value["dtype"].is_string()) fail("dtype is not a string");
  entry.tensor.dtype = value["dtype"].get<std::string>();
  if (!value["shape"].is_array()) fail("shape is not an array");
  for (const json& size : value["shape"]) {
    const auto number = natural(size);
    if (!number) fail("a size in its shape is not a whole number from 0 to 2^63 - 1");
    entry.tensor.shape.push_back(*number);
  }
  const json& range = value["data_offsets"];
  if (!range.is_array() || range.size() != 2 || !natural(range[0]) || !natural(range[1])) {
    fail("data_offsets are not two whole numbers");
  }
  entry.begin = range[0].get<uint64_t>();
  entry.end = range[1].get<uint64_t>();
  if (entry.begin > entry.end || entry.end > data_size) {
    fail("data_offsets {} to {}, but there are {} bytes of data", entry.begin, entry.end, data_size);
  }
  const uint64_t bytes = byte_count(entry.tensor.dtype, entry.tensor.shape);
  if (entry.end - entry.begin != bytes) {
    fail("data_offsets hold {} bytes, but {} {} takes {}", entry.end - entry.begin, entry.tensor.dtype,
         shape_text(entry.tensor.shape), bytes);
  }
  return entry;
}

/// Gives the entries their data, once they are known to follow one another from the first byte to the last.
std::vector<StoredTensor> place(std::vector<Entry> entries, std::span<const std::byte> data) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  std::vector<StoredTensor> tensors;
  uint64_t at = 0;
  for (Entry& entry : entries) {
    if (entry.begin != at) {
      fail("tensor {}: begins at byte {} of the data, but what is before it ends at {}: they {}",
           quote_name(entry.tensor.name), entry.begin, at, entry.begin < at ? "overlap" : "leave a hole");
    }
    at = entry.end;
    entry.tensor.data = data.subspan(entry.begin, entry.end - entry.begin);
    tensors.push_back(std::move(entry.tensor));
  }
  if (at != data.size()) fail("{} bytes after the last tensor", data.size() - at);
  return tensors;
}

}  // namespace

int64_t safetensors_bits(std::string_view dtype) {
  const size_t rank = rank_of(dtype);
  return rank < kDtypes.size() ? kDtypes[rank].bits : 0;
}

const StoredTensor* Safetensors::find(const std::string& name) const {
  const auto at = std::find_if(tensors.begin(), tensors.end(), [&](const StoredTensor& t) { return t.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

Safetensors parse_safetensors(std::span<const std::byte> file) {
  if (file.size() < kPrefix) fail("{} bytes are no safetensors file, which has 8 or more", file.size());
  uint64_t length = 0;
  for (size_t k = 0; k < kPrefix; ++k) length |= static_cast<uint64_t>(file[k]) << (8 * k);
  if (length > kMostHeader) fail("not a safetensors file: a header of {} bytes is over {}", length, kMostHeader);
  if (length > file.size() - kPrefix) {
    fail("a header of {} bytes, but only {} follow: cut short, or not a safetensors file", length,
         file.size() - kPrefix);
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kPrefix, length);
  if (!text.starts_with('{')) fail("not a safetensors file: its header does not begin with {{");
  const std::span<const std::byte> data = file.subspan(kPrefix + length);

  json header;
  try {
    header = parse_json(text, 3);
  } catch (const Error& error) {
    fail("header: {}", error.what());
  }
  Safetensors contents;
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) {
      contents.metadata = read_metadata(value);
      continue;
    }
    try {
      entries.push_back(read_entry(name, value, data.size()));
    } catch (const Error& error) {
      fail("tensor {}: {}", quote_name(name), error.what());
    }
  }
  contents.tensors = place(std::move(entries), data);
  return contents;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : map_(std::make_unique<MappedFile>(path)) {
  try {
    contents_ = parse_safetensors(map_->bytes());
  } catch (const Error& error) {
    fail("{}: {}", path.string(), error.what());
  }
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

SafetensorsLayout layout_safetensors(std::span<const StoredTensor> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  SafetensorsLayout layout;
  layout.tensors.assign(tensors.begin(), tensors.end());
  std::sort(layout.tensors.begin(), layout.tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    const size_t first = rank_of(a.dtype);
    const size_t second = rank_of(b.dtype);
    return first != second ? first > second : a.name < b.name;
  });
  std::set<std::string_view> names{kMetadata};
  std::string text = "{";
  if (!metadata.empty()) text += fmt::format("\"{}\":{}", kMetadata, dump_json(metadata));
  for (const StoredTensor& tensor : layout.tensors) {
    const uint64_t begin = layout.data_size;
    try {
      if (!names.insert(tensor.name).second) fail("the name is taken");
      const uint64_t bytes = byte_count(tensor.dtype, tensor.shape);
      if (bytes != tensor.data.size()) {
        fail("{} bytes, but {} {} takes {}", tensor.data.size(), tensor.dtype, shape_text(tensor.shape), bytes);
      }
      layout.data_size += bytes;
      text += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", text.size() > 1 ? "," : "",
                          dump_json(tensor.name), tensor.dtype, fmt::join(tensor.shape, ","), begin, layout.data_size);
    } catch (const Error& error) {
      fail("tensor {}: {}", quote_name(tensor.name), error.what());
    }
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMostHeader) fail("a header of {} bytes is over {}", text.size(), kMostHeader);
  for (size_t k = 0; k < kPrefix; ++k) layout.head += static_cast<char>(text.size() >> (8 * k) & 255);
  layout.head += text;
  return layout;
}

void write_safetensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  SafetensorsLayout layout;
  try {
    layout = layout_safetensors(tensors, metadata);
  } catch (const Error& error) {
    fail("{}: {}", path.string(), error.what());
  }
  replace_file(path, [&](const Descriptor& file) {
    file.reserve(static_cast<int64_t>(layout.head.size() + layout.data_size));
    file.write(bytes_of(layout.head));
    for (const StoredTensor& tensor : layout.tensors) file.write(tensor.data);
  });
}

}  // namespace lab
