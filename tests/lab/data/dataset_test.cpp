// A dataset as the training sees it: tensors.
#include "data/dataset.hpp"

#include <ATen/Functions.h>

#include "support.hpp"

namespace lab_test {
namespace {

using lab::Batch, lab::BatchOptions, lab::Dataset, lab::Objective;

class LabDataset : public testing::Test {
 protected:
  LabDataset() {
    make_corpus(folder / "text", 20);
    lab::prepare(small_options({folder / "text"}, folder / "data"));
  }

  /// The message of the Error that opening it throws, without the folder.
  std::string error() {
    const std::string message = error_of([&] { const Dataset dataset(folder / "data"); });
    EXPECT_TRUE(message.starts_with((folder / "data").native())) << message;
    return message.substr(std::min(message.size(), (folder / "data").native().size()));
  }

  TempFolder folder;
};

std::vector<BatchOptions> all_options() {
  std::vector<BatchOptions> all(4);
  for (BatchOptions& options : all) options.length = 32;
  all[1].objective = all[2].objective = Objective::masked;
  all[2].next_sentence = true;
  all[3].objective = Objective::spans;
  return all;
}

/// Calls `call` with every field of two batches.
template <class Call>
void for_each_field(const Batch& a, const Batch& b, Call&& call) {
  call("input", a.input, b.input);
  call("segments", a.segments, b.segments);
  call("decoder_input", a.decoder_input, b.decoder_input);
  call("positions", a.positions, b.positions);
  call("targets", a.targets, b.targets);
  call("next", a.next, b.next);
}

TEST_F(LabDataset, GivesTheSameSequencesHoweverBatchesAreCut) {
  const Dataset dataset(folder / "data");
  for (const BatchOptions& options : all_options()) {
    const auto batches = dataset.batches(Dataset::Half::train, options);
    const int64_t first = batches->pass() - 3;  // into the second pass
    const Batch whole = batches->batch(first, 6);
    EXPECT_EQ(whole.sequences(), 6);
    std::vector<Batch> parts{batches->batch(first, 1), batches->batch(first + 1, 2), batches->batch(first + 3, 3)};
    int64_t before = 0;
    for (Batch& part : parts) {
      if (part.positions.defined()) part.positions += before * 32;
      before += part.sequences();
    }
    for (size_t k = 1; k < parts.size(); ++k) {
      for_each_field(parts[0], parts[k], [](const char*, const at::Tensor& sum, const at::Tensor& part) {
        if (sum.defined()) const_cast<at::Tensor&>(sum) = at::cat({sum, part});
      });
    }
    for_each_field(whole, parts[0], [](const char* name, const at::Tensor& x, const at::Tensor& y) {
      ASSERT_EQ(x.defined(), y.defined()) << name;
      EXPECT_TRUE(!x.defined() || at::equal(x, y)) << name;
    });
  }
}

TEST_F(LabDataset, GivesTensorsOfTheShapesThatModelsExpect) {
  const Dataset dataset(folder / "data");
  const auto all = all_options();
  const auto batch = [&](size_t k) { return dataset.batches(Dataset::Half::valid, all[k])->batch(0, 2); };
  const Batch causal = batch(0), masked = batch(1), pairs = batch(2), spans = batch(3);
  for (const Batch& b : {causal, masked, pairs, spans}) {
    for_each_field(b, b, [](const char* name, const at::Tensor& tensor, const at::Tensor&) {
      if (!tensor.defined()) return;
      EXPECT_TRUE(tensor.is_contiguous() && tensor.scalar_type() == at::kLong && tensor.device().is_cpu()) << name;
      EXPECT_TRUE(std::string_view(name) == "positions" || tensor.max().item<int64_t>() < 420) << name;
    });
    EXPECT_EQ(b.input.sizes(), (at::IntArrayRef{2, 32}));
  }
  EXPECT_FALSE(causal.segments.defined() || causal.positions.defined() || causal.decoder_input.defined());
  EXPECT_FALSE(causal.next.defined());
  EXPECT_EQ(causal.predicted(), 64);
  EXPECT_EQ(causal.tokens(), 64);
  EXPECT_EQ(masked.segments.sizes(), (at::IntArrayRef{2, 32}));
  EXPECT_FALSE(masked.next.defined());
  EXPECT_EQ(masked.predicted(), 2 * 5);  // 15 % of 30 is 4.5
  // Of the flattened batch.
  EXPECT_LT(masked.positions[4].item<int64_t>(), 32);
  EXPECT_GT(masked.positions[5].item<int64_t>(), 32);
  EXPECT_EQ(pairs.next.sizes(), at::IntArrayRef{2});
  EXPECT_EQ(spans.decoder_input.size(0), 2);
  EXPECT_EQ(spans.predicted(), spans.decoder_input.numel());
  EXPECT_EQ(spans.tokens(), spans.input.numel() + spans.decoder_input.numel());
  EXPECT_FALSE(spans.positions.defined());
}

TEST_F(LabDataset, GivesTheTextOfItsHalf) {
  const Dataset dataset(folder / "data");
  BatchOptions options;
  options.length = 20;
  for (const auto half : {Dataset::Half::train, Dataset::Half::valid}) {
    const auto tokens = half == Dataset::Half::train ? dataset.info().train_tokens : dataset.info().valid_tokens;
    const auto batches = dataset.batches(half, options);
    EXPECT_EQ(batches->pass(), tokens / 20);
    const Batch batch = batches->batch(0, 1);
    const int64_t* data = batch.input.const_data_ptr<int64_t>();
    const std::string text = dataset.tokenizer().decode({data, 20});
    bool found = false;
    for (int k = 0; k < 20; ++k) {
      found = found || contains(make_text(3000, static_cast<uint64_t>(k)), text.substr(0, text.find(".\n")));
    }
    EXPECT_TRUE(found) << text;
  }
}

TEST_F(LabDataset, MayGoBeforeItsBatches) {
  auto dataset = std::make_unique<Dataset>(folder / "data");
  const auto batches = dataset->batches(Dataset::Half::train, all_options()[0]);
  const Batch before = batches->batch(0, 2);
  dataset.reset();
  EXPECT_TRUE(at::equal(batches->batch(0, 2).input, before.input));
  EXPECT_EQ(error_of([&] { (void)batches->batch(-1, 1); }),
            "1 sequences from number -1: expected 1 or more, from 0 or more");
}

TEST_F(LabDataset, MovesBatchesToADevice) {
  const Dataset dataset(folder / "data");
  const Batch batch = dataset.batches(Dataset::Half::train, all_options()[2])->batch(0, 2);
  const Batch moved = batch.to(at::kMeta);
  for_each_field(batch, moved, [](const char* name, const at::Tensor& x, const at::Tensor& y) {
    ASSERT_EQ(x.defined(), y.defined()) << name;
    if (!x.defined()) return;
    EXPECT_TRUE(y.is_meta()) << name;
    EXPECT_EQ(x.sizes(), y.sizes()) << name;
  });
}

TEST_F(LabDataset, IsRefusedWhereItsFilesDoNotFit) {
  EXPECT_EQ(
      error_of([&] { const Dataset none(folder / "none"); }),
      (folder / "none").native() + ": no dataset, it has no data.json that can be read; `came-lab data` makes one");
  const fs::path data = folder / "data";
  const std::string json = read(data / "data.json");
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = json;
    text.replace(text.find(from), from.size(), to);
    write(data / "data.json", text);
    return error();
  };
  write(data / "data.json", "{");
  EXPECT_EQ(error(), "/data.json: not written by `came-lab data`; prepare the data again");
  write(data / "data.json", "[]");
  EXPECT_EQ(error(), "/data.json: not written by `came-lab data`; prepare the data again");
  EXPECT_EQ(replaced("\"version\": 1", "\"version\": 2"), "/data.json: version 2, expected 1; prepare the data again");
  EXPECT_EQ(replaced("\"unigram_loss\"", "\"loss\""),
            "/data.json: \"unigram_loss\" is missing; prepare the data again");
  for (const char* number : {"-420", "4.2e2", "1e300", "18446744073709551615", "true", "\"420\""}) {
    EXPECT_EQ(replaced("\"vocabulary\": 420", std::string("\"vocabulary\": ") + number),
              "/data.json: \"vocabulary\" is no whole number from 0 to 2^63 - 1; prepare the data again")
        << number;
  }
  EXPECT_EQ(replaced("\"version\": 1", "\"version\": \"" + std::string(2000, 'x') + "\""),
            "/data.json: \"version\" is no whole number from 0 to 2^63 - 1; prepare the data again");
  EXPECT_EQ(replaced("\"vocabulary\": 420", "\"vocabulary\": 421"),
            "/tokenizer.model: 420 pieces, but data.json beside it says 421; prepare the data again");
  EXPECT_TRUE(replaced("\"tokens\": ", "\"tokens\": 1").starts_with("/train.tokens: "));
  write(data / "data.json", json);
  EXPECT_EQ(error_of([&] { const Dataset dataset(data); }), "");
  lab::PrepareOptions other = small_options({folder / "text"}, folder / "other");
  other.seed = 9;
  lab::prepare(other);
  fs::copy_file(folder / "other/valid.tokens", data / "valid.tokens", fs::copy_options::overwrite_existing);
  EXPECT_EQ(error(), "/valid.tokens: made with another tokenizer than the one beside it; prepare the data again");
  fs::remove(data / "tokenizer.model");
  EXPECT_EQ(error(), "/tokenizer.model: cannot be read; `came-lab data` writes one");
}

}  // namespace
}  // namespace lab_test
