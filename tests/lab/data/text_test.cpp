// What the reading of text promises: UTF-8, cuts, documents, samples.
#include <nlohmann/json.hpp>

#include "data/corpus.hpp"
#include "data/line_sample.hpp"
#include "data/utf8.hpp"
#include "support.hpp"

namespace lab_test {
namespace {

using lab::Corpus, lab::DocumentRule, lab::find_cut, lab::find_invalid_utf8, lab::LineSample, lab::PrepareOptions;
using Documents = std::vector<std::string>;

/// All documents of a corpus.
Documents documents_of(const PrepareOptions& options, size_t* longest_piece = nullptr) {
  Corpus corpus(options);
  Documents all;
  bool open = false;
  corpus.read([&](std::string_view text, bool ends) {
    if (!open) all.emplace_back();
    all.back() += text;
    open = !ends;
    if (longest_piece != nullptr) *longest_piece = std::max(*longest_piece, text.size());
  });
  EXPECT_FALSE(open);
  EXPECT_EQ(corpus.bytes_read(), corpus.bytes());
  return all;
}

Documents documents_of(const fs::path& input, DocumentRule rule) {
  PrepareOptions options;
  options.inputs = {input};
  options.documents = rule;
  return documents_of(options);
}

TEST(LabUtf8, FindsTheFirstByteThatIsWrong) {
  const std::string_view good[] = {
      "", "a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"};
  for (const auto text : good) EXPECT_EQ(find_invalid_utf8(text), text.npos) << text;
  const std::string_view bad[] = {"\x80",
                                  "\xff",
                                  "\xc0\x80",
                                  "\xc1\xbf",
                                  "\xc3",
                                  "\xe0\x9f\xbf",
                                  "\xed\xa0\x80",
                                  "\xe2\x82",
                                  "\xf0\x8f\xbf\xbf",
                                  "\xf4\x90\x80\x80",
                                  "\xf5\x80\x80\x80",
                                  "\xe2\x28\xa1",
                                  "\xf0\x9f\x98\x28",
                                  "\xc3\x28"};
  for (const auto text : bad) {
    for (const size_t before : {0, 1, 7, 8, 9, 31}) {
      const std::string all = std::string(before, 'x') + std::string(text) + "yyyyyyyyyyyy";
      EXPECT_EQ(find_invalid_utf8(all), before) << testing::PrintToString(text);
    }
  }
  EXPECT_EQ(find_invalid_utf8("abc\xe2\x82"), 3U);
}

TEST(LabUtf8, CutsAfterLinesThenBeforeSpacesThenBetweenCharacters) {
  EXPECT_EQ(find_cut("ab\ncd\nef", 100), 8U);
  EXPECT_EQ(find_cut("ab\ncd\nef", 7), 6U);
  EXPECT_EQ(find_cut("ab cd   ef", 9), 5U);
  EXPECT_EQ(find_cut("ab cd   ef", 7), 5U);
  EXPECT_EQ(find_cut("    ab", 5), 5U);
  EXPECT_EQ(find_cut("a\xe2\x82\xac\xe2\x82\xac", 6), 4U);
}

TEST(LabCorpus, ReadsFilesOfAFolderInTheOrderOfTheirNames) {
  const TempFolder folder;
  write(folder / "b.txt", "two");
  write(folder / "a/z.rst.txt", "one");
  write(folder / "c.md", "three");
  write(folder / "d.jsonl", "{\"text\": \"four\"}\n");
  write(folder / ".hidden.txt", "no");
  write(folder / ".git/x.txt", "no");
  write(folder / "image.png", "\xff");
  write(folder / "empty.txt", "");
  EXPECT_EQ(documents_of(folder.path(), DocumentRule::automatic), (Documents{"one", "two", "three", "four"}));
}

TEST(LabCorpus, ReadsAFileThatIsNamedWhateverItsName) {
  const TempFolder folder;
  write(folder / "README", "text");
  EXPECT_EQ(documents_of(folder / "README", DocumentRule::file), Documents{"text"});
}

TEST(LabCorpus, CutsAtBlankLines) {
  const TempFolder folder;
  const fs::path file = write(folder / "a.txt", "\n \n Title\nline\n\n\t\n\nOther\r\nline\r\n\r\nthird");
  EXPECT_EQ(documents_of(file, DocumentRule::blank_line), (Documents{" Title\nline", "Other\r\nline", "third"}));
  EXPECT_EQ(documents_of(file, DocumentRule::line), (Documents{" Title", "line", "Other", "line", "third"}));
  EXPECT_EQ(documents_of(file, DocumentRule::file), Documents{read(file)});
}

TEST(LabCorpus, TakesALoneFileForManyDocumentsAndSeveralForOneEach) {
  const TempFolder folder;
  PrepareOptions options;
  options.inputs = {write(folder / "a.txt", "a\n\nb\n")};
  EXPECT_EQ(documents_of(options), (Documents{"a", "b"}));
  options.inputs.push_back(write(folder / "b.txt", "c\n\nd"));
  EXPECT_EQ(documents_of(options), (Documents{"a\n\nb\n", "c\n\nd"}));
}

TEST(LabCorpus, LeavesOutTheMarkAtTheBeginningOfAFile) {
  const TempFolder folder;
  EXPECT_EQ(documents_of(write(folder / "a.txt",
                               "\xef\xbb\xbf"
                               "a\xef\xbb\xbf"),
                         DocumentRule::file),
            Documents{"a\xef\xbb\xbf"});
}

TEST(LabCorpus, ReadsLongDocumentsInPieces) {
  const TempFolder folder;
  std::string lines = make_text(3 << 20), word;
  while (word.size() < (5 << 19)) word += "\xe2\x82\xac";
  for (const std::string& text : {lines, word}) {
    for (const DocumentRule rule : {DocumentRule::file, DocumentRule::blank_line}) {
      PrepareOptions options;
      options.inputs = {write(folder / "a.txt", text)};
      options.documents = rule;
      size_t longest = 0;
      Documents all = documents_of(options, &longest);
      if (rule == DocumentRule::blank_line && text.back() == '\n') all[0] += '\n';
      EXPECT_EQ(all, Documents{text});
      EXPECT_LE(longest, 2U << 20);
    }
    PrepareOptions options;
    options.inputs = {write(folder / "a.jsonl", nlohmann::json{{"text", text}}.dump())};
    size_t longest = 0;
    EXPECT_EQ(documents_of(options, &longest), Documents{text});
    EXPECT_LE(longest, 1U << 20);
  }
}

TEST(LabCorpus, ReadsTheTextOfJsonLines) {
  const TempFolder folder;
  PrepareOptions options;
  options.inputs = {
      write(folder / "a.jsonl", "{\"body\": \"a\\n\\nb\\u00e9\", \"id\": 1}\r\n\n{\"body\": \"\"}\n{\"body\":\"c\"}")};
  options.text_key = "body";
  EXPECT_EQ(documents_of(options), (Documents{"a\n\nb\xc3\xa9", "c"}));
}

TEST(LabCorpus, NamesTheLineOfJsonThatIsWrong) {
  const TempFolder folder;
  const auto error = [&](const std::string& line) {
    const fs::path file = write(folder / "a.jsonl", "{\"text\": \"a\"}\n" + line + "\n");
    const std::string message = error_of([&] { documents_of(file, DocumentRule::automatic); });
    EXPECT_TRUE(message.starts_with(file.native() + ":2: ")) << message;
    return message.substr(std::min(message.size(), file.native().size() + 4));
  };
  EXPECT_EQ(error("{\"text\": "), "expected an object of JSON such as {\"text\": \"...\"}, found no valid JSON");
  EXPECT_EQ(error("[1]"), "expected an object of JSON such as {\"text\": \"...\"}, found array");
  EXPECT_EQ(error("{\"body\": \"a\"}"), "the object has no key \"text\"; name the one that holds the text");
  EXPECT_EQ(error("{\"text\": 1}"), "\"text\" is of type number, expected a string");
  EXPECT_EQ(error("{\"text\": \"\\ud800\"}"),
            "expected an object of JSON such as {\"text\": \"...\"}, found no valid JSON");
}

TEST(LabCorpus, NamesTheByteThatIsNoUtf8) {
  const TempFolder folder;
  for (const size_t before : {size_t{0}, size_t{5}, size_t{1} << 20, (size_t{3} << 20) - 1}) {
    const fs::path file = write(folder / "a.txt", std::string(before, 'x') + "\xe9t\xe9");
    EXPECT_EQ(error_of([&] { documents_of(file, DocumentRule::file); }),
              fmt::format("{}: byte {} is 0xe9, which is no UTF-8; decompress the file, or convert it: iconv -f LATIN1 "
                          "-t UTF-8",
                          file.native(), before));
  }
}

TEST(LabCorpus, SaysWhatIsMissing) {
  const TempFolder folder;
  const auto error = [&](const fs::path& input) { return error_of([&] { documents_of(input, DocumentRule::file); }); };
  EXPECT_EQ(error(folder / "none"),
            (folder / "none").native() + ": No such file or directory; give a file or a folder of text");
  write(folder / "a.py", "x");
  EXPECT_EQ(error(folder.path()), folder.path().native() +
                                      ": no file in it ends in .jsonl, .md, .rst, .txt (1 end "
                                      "otherwise); give the files by name, or other suffixes");
  EXPECT_EQ(error("/dev/null"),
            "/dev/null: neither a file nor a folder; text is read twice, so write it to a file first");
}

TEST(LabSample, KeepsEverythingThatFits) {
  LineSample sample(1000, 1);
  sample.add("b\na\n\n  \n\tc d\ne");
  EXPECT_EQ(sample.take(), (Documents{"b", "a", "\tc d", "e"}));
}

TEST(LabSample, IsBoundedAndDrawnFromAllOfTheText) {
  const auto draw = [](uint64_t seed) {
    LineSample sample(100000, seed);
    for (int k = 0; k < 100000; ++k) sample.add(fmt::format("line {:06}\n", k));
    return sample.take();
  };
  const Documents lines = draw(1);
  EXPECT_EQ(lines, draw(1));
  EXPECT_NE(lines, draw(2));
  size_t bytes = 0;
  int64_t early = 0;
  for (const std::string& line : lines) bytes += line.size(), early += line < "line 050000";
  EXPECT_LE(bytes, 100000U);
  // 1694 lines of 59 bytes each; half of them of the first half, give or take five standard deviations of 21.
  EXPECT_EQ(lines.size(), 1694U);
  EXPECT_NEAR(static_cast<double>(early), 847, 103);
  EXPECT_TRUE(std::is_sorted(lines.begin(), lines.end()));
}

}  // namespace
}  // namespace lab_test
