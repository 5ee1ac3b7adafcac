// Text to tokens and back.
#include <iterator>

#include "support.hpp"

namespace lab_test {
namespace {

using lab::Tokenizer, lab::WordCache;
using Tokens = std::vector<int64_t>;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t k = 0; k < text.size(); k = text.find('\n', k) + 1)
    lines.push_back(text.substr(k, text.find('\n', k) - k));
  return lines;
}

/// Has seen the special pieces' names, indentation, tabs and some characters beyond ASCII many times.
class LabTokenizer : public testing::Test {
 protected:
  LabTokenizer() : tokenizer(make_tokenizer(folder / "tokenizer.model", training_lines(), 600)) {}

  static std::vector<std::string> training_lines() {
    std::vector<std::string> lines = lines_of(make_text(20000));
    for (int k = 0; k < 50; ++k) {
      lines.insert(lines.end(), {"[MASK] [CLS] [SEP] </s> <pad> <unk> <extra_id_0>[MASK]", "    indented  text\r",
                                 "a\ttab <0x41> <0x0A>", "caf\xc3\xa9 \xf0\x9f\x98\x80 \xe4\xb8\xad\xe6\x96\x87"});
    }
    return lines;
  }

  TempFolder folder;
  Tokenizer tokenizer;
};

const std::string kTexts[] = {
    "",
    " ",
    "\n",
    "kamo tiren.",
    "  leading and trailing  ",
    "\n\n\ttab\t\ttabs \t \n",
    "dos\r\nlines\r\n\r\n",
    "runs          of                    spaces",
    "[MASK] </s> <pad><unk> [CLS][SEP] <extra_id_0> <extra_id_99> <s> <0x41> <0x0A> <0x00>",
    "\xf0\x9f\x98\x80\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb e\xcc\x81 \xc3\xa9",
    "\xe2\x96\x81 \xe2\x96\x81\xe2\x96\x81x\xe2\x96\x85 a\xe2\x96\x81",
    "\xe4\xb8\xad\xe6\x96\x87\xef\xbc\x8c\xd8\xb9\xd8\xb1\xd8\xa8\xd9\x8a \xef\xac\x81 \xe2\x85\xa3 \xc2\xbd",
    std::string("nul\0nul", 7),
    "\x01\x7f\xc2\x85\xe2\x80\xa8\xe3\x80\x80\xef\xbb\xbf\xef\xbf\xbd\xf4\x8f\xbf\xbf",
};

