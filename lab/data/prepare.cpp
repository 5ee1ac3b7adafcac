// The two passes over a corpus.  The first, survey(), counts documents and draws the sample; the second, tokenize(),
// reads blocks on the calling thread, encodes them on others and writes them in order on the calling thread again.
#include "data/prepare.hpp"

#include <algorithm>
#include <deque>
#include <future>
#include <limits>
#include <thread>
#include <tuple>
#include <utility>

#include "data/corpus.hpp"
#include "data/dataset_json.hpp"
#include "data/encoding.hpp"
#include "data/line_sample.hpp"
#include "data/output_folder.hpp"
#include "data/random.hpp"
#include "data/tokenizer.hpp"
#include "error.hpp"
#include "range.hpp"

namespace lab {

namespace {

constexpr size_t kBlock = size_t{1} << 20;  // bytes of text that are encoded at once

using Report = std::function<void(const Progress&)>;

/// Which documents are kept for validation: those whose number draws less than the share, but for one that was moved
/// since a half was empty.
class Split {
 public:
  Split(uint64_t seed, double share) : seed_(seed), share_(share) {}

  [[nodiscard]] bool is_valid(int64_t document) const {
    if (document == moved_) return moved_to_valid_;
    return Random(seed_, static_cast<uint64_t>(document), Purpose::split).unit() < share_;
  }
  void move(int64_t document, bool to_valid) {
    moved_ = document;
    moved_to_valid_ = to_valid;
  }

 private:
  uint64_t seed_;
  double share_;
  int64_t moved_ = -1;
  bool moved_to_valid_ = false;
};

struct Survey {
  int64_t documents = 0, valid = 0;
  int64_t shortest = -1, longest = -1;  // documents
  std::vector<std::string> lines;       // of the training half
};

class Preparation {
 public:
  Preparation(const PrepareOptions& options, Report report, const std::atomic<bool>* interrupt)
      : options_(options),
        report_(std::move(report)),
        interrupt_(interrupt),
        corpus_(options),
        split_(options.seed, options.validation_share) {}

  DatasetInfo run();

 private:
  Survey survey();
  Survey survey_until_split();
  void tokenize(const Tokenizer& tokenizer, const std::filesystem::path& folder, int64_t documents);
  void write_info(const std::filesystem::path& folder) const;

  void progress(std::string_view stage, int64_t done, int64_t total) const {
    if (report_) report_({stage, done, total});
  }
  void stop_if_asked() const {
    if (interrupt_ != nullptr && interrupt_->load(std::memory_order_relaxed)) {
      fail("interrupted while preparing {}; nothing was written", options_.output.native());
    }
  }

