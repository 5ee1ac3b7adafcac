// What all fuzz targets share.  A target is a function of some bytes that returns whether they were accepted, and stops
// the program where what must hold of any bytes does not: libFuzzer expects that, and so does the replay of its corpus.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace came_fuzz {

using Input = std::span<const std::byte>;

// One per target; the file of this name has its check.
bool check_c_api(Input input);
bool check_config(Input input);
bool check_dataset(Input input);
bool check_manifest(Input input);
bool check_safetensors(Input input);
bool check_token_file(Input input);

/// Stops the program unless this holds.
void require(bool holds, const std::string& what);

/// Stops it if this is no message for a person: empty, of several lines, or long beside the input it is about.
void require_message(const std::string& message);

/// A file in memory, rewritten for every input, in a folder that goes with the program.
class InputFile {
 public:
  explicit InputFile(const std::string& name);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  void write(Input input) const;
  void write(std::string_view text) const { write(std::as_bytes(std::span(text))); }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path folder_, path_;
};

/// Bytes that this thread has allocated so far.
int64_t allocated_bytes();

/// Runs `parse` and stops the program if it allocates out of proportion to an input of this size.
template <class Parse>
auto within_bounds(size_t input, Parse parse) {
  struct Meter {
    int64_t most;
    ~Meter() { require(allocated_bytes() <= most, "allocates out of proportion to its input"); }
  };
  // A node of a JSON or TOML tree takes some 200 bytes for two of text, and is copied a few times; files are read
  // through buffers of a megabyte.
  constexpr int64_t kPerByte = 4096;
  constexpr int64_t kBuffers = int64_t{8} << 20;
  const Meter meter{allocated_bytes() + kBuffers + kPerByte * static_cast<int64_t>(input)};
  return parse();
}

}  // namespace came_fuzz