TEST_F(LabTokenizer, GivesBackEveryText) {
  for (const std::string& text : kTexts) EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  const std::string longer[] = {std::string(100000, ' '), std::string(100000, 'k'), make_text(20000, 5)};
  for (const std::string& text : longer) EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST_F(LabTokenizer, GivesBackRandomCharacters) {
  lab::Random random(1, 0, lab::Purpose::sample);
  const char32_t ranges[][2] = {{0, 0x7f},        {0x20, 0x7e},    {0x80, 0x7ff},
                                {0x2500, 0x2600}, {0x800, 0xd7ff}, {0x10000, 0x10ffff}};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int64_t k = random.below(40); k > 0; --k) {
      const auto& range = ranges[random.below(std::ssize(ranges))];
      const auto c = range[0] + static_cast<char32_t>(random.below(range[1] - range[0] + 1));
      const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
      if (c < 0x80) {
        add(c);
      } else if (c < 0x800) {
        add(0xc0 | c >> 6), add(0x80 | (c & 63));
      } else if (c < 0x10000) {
        add(0xe0 | c >> 12), add(0x80 | (c >> 6 & 63)), add(0x80 | (c & 63));
      } else {
        add(0xf0 | c >> 18), add(0x80 | (c >> 12 & 63)), add(0x80 | (c >> 6 & 63)), add(0x80 | (c & 63));
      }
    }
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST_F(LabTokenizer, NeverMakesSpecialPieces) {
  for (const std::string& text : kTexts) {
    for (const int64_t token : tokenizer.encode(text)) {
      EXPECT_GE(token, lab::kFirstPiece) << text;
      EXPECT_LT(token, tokenizer.size()) << text;
    }
  }
}

TEST_F(LabTokenizer, KeepsANewlineAPieceOfItsOwn) {
  const Tokens one = tokenizer.encode("\n");
  EXPECT_EQ(one, Tokens{lab::kFirstPiece + '\n'});
  Tokens expected = tokenizer.encode("kamo");
  expected.insert(expected.end(), {one[0], one[0]});
  const Tokens rest = tokenizer.encode("  tiren");
  expected.insert(expected.end(), rest.begin(), rest.end());
  EXPECT_EQ(tokenizer.encode("kamo\n\n  tiren"), expected);
}

TEST_F(LabTokenizer, HasItsSpecialPiecesAtTheirIds) {
  EXPECT_EQ(tokenizer.size(), 600);
  EXPECT_EQ(tokenizer.piece(lab::kPad), "<pad>");
  EXPECT_EQ(tokenizer.piece(lab::kEnd), "</s>");
  EXPECT_EQ(tokenizer.piece(lab::kUnknown), "<unk>");
  EXPECT_EQ(tokenizer.piece(lab::kClass), "[CLS]");
  EXPECT_EQ(tokenizer.piece(lab::kSeparator), "[SEP]");
  EXPECT_EQ(tokenizer.piece(lab::kMask), "[MASK]");
  EXPECT_EQ(tokenizer.piece(lab::kSentinel), "<extra_id_0>");
  EXPECT_EQ(tokenizer.piece(lab::kSentinel + 99), "<extra_id_99>");
  EXPECT_EQ(tokenizer.piece(lab::kFirstPiece), "<0x00>");
  EXPECT_EQ(tokenizer.decode(Tokens{lab::kPad, lab::kEnd, lab::kUnknown, lab::kMask, lab::kSentinel}), "");
  EXPECT_EQ(error_of([&] { (void)tokenizer.decode(Tokens{600}); }), "token 600: expected 0 to 599");
  EXPECT_EQ(error_of([&] { (void)tokenizer.piece(-1); }), "token -1: expected 0 to 599");
}

TEST_F(LabTokenizer, LearnsWordsAndIndentation) {
  EXPECT_LT(tokenizer.encode(make_text(10000, 3)).size(), 4500U);
  EXPECT_LE(tokenizer.encode("    ").size(), 2U);
}

TEST_F(LabTokenizer, EncodesTheSameFromMemory) {
  WordCache words(tokenizer);
  std::string text;
  for (const std::string& t : kTexts) text += t;
  // More words than it remembers.
  for (int k = 0; k < 70000; ++k) text += fmt::format(" {}", k);
  text += text.substr(0, 20000);
  Tokens tokens;
  words.encode(text, tokens);
  EXPECT_EQ(tokens, tokenizer.encode(text));
}

TEST_F(LabTokenizer, TellsOtherModelsApart) {
  const Tokenizer same(folder / "tokenizer.model");
  EXPECT_EQ(same.fingerprint(), tokenizer.fingerprint());
  const Tokenizer other = make_tokenizer(folder / "other.model", lines_of(make_text(20000, 1)), 400);
  EXPECT_NE(other.fingerprint(), tokenizer.fingerprint());
}

TEST_F(LabTokenizer, RefusesOtherFiles) {
  const auto error = [](const fs::path& file) { return error_of([&] { const Tokenizer loaded(file); }); };
  const fs::path file = write(folder / "x.model", "no model");
  const std::string message = file.native() + ": not a tokenizer that `came-lab data` wrote; prepare the data again";
  EXPECT_EQ(error(file), message);
  write(file, "");
  EXPECT_EQ(error(file), message);
  std::string bytes = read(folder / "tokenizer.model");
  write(file, bytes.substr(0, bytes.size() / 2));
  EXPECT_EQ(error(file), message);
  bytes.replace(bytes.find("[SEP]"), 5, "[PES]");
  write(file, bytes);
  EXPECT_EQ(error(file), message);
  EXPECT_EQ(error(folder / "none"), (folder / "none").native() + ": cannot be read; `came-lab data` writes one");
}

TEST(LabTokenizerTraining, SaysWhichVocabularyWorks) {
  const TempFolder folder;
  const std::vector<std::string> lines = lines_of(make_text(300));
  const std::string message = error_of([&] { (void)lab::train_tokenizer(lines, 5000); });
  const std::string begin = "a vocabulary of 5000 is too large: this text yields ";
  ASSERT_TRUE(message.starts_with(begin)) << message;
  const int64_t largest = std::stoll(message.substr(begin.size()));
  EXPECT_TRUE(message.ends_with(fmt::format(" pieces; give {} or less, or more text", largest))) << message;
  EXPECT_EQ(make_tokenizer(folder / "m", lines, largest).size(), largest);
  EXPECT_TRUE(contains(error_of([&] { (void)lab::train_tokenizer(lines, largest + 1); }), "too large"));
  EXPECT_TRUE(contains(error_of([&] { (void)lab::train_tokenizer(lines, int64_t{1} << 40); }), "too large"));
  EXPECT_EQ(error_of([&] { (void)lab::train_tokenizer(lines, 362); }),
            "a vocabulary of 362 is too small: 106 special pieces and all bytes take part; give 363 or more");
  EXPECT_EQ(make_tokenizer(folder / "m", lines, 363).size(), 363);
}

TEST(LabTokenizerTraining, LeavesRareCharactersToBytes) {
  const TempFolder folder;
  // More characters than the vocabulary has room for.
  std::vector<std::string> lines;
  for (int k = 0; k < 5000; ++k) {
    const int c = 0x4e00 + k * k % 3000;
    lines.push_back({static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 63)),
                     static_cast<char>(0x80 | (c & 63)), 'a'});
  }
  const Tokenizer tokenizer = make_tokenizer(folder / "m", lines, 500);
  EXPECT_EQ(tokenizer.size(), 500);
  for (const std::string& line : lines) ASSERT_EQ(tokenizer.decode(tokenizer.encode(line)), line);
}

TEST(LabTokenizerTraining, NeedsCharacters) {
  EXPECT_EQ(error_of([&] {
              (void)lab::train_tokenizer({"\t", "\t\t"}, 400);
            }),
            "the text holds no characters to train a tokenizer on; give more text");
}

}  // namespace
}  // namespace lab_test
