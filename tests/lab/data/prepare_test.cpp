// From text to a dataset: what is in it, that it is the same each time, and what is left behind when it fails.
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>

#include "data/corpus.hpp"
#include "support.hpp"

namespace lab_test {
namespace {

using lab::DatasetInfo, lab::prepare, lab::PrepareOptions, lab::Progress, lab::TokenFile, lab::Tokenizer;

std::vector<std::string> documents_of(const fs::path& folder, const char* half) {
  const Tokenizer tokenizer(folder / "tokenizer.model");
  const TokenFile file(folder / half, tokenizer.size(), tokenizer.fingerprint());
  std::vector<std::string> all;
  for (int64_t d = 0; d < file.documents(); ++d) {
    std::vector<int64_t> tokens;
    for (int64_t k = file.document_start(d); k < file.document_start(d + 1); ++k) tokens.push_back(file.token(k));
    EXPECT_EQ(tokens.back(), lab::kEnd);
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), lab::kEnd), 1);
    all.push_back(tokenizer.decode(tokens));
  }
  return all;
}

/// Name and bytes of every file.
std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::directory_iterator(folder)) all[entry.path().filename()] = read(entry.path());
  return all;
}

TEST(LabPrepare, PutsEveryDocumentIntoOneOfTheHalves) {
  const TempFolder folder;
  make_corpus(folder / "text", 40);
  const DatasetInfo info = prepare(small_options({folder / "text"}, folder / "data"));
  std::vector<std::string> expected, all = documents_of(folder / "data", "train.tokens");
  const std::vector<std::string> valid = documents_of(folder / "data", "valid.tokens");
  EXPECT_EQ(info.train_documents, std::ssize(all));
  EXPECT_EQ(info.valid_documents, std::ssize(valid));
  // 10 expected, with a standard deviation of 2.7.
  EXPECT_GE(valid.size(), 2U);
  EXPECT_LE(valid.size(), 20U);
  all.insert(all.end(), valid.begin(), valid.end());
  for (int k = 0; k < 40; ++k) expected.push_back(make_text(3000, static_cast<uint64_t>(k)));
  std::sort(expected.begin(), expected.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, expected);
}

TEST(LabPrepare, SaysInDataJsonWhatItDid) {
  const TempFolder folder;
  make_corpus(folder / "text", 12);
  PrepareOptions options = small_options({folder / "text"}, folder / "data");
  options.seed = 5;
  const DatasetInfo info = prepare(options);
  const auto json = nlohmann::json::parse(read(folder / "data/data.json"));
  EXPECT_EQ(json["vocabulary"], 420);
  EXPECT_EQ(json["options"]["inputs"][0], (folder / "text").native());
  EXPECT_EQ(json["options"]["documents"], "file");
  EXPECT_EQ(json["options"]["seed"], 5);
  EXPECT_EQ(json["options"]["validation_share"], 0.25);
  const DatasetInfo again = lab::read_dataset_info(folder / "data");
  EXPECT_EQ(again.vocabulary, info.vocabulary);
  EXPECT_EQ(again.train_tokens, info.train_tokens);
  EXPECT_EQ(again.valid_tokens, info.valid_tokens);
  EXPECT_EQ(again.unigram_loss, info.unigram_loss);
  EXPECT_EQ(again.bytes_read, info.bytes_read);
  const double tokens = static_cast<double>(info.train_tokens + info.valid_tokens);
  EXPECT_EQ(info.train_bytes + info.valid_bytes, info.bytes_read);
  EXPECT_EQ(again.bytes_per_token, static_cast<double>(info.bytes_read) / tokens);
  EXPECT_EQ(again.validation_share, static_cast<double>(info.valid_tokens) / tokens);

  // The loss from its definition.
  const Tokenizer tokenizer(folder / "data/tokenizer.model");
  std::map<int64_t, double> counts;
  const TokenFile train(folder / "data/train.tokens", 420, tokenizer.fingerprint());
  const TokenFile valid(folder / "data/valid.tokens", 420, tokenizer.fingerprint());
  for (int64_t k = 0; k < train.tokens(); ++k) ++counts[train.token(k)];
  double sum = 0;
  for (int64_t k = 0; k < valid.tokens(); ++k) {
    sum -= std::log((counts[valid.token(k)] + 1) / static_cast<double>(train.tokens() + 420));
  }
  // Both are sums of positive terms, one for each token, in f64 and in orders of their own.
  const auto terms = static_cast<double>(valid.tokens());
  EXPECT_NEAR(info.unigram_loss, sum / terms, 2 * terms * 0x1p-53 * (sum / terms));
}

