// The two encodings of an event file, written by hand because they are small: TFRecord frames (length, its masked
// CRC-32C, bytes, their masked CRC-32C) around protocol buffers of TensorFlow's event.proto and summary.proto.
#include "storage/event_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <string_view>

#include "error.hpp"
#include "storage/crc32c.hpp"

namespace lab {
namespace {

constexpr std::string_view kName = "events.out.tfevents.";

/// A protocol buffer under construction.
class Message {
 public:
  Message& varint(int field, uint64_t value) {
    key(field, 0);
    number(value);
    return *this;
  }
  Message& f64(int field, double value) {
    key(field, 1);
    append(std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  Message& f32(int field, float value) {
    key(field, 5);
    append(std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    key(field, 2);
    number(value.size());
    text_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.text_); }
  /// `size` bytes of a number, the lowest first.
  Message& append(uint64_t value, int size) {
    for (int k = 0; k < size; ++k) text_ += static_cast<char>(value >> (8 * k) & 255);
    return *this;
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void key(int field, int type) { number(static_cast<uint64_t>(field << 3 | type)); }
  void number(uint64_t value) {
    for (; value >= 128; value >>= 7) text_ += static_cast<char>((value & 127) | 128);
    text_ += static_cast<char>(value);
  }
  std::string text_;
};

/// TFRecord masks checksums, so that one of a text that holds its own checksum is not degenerate.
uint32_t masked_crc(std::string_view text) {
  const uint32_t crc = crc32c(bytes_of(text));
  return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

/// An Event with its time and step.
Message event(int64_t step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return Message().f64(1, now.count()).varint(2, static_cast<uint64_t>(step));
}

/// The first free second from now on: TensorBoard reads files in the order of their names, and a run may be started
/// twice in one second, or on a machine whose clock is behind.
int64_t next_time(const std::filesystem::path& folder) {
  int64_t time =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (const std::string& name : names_in(folder)) {
    int64_t other = 0;
    if (!name.starts_with(kName)) continue;
    const auto parsed = std::from_chars(name.data() + kName.size(), name.data() + name.size(), other);
    if (parsed.ec == std::errc() && other >= time) time = other + 1;
  }
  return time;
}

std::filesystem::path new_path(const std::filesystem::path& folder) {
  make_folders(folder);
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') host = {'h', 'o', 's', 't'};
  return folder / fmt::format("{}{:010}.{}.{}", kName, next_time(folder), host.data(), ::getpid());
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, std::optional<int64_t> restart)
    : path_(new_path(folder)), file_(path_, O_WRONLY | O_APPEND | O_CREAT | O_EXCL) {
  write(event(0).bytes(3, "brain.Event:2").text());
  if (restart) write(event(*restart).message(7, Message().varint(1, 1)).text());  // SessionLog: START
}

void EventFile::scalars(int64_t step, std::span<const std::pair<std::string, double>> values) {
  Message summary;
  for (const auto& [tag, value] : values) {
    summary.message(1, Message().bytes(1, tag).f32(2, static_cast<float>(value)));
  }
  write(event(step).message(5, summary).text());
}

void EventFile::scalar(int64_t step, const std::string& tag, double value) {
  const std::pair<std::string, double> one(tag, value);
  scalars(step, std::span(&one, 1));
}

void EventFile::text(int64_t step, const std::string& tag, const std::string& text) {
  constexpr uint64_t kString = 7;  // DT_STRING
  const Message shape = Message().message(2, Message().varint(1, 1));
  const Message tensor = Message().varint(1, kString).message(2, shape).bytes(8, text);
  const Message metadata = Message().message(1, Message().bytes(1, "text"));
  const Message value = Message().bytes(1, tag).message(8, tensor).message(9, metadata);
  write(event(step).message(5, Message().message(1, value)).text());
}

void EventFile::write(const std::string& event) {
  const std::string length = Message().append(event.size(), 8).text();
  std::string record = length + Message().append(masked_crc(length), 4).text();
  record += event + Message().append(masked_crc(event), 4).text();
  file_.append(record, size_);
  size_ += static_cast<int64_t>(record.size());
}

}  // namespace lab
