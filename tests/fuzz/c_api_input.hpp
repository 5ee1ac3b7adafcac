// The stream of calls that some bytes stand for: numbers drawn from them, mostly small and sound, sometimes at the
// edges or anything, and memory of exactly the bytes that a plan asks for, so that AddressSanitizer sees what lies
// outside.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "came/came.h"
#include "check.hpp"

namespace came_fuzz {

/// Numbers from bytes; zeros after their end.
class Stream {
 public:
  explicit Stream(Input input) : left_(input) {}

  [[nodiscard]] bool empty() const { return left_.empty(); }
  uint8_t byte() {
    if (left_.empty()) return 0;
    const auto first = static_cast<uint8_t>(left_.front());
    left_ = left_.subspan(1);
    return first;
  }
  template <class T>
  T raw() {
    T value{};
    fill(&value, sizeof(T));
    return value;
  }
  void fill(void* memory, size_t bytes) {
    for (size_t k = 0; k < bytes; ++k) static_cast<uint8_t*>(memory)[k] = byte();
  }
  int64_t below(int64_t n) { return byte() % n; }
  /// Rare for bytes that are small numbers, as most of a merged corpus.
  bool one_in(int64_t n) { return byte() % n == n - 1; }

  int64_t size() {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    constexpr std::array<int64_t, 12> kEdges{0,
                                             1,
                                             -1,
                                             16,
                                             17,
                                             33,
                                             4097,
                                             int64_t{1} << 31,
                                             int64_t{1} << 58,
                                             kMost / 2,
                                             kMost,
                                             std::numeric_limits<int64_t>::min()};
    return one_in(16) ? kEdges[static_cast<size_t>(below(12))] : 1 + below(9);
  }
  int32_t number(int32_t sound) {
    constexpr std::array<int32_t, 6> kEdges{
        -1, 7, 65, 1000000000, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()};
    return one_in(32) ? kEdges[static_cast<size_t>(below(6))] : sound;
  }
  double real(double sound) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    constexpr std::array<double, 12> kEdges{
        0,      -1,    1e-300, 1e300,  kInf,   std::numeric_limits<double>::quiet_NaN(),
        5e-324, 1e-38, 0.5,    0x1p24, 0x1p53, 1 - 0x1p-53};
    switch (byte() % 8) {
      case 6:
        return kEdges[static_cast<size_t>(below(12))];
      case 7:
        return raw<double>();
      default:
        return sound;
    }
  }
  std::string text() {
    std::string made(static_cast<size_t>(below(24)), ' ');
    fill(made.data(), made.size());
    return made.substr(0, made.find('\0'));
  }

  /// Mostly what came_options_init gives with a few fields changed, sometimes any bytes.
  came_options options(came_algorithm algorithm);
  /// One parameter; `sizes` holds its shape, offsets and extents.
  came_tensor_spec spec(std::array<int64_t, 192>& sizes, int32_t groups);

 private:
  Input left_;
};

/// So many bytes on the heap, none more.
class Memory {
 public:
  explicit Memory(int64_t bytes) : bytes_(static_cast<size_t>(bytes)), data_(std::calloc(bytes_ > 0 ? bytes_ : 1, 1)) {
    require(data_ != nullptr, "no memory");
  }
  ~Memory() { std::free(data_); }
  Memory(Memory&& other) noexcept : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Memory& operator=(Memory&&) = delete;

  [[nodiscard]] void* data() const { return bytes_ > 0 ? data_ : nullptr; }
  [[nodiscard]] std::string bytes() const { return {static_cast<const char*>(data_), bytes_}; }
  void restore(const std::string& bytes) const { std::memcpy(data_, bytes.data(), bytes_); }
  [[nodiscard]] size_t size() const { return bytes_; }

 private:
  size_t bytes_;
  void* data_;
};

int64_t element_bytes(came_dtype dtype);

/// Fills memory with numbers of this type: small ones, or any bytes of the stream again and again.
void fill_tensor(Stream& stream, const Memory& memory, came_dtype dtype);

/// Spoils one field of a tensor now and then, so that it is refused or asks for no more memory than it has.
void spoil(Stream& stream, came_tensor& tensor);

/// Stops the program unless a refusal has a message and is no defect of the library; returns whether the call was
/// accepted.
bool answered(came_status status);

/// Creates, steps, saves, loads and destroys an optimizer.
void use_optimizer(Stream& stream);
/// Makes a plan, asks it everything and steps it.
void use_plan(Stream& stream);

}  // namespace came_fuzz