TEST(LabPrepare, GivesTheSameBytesForAnyNumberOfThreads) {
  const TempFolder folder;
  make_corpus(folder / "text", 30, 200000);
  PrepareOptions options = small_options({folder / "text"}, folder / "one");
  options.threads = 1;
  options.sample_bytes = 300000;
  prepare(options);
  const auto expected = contents_of(folder / "one");
  EXPECT_EQ(expected.size(), 4U);
  for (const int threads : {2, 7}) {
    options.threads = threads;
    options.output = folder / "more";
    options.force = true;
    prepare(options);
    EXPECT_EQ(contents_of(folder / "more"), expected) << threads;
  }
  options.seed = 1;
  prepare(options);
  EXPECT_NE(contents_of(folder / "more").at("train.tokens"), expected.at("train.tokens"));
}

TEST(LabPrepare, LeavesNoHalfEmpty) {
  const TempFolder folder;
  make_corpus(folder / "text", 2);
  write(folder / "text/000.txt", make_text(9000));
  for (const double share : {0.001, 0.5, 0.999}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      PrepareOptions options = small_options({folder / "text"}, folder / "data");
      options.validation_share = share;
      options.seed = seed;
      options.force = true;
      const DatasetInfo info = prepare(options);
      EXPECT_EQ(info.train_documents, 1);
      EXPECT_EQ(info.valid_documents, 1);
      // Where none was drawn, or all were.
      EXPECT_TRUE(share == 0.5 || info.train_tokens > info.valid_tokens) << share;
    }
  }
}

TEST(LabPrepare, TrainsTheTokenizerOnTheTrainingHalfAlone) {
  const TempFolder folder;
  const std::string rare = "zzzzzzzz zzzzzzzz zzzzzzzz zzzzzzzz\n";
  PrepareOptions options = small_options({folder / "text"}, folder / "data");
  options.validation_share = 0.001;  // so that the shorter one is kept for it
  options.force = true;
  const auto has_piece = [&] {
    prepare(options);
    return Tokenizer(folder / "data/tokenizer.model").encode("z")[0] != lab::kFirstPiece + 'z';
  };
  write(folder / "text/a.txt", make_text(4000));
  write(folder / "text/b.txt", rare + make_text(2000));
  EXPECT_FALSE(has_piece());
  write(folder / "text/b.txt", rare + make_text(6000));
  EXPECT_TRUE(has_piece());
}

TEST(LabPrepare, TellsHowFarItIs) {
  const TempFolder folder;
  make_corpus(folder / "text", 10, 400000);
  std::vector<std::string> stages;
  int64_t done = 0, total = 0;
  const DatasetInfo info = prepare(small_options({folder / "text"}, folder / "data"), [&](const Progress& progress) {
    if (stages.empty() || stages.back() != progress.stage) {
      EXPECT_EQ(done, total);
      stages.emplace_back(progress.stage);
      done = 0;
    }
    EXPECT_GE(progress.done, done);
    EXPECT_LE(progress.done, progress.total);
    done = progress.done;
    total = progress.total;
  });
  EXPECT_EQ(stages, (std::vector<std::string>{"reading", "training tokenizer", "tokenizing"}));
  EXPECT_EQ(done, info.bytes_read);
}

TEST(LabPrepare, LeavesNothingBehindWhenInterrupted) {
  const TempFolder folder;
  make_corpus(folder / "text", 10, 400000);
  for (const char* stage : {"reading", "training tokenizer", "tokenizing"}) {
    std::atomic<bool> interrupt = false;
    int calls = 0;
    const auto stop = [&](const Progress& progress) {
      interrupt = interrupt || progress.stage == stage;
      calls += interrupt;
      EXPECT_TRUE(!interrupt || progress.stage == stage);
    };
    const std::string message =
        error_of([&] { prepare(small_options({folder / "text"}, folder / "data"), stop, &interrupt); });
    EXPECT_EQ(message, "interrupted while preparing " + (folder / "data").native() + "; nothing was written");
    EXPECT_EQ(folder.names(), std::vector<std::string>{"text"}) << stage;
    // At once; the training of the tokenizer alone is not cut short.
    EXPECT_LE(calls, 2) << stage;
  }
}

