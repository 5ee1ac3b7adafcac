// CRC-32C against its published values, and the two ways of computing it against each other.
#include "storage/crc32c.hpp"

#include "folder.hpp"

namespace lab_test {
namespace {

TEST(Crc32c, GivesThePublishedValues) {
  // RFC 3720, B.4, and the check value of the catalogue of CRCs.
  EXPECT_EQ(lab::crc32c(bytes("123456789")), 0xE3069283);
  EXPECT_EQ(lab::crc32c({}), 0U);
  EXPECT_EQ(lab::crc32c(bytes(std::string(32, '\0'))), 0x8A9136AA);
  EXPECT_EQ(lab::crc32c(bytes(std::string(32, '\xFF'))), 0x62A8AB43);
  std::string rising;
  for (int k = 0; k < 32; ++k) rising += static_cast<char>(k);
  EXPECT_EQ(lab::crc32c(bytes(rising)), 0x46DD794E);
}

TEST(Crc32c, IsTheSameByTablesAtEveryLengthAndOffset) {
  std::string text;
  for (int k = 0; k < 100; ++k) text += static_cast<char>(k * 37 + k * k);
  for (size_t from = 0; from < 9; ++from) {
    for (size_t size = 0; from + size <= text.size(); ++size) {
      const auto part = bytes(text).subspan(from, size);
      EXPECT_EQ(lab::crc32c(part), lab::detail::crc32c_tables(part)) << from << " " << size;
    }
  }
}

TEST(Crc32c, GoesOnWhereItStopped) {
  const std::string text = "a checkpoint is read in pieces";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t first = lab::crc32c(bytes(text).first(cut));
    EXPECT_EQ(lab::crc32c(bytes(text).subspan(cut), first), lab::crc32c(bytes(text)));
    EXPECT_EQ(lab::detail::crc32c_tables(bytes(text).subspan(cut), first), lab::crc32c(bytes(text)));
  }
}

}  // namespace
}  // namespace lab_test
