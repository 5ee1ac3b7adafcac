// Event files as bytes: frames, checksums, names.  What TensorBoard makes of them is in tests/python.
#include "storage/event_file.hpp"

#include <cstdint>
#include <cstring>

#include "folder.hpp"
#include "storage/crc32c.hpp"

namespace lab_test {
namespace {

uint64_t number(const std::string& text, size_t at, size_t size) {
  uint64_t value = 0;
  std::memcpy(&value, text.data() + at, size);
  return value;
}

uint32_t unmasked(uint64_t masked) {
  const auto rotated = static_cast<uint32_t>(masked) - 0xA282EAD8;
  return rotated >> 17 | rotated << 15;
}

/// The events of a file, once the frames are as they should be.
std::vector<std::string> events(const std::string& file) {
  std::vector<std::string> all;
  for (size_t at = 0; at < file.size();) {
    const uint64_t size = number(file, at, 8);
    EXPECT_LE(at + 16 + size, file.size());
    EXPECT_EQ(unmasked(number(file, at + 8, 4)), lab::crc32c(bytes(file).subspan(at, 8)));
    all.push_back(file.substr(at + 12, size));
    EXPECT_EQ(unmasked(number(file, at + 12 + size, 4)), lab::crc32c(bytes(all.back())));
    at += 16 + size;
  }
  return all;
}

TEST(EventFile, HoldsWhatWasWrittenAsSoonAsItWas) {
  const Folder folder;
  lab::EventFile file(folder / "logs", 7);
  file.scalar(300, "loss", 2.5);
  const auto found = events(read(file.path()));
  ASSERT_EQ(found.size(), 3U);
  EXPECT_NE(found[0].find("\x1A\x0D"
                          "brain.Event:2"),
            std::string::npos);
  EXPECT_EQ(found[1].substr(9), std::string("\x10\x07"
                                            "\x3A\x02\x08\x01"));
  // Field 1: the time; 2: the step, 300; 5: a summary with one value of 11 bytes, tag "loss" and 2.5F.
  EXPECT_EQ(found[2].substr(9), std::string("\x10\xAC\x02"
                                            "\x2A\x0D\x0A\x0B\x0A\x04loss\x15\0\0\x20\x40",
                                            18));
}

TEST(EventFile, NamesSortInTheOrderOfStarts) {
  const Folder folder;
  std::vector<std::string> names;
  for (int start = 0; start < 3; ++start) names.push_back(lab::EventFile(folder.path()).path().filename().string());
  EXPECT_EQ(names_in(folder.path()), names);
  // One from a clock that was ahead.
  write(folder / "events.out.tfevents.3000000000.elsewhere.1", "");
  EXPECT_GT(lab::EventFile(folder.path()).path().filename().string(), "events.out.tfevents.3000000001");
}

TEST(EventFile, SaysWhereItCannotWrite) {
  const Folder folder;
  write(folder / "file", "");
  EXPECT_TRUE(says(error_of([&] { lab::EventFile(folder / "file" / "logs"); }), {(folder / "file").string()}));
}

}  // namespace
}  // namespace lab_test