  const PrepareOptions& options_;
  Report report_;
  const std::atomic<bool>* interrupt_;
  Corpus corpus_;
  Split split_;
  DatasetInfo info_;
};

Survey Preparation::survey() {
  Survey found;
  LineSample sample(options_.sample_bytes, options_.seed);
  int64_t size = 0, least = std::numeric_limits<int64_t>::max(), most = 0, reported = -1;
  corpus_.read([&](std::string_view text, bool ends) {
    stop_if_asked();
    const bool valid = split_.is_valid(found.documents);
    if (!valid) sample.add(text);
    size += static_cast<int64_t>(text.size());
    if (ends) {
      if (size < least) std::tie(least, found.shortest) = std::pair(size, found.documents);
      if (size > most) std::tie(most, found.longest) = std::pair(size, found.documents);
      found.valid += valid;
      ++found.documents;
      size = 0;
    }
    if (corpus_.bytes_read() != reported) progress("reading", reported = corpus_.bytes_read(), corpus_.bytes());
  });
  progress("reading", corpus_.bytes(), corpus_.bytes());
  found.lines = sample.take();
  return found;
}

// Twice where the draw left a half empty, which happens with few documents alone: the sample must not hold lines of
// documents kept for validation.  The shortest document is moved there, or the longest one from there.
Survey Preparation::survey_until_split() {
  Survey found = survey();
  if (found.documents == 0) fail("{}: no text in it", corpus_.files()[0].native());
  if (found.documents == 1) {
    fail(
        "{}: one document, which cannot be split into training and validation; give more text, or where documents end "
        "in it (now: {}; possible: file, blank-line, line)",
        corpus_.files()[0].native(), name_of(corpus_.rule()));
  }
  if (found.valid == 0 || found.valid == found.documents) {
    const bool to_valid = found.valid == 0;
    split_.move(to_valid ? found.shortest : found.longest, to_valid);
    found = survey();
  }
  return found;
}

void Preparation::tokenize(const Tokenizer& tokenizer, const std::filesystem::path& folder, int64_t documents) {
  const auto cores = static_cast<size_t>(std::max(1U, std::thread::hardware_concurrency()));
  const size_t threads = options_.threads > 0 ? static_cast<size_t>(options_.threads) : cores;
  Halves halves(folder, tokenizer);
  Encoders encoders(tokenizer);
  std::deque<std::future<Block>> under_way;  // a future waits for its thread when it is destroyed
  Block block;
  const auto write_first = [&] {
    halves.write(under_way.front().get());
    under_way.pop_front();
  };
  const auto send = [&] {
    if (under_way.size() >= threads) write_first();
    under_way.push_back(std::async(
        std::launch::async, [&encoders](Block b) { return encoders.encode(std::move(b)); }, std::move(block)));
    block = Block();
    progress("tokenizing", corpus_.bytes_read(), corpus_.bytes());
  };
  int64_t document = 0;
  corpus_.read([&](std::string_view text, bool ends) {
    stop_if_asked();
    const bool valid = split_.is_valid(document);
    block.text += text;
    block.pieces.push_back({block.text.size(), valid, ends});
    (valid ? info_.valid_bytes : info_.train_bytes) += static_cast<int64_t>(text.size());
    document += ends;
    if (block.text.size() >= kBlock) send();
  });
  send();
  while (!under_way.empty()) write_first();
  if (document != documents || corpus_.bytes_read() != corpus_.bytes()) {
    fail("{}: changed while it was read; prepare the data again",
         options_.inputs.empty() ? corpus_.files()[0].native() : options_.inputs[0].native());
  }
  progress("tokenizing", corpus_.bytes(), corpus_.bytes());
  info_.bytes_read = corpus_.bytes();
  halves.finish(info_);
}

void Preparation::write_info(const std::filesystem::path& folder) const {
  nlohmann::ordered_json json = to_json(info_);
  std::vector<std::string> inputs;
  for (const auto& input : options_.inputs) inputs.push_back(input.native());
  if (inputs.empty()) inputs.push_back(default_corpus().native());
  json["options"] = {
      {"inputs", inputs},
      {"files", corpus_.files().size()},
      {"suffixes", options_.suffixes},
      {"documents", name_of(corpus_.rule())},
      {"text_key", options_.text_key},
      {"validation_share", options_.validation_share},
      {"sample_bytes", options_.sample_bytes},
      {"seed", options_.seed},
  };
  // Names of files need not be UTF-8.
  const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  OutputFile file(folder / "data.json");
  file.write(text.data(), text.size());
  file.finish();
}

DatasetInfo Preparation::run() {
  OutputFolder folder(options_.output, options_.inputs, options_.force);
  Survey found = survey_until_split();
  int64_t sampled = 0;
  for (const std::string& line : found.lines) sampled += static_cast<int64_t>(line.size());
  progress("training tokenizer", 0, sampled);
  const std::string model = train_tokenizer(found.lines, options_.vocabulary);
  progress("training tokenizer", sampled, sampled);
  std::vector<std::string>().swap(found.lines);
  stop_if_asked();
  const std::filesystem::path file = folder.path() / "tokenizer.model";
  OutputFile output(file);
  output.write(model.data(), model.size());
  output.finish();
  tokenize(Tokenizer(file), folder.path(), found.documents);
  write_info(folder.path());
  stop_if_asked();
  folder.commit();
  return info_;
}

void check(const PrepareOptions& options) {
  if (!(options.validation_share > 0 && options.validation_share < 1)) {
    fail("a validation share of {} leaves a half empty; give more than 0 and less than 1", options.validation_share);
  }
  check_vocabulary(options.vocabulary);
  expect_range<int64_t>("sample", options.sample_bytes, 1, std::numeric_limits<int32_t>::max());
  expect_range<int64_t>("threads", options.threads, 0, kMostThreads);
}

}  // namespace

DatasetInfo prepare(const PrepareOptions& options, const std::function<void(const Progress&)>& progress,
                    const std::atomic<bool>* interrupt) {
  check(options);
  return Preparation(options, progress, interrupt).run();
}

}  // namespace lab