TEST(LabPrepare, LeavesNothingBehindWhenTheDiskIsFull) {
  const TempFolder folder;
  make_corpus(folder / "text", 10, 400000);
  // A limit on the size of files fails at the same place as a full disk.
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  rlimit small = limit;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = error_of([&] { prepare(small_options({folder / "text"}, folder / "data")); });
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, before);
  EXPECT_TRUE(message.starts_with("cannot write ")) << message;
  EXPECT_TRUE(contains(message, "train.tokens: File too large")) << message;
  EXPECT_EQ(folder.names(), std::vector<std::string>{"text"});
}

TEST(LabPrepare, ReplacesADatasetOnlyWhenForcedAndOnlyByAWholeOne) {
  const TempFolder folder;
  make_corpus(folder / "text", 4);
  PrepareOptions options = small_options({folder / "text"}, folder / "data");
  prepare(options);
  const auto first = contents_of(folder / "data");
  EXPECT_EQ(error_of([&] { prepare(options); }),
            (folder / "data").native() + ": is a dataset already; --force prepares it again");
  options.force = true;
  options.vocabulary = 5;
  EXPECT_NE(error_of([&] { prepare(options); }), "");
  EXPECT_EQ(contents_of(folder / "data"), first);
  options.vocabulary = 400;
  prepare(options);
  EXPECT_EQ(lab::read_dataset_info(folder / "data").vocabulary, 400);
  EXPECT_EQ(folder.names(), (std::vector<std::string>{"data", "text"}));
}

TEST(LabPrepare, NeverReplacesWhatIsNoDataset) {
  const TempFolder folder;
  make_corpus(folder / "text", 4);
  PrepareOptions options = small_options({folder / "text"}, folder / "data");
  options.force = true;
  const std::string place = (folder / "data").native();
  write(folder / "data/notes.txt", "mine");
  const std::string refused =
      ": holds notes.txt, which is not part of a dataset, and is not replaced; choose another folder";
  EXPECT_EQ(error_of([&] { prepare(options); }), place + refused);
  write(folder / "data/data.json", "{}");
  EXPECT_EQ(error_of([&] { prepare(options); }), place + refused);
  fs::remove_all(folder / "data");
  write(folder / "data/train.tokens", "mine");
  EXPECT_EQ(error_of([&] { prepare(options); }), place + ": is no dataset, and is not replaced; choose another folder");
  fs::remove_all(folder / "data");
  write(folder / "data", "mine");
  EXPECT_EQ(error_of([&] { prepare(options); }), place + ": exists and is no folder; choose another place");
  EXPECT_EQ(read(folder / "data"), "mine");
  fs::remove(folder / "data");
  fs::create_directory(folder / "data");
  prepare(options);
  options.output = folder / "new/deep/";
  prepare(options);
  EXPECT_TRUE(fs::exists(folder / "new/deep/data.json"));
}

TEST(LabPrepare, SaysWhyATextMakesNoDataset) {
  const TempFolder folder;
  const auto error = [&](std::string_view text, double share = 0.25) {
    PrepareOptions options = small_options({write(folder / "text.txt", text)}, folder / "data");
    options.validation_share = share;
    const std::string message = error_of([&] { prepare(options); });
    EXPECT_EQ(folder.names(), std::vector<std::string>{"text.txt"});
    return message;
  };
  const std::string file = (folder / "text.txt").native();
  EXPECT_EQ(error(""), file + ": no text in it");
  EXPECT_EQ(error("\n \n\n"), file + ": no text in it");
  EXPECT_EQ(
      error(make_text(1000)),
      file +
          ": one document, which cannot be split into training and validation; give more text, or where documents "
          "end in it (now: blank-line; possible: file, blank-line, line)");
  EXPECT_TRUE(contains(error("a\n\nb"), "a vocabulary of 420 is too large: this text yields 363 pieces"))
      << error("a\n\nb");
  EXPECT_EQ(error("a\n\nb", 1), "a validation share of 1 leaves a half empty; give more than 0 and less than 1");
}

TEST(LabPrepare, HasADefaultCorpusWhereDocumentationIsInstalled) {
  std::unique_ptr<lab::Corpus> corpus;
  const std::string message = error_of([&] { corpus = std::make_unique<lab::Corpus>(PrepareOptions()); });
  if (corpus) {
    EXPECT_GT(corpus->files().size(), 400U);
    EXPECT_GT(corpus->bytes(), 5 << 20);
    EXPECT_EQ(corpus->rule(), lab::DocumentRule::file);
  } else {
    EXPECT_TRUE(contains(message, "install the package python3.11-doc")) << message;
  }
}

}  // namespace
}  // namespace lab_test
