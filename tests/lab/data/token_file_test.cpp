// Files of tokens: what is written is read, and what is not whole or not ours is refused.
#include "support.hpp"

namespace lab_test {
namespace {

using lab::TokenFile, lab::TokenWriter;

class LabTokenFile : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Widths, LabTokenFile, testing::Values(363, 65536, 65537, 1000000));

TEST_P(LabTokenFile, HoldsWhatWasWritten) {
  const TempFolder folder;
  const int64_t vocabulary = GetParam();
  // Lengths for which the table of documents needs padding.
  for (const std::vector<int64_t>& documents : {std::vector<int64_t>{4}, {2, 3}, {1, 5, 1}, {100, 20, 3}}) {
    {
      TokenWriter writer(folder / "x.tokens", vocabulary, 42);
      for (const int64_t length : documents) {
        for (int64_t k = 0; k + 1 < length; ++k) {
          const int64_t token = vocabulary - 1 - k;
          writer.add({&token, 1});
        }
        writer.end_document();
      }
      writer.finish();
    }
    EXPECT_EQ(folder.names(), std::vector<std::string>{"x.tokens"});
    const TokenFile file(folder / "x.tokens", vocabulary, 42);
    ASSERT_EQ(file.documents(), std::ssize(documents));
    int64_t place = 0;
    for (int64_t d = 0; d < file.documents(); ++d) {
      EXPECT_EQ(file.document_start(d), place);
      for (int64_t k = 0; k < documents[static_cast<size_t>(d)]; ++k, ++place) {
        EXPECT_EQ(file.token(place), k + 1 < documents[static_cast<size_t>(d)] ? vocabulary - 1 - k : lab::kEnd);
        EXPECT_EQ(file.document_of(place), d);
      }
    }
    EXPECT_EQ(file.tokens(), place);
    EXPECT_EQ(file.document_start(file.documents()), place);
    const auto width = static_cast<uintmax_t>(vocabulary <= 65536 ? 2 : 4);
    EXPECT_EQ(fs::file_size(folder / "x.tokens"),
              64 + (static_cast<uintmax_t>(place) * width + 7) / 8 * 8 + 8 * documents.size());
  }
}

TEST(LabTokenFiles, ThatAreNotWholeOrNotOursAreRefused) {
  const TempFolder folder;
  const fs::path path = folder / "x.tokens";
  make_tokens(path, {10, 20}, 1000);
  const std::string bytes = read(path);
  ASSERT_EQ(bytes.size(), 64U + 64 + 16);
  const auto error = [&](const std::string& contents, int64_t vocabulary = 1000, uint64_t fingerprint = 7) {
    write(path, contents);
    const std::string message = error_of([&] { const TokenFile file(path, vocabulary, fingerprint); });
    EXPECT_TRUE(message.starts_with(path.native() + ": ")) << message;
    EXPECT_TRUE(message.ends_with("; prepare the data again")) << message;
    const size_t begin = std::min(message.size(), path.native().size() + 2);
    return message.substr(begin, message.rfind(';') - begin);
  };
  const auto changed = [&](size_t place, char to) {
    std::string other = bytes;
    other[place] = to;
    return other;
  };
  EXPECT_EQ(error(""), "not a file of tokens");
  EXPECT_EQ(error(bytes.substr(0, 63)), "not a file of tokens");
  EXPECT_EQ(error(changed(0, 'C')), "not a file of tokens");
  EXPECT_EQ(error(changed(8, 2)), "version 2, expected 1");
  EXPECT_EQ(error(changed(12, 4)), "4 bytes per token, which do not fit a vocabulary of 1000");
  EXPECT_EQ(error(bytes, 1001), "made for a vocabulary of 1000, expected 1001");
  EXPECT_EQ(error(bytes, 1000, 8), "made with another tokenizer than the one beside it");
  EXPECT_EQ(error(bytes.substr(0, bytes.size() - 1)), "holds 143 bytes, expected 144; it was cut off");
  EXPECT_EQ(error(bytes + "x"), "holds 145 bytes, expected 144; it was added to");
  EXPECT_EQ(error(bytes.substr(0, 64)), "holds 64 bytes, expected 144; it was cut off");
  EXPECT_EQ(error(changed(39, 1)), "holds 144 bytes, fewer than its header says; it was cut off");
  EXPECT_EQ(error(changed(47, 1)), "holds 144 bytes, fewer than its header says; it was cut off");
  EXPECT_EQ(error(changed(40, 0)), "holds 30 tokens and no document");
  fs::remove(path);
  EXPECT_EQ(error_of([&] { const TokenFile file(path, 1000, 7); }),
            path.native() + ": No such file or directory; prepare the data again");
}

TEST(LabTokenFiles, ThatAreDamagedAreNoticedWhereTheyAreRead) {
  const TempFolder folder;
  const fs::path path = folder / "x.tokens";
  make_tokens(path, {10, 20}, 1000);
  std::string bytes = read(path);
  bytes[64 + 2 * 3 + 1] = '\x7f';
  bytes[64 + 64 + 8] = 99;
  write(path, bytes);
  const TokenFile file(path, 1000, 7);
  EXPECT_EQ(file.token(2), 202);
  EXPECT_EQ(error_of([&] { (void)file.token(3); }),
            path.native() + ": token 3 is 32715, expected less than 1000; the file is damaged, prepare the data again");
  EXPECT_EQ(error_of([&] { (void)file.document_of(3); }),
            path.native() +
                ": document 1 begins at 99, expected less than 30; the file is damaged, prepare the data "
                "again");
}

TEST(LabTokenFiles, WhoseDocumentsAreNotInOrderAreNoticedWhereTheyAreRead) {
  const TempFolder folder;
  const fs::path path = folder / "x.tokens";
  make_tokens(path, {10, 10, 10}, 1000);
  const std::string bytes = read(path);
  const auto error = [&](size_t document, char start) {
    std::string damaged = bytes;
    damaged[64 + 64 + 8 * document] = start;
    write(path, damaged);
    const TokenFile file(path, 1000, 7);
    return error_of([&] { (void)file.document_start(static_cast<int64_t>(document)); });
  };
  const std::string end = "; the file is damaged, prepare the data again";
  EXPECT_EQ(error(0, 3), path.native() + ": document 0 begins at 3, expected 0" + end);
  EXPECT_EQ(error(1, 0), path.native() + ": document 1 begins at 0, expected more than 0" + end);
  EXPECT_EQ(error(2, 10), path.native() + ": document 2 begins at 10, expected more than 10" + end);
  EXPECT_EQ(error(2, 11), "");
}

}  // namespace
}  // namespace lab_test
