// Which sequence comes when, and what is done to it.  The tokens say where they are: place + 200.
#include "data/sequences.hpp"

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "support.hpp"

namespace lab_test {
namespace {

using lab::BatchOptions, lab::kClass, lab::kEnd, lab::kFirstPiece, lab::kMask, lab::kPad, lab::kSentinel,
    lab::kSeparator;
using lab::make_sequences, lab::Objective, lab::Permutation, lab::Sequence;
using Tokens = std::vector<int64_t>;

BatchOptions options_of(Objective objective, int64_t length, bool next_sentence = false) {
  BatchOptions options;
  options.objective = objective;
  options.length = length;
  options.seed = 3;
  options.next_sentence = next_sentence;
  return options;
}

/// A hundred documents of 3 to 300 tokens.
std::vector<int64_t> many_documents() {
  lab::Random random(1, 1, lab::Purpose::sample);
  std::vector<int64_t> lengths;
  for (int k = 0; k < 100; ++k) lengths.push_back(3 + random.below(298));
  return lengths;
}

/// The tokens of the ring from `place` on.
Tokens ring(const lab::TokenFile& file, int64_t place, int64_t count) {
  Tokens tokens;
  for (int64_t k = 0; k < count; ++k) tokens.push_back(file.token((place + k) % file.tokens()));
  return tokens;
}

TEST(LabRandom, PermutesWithoutRepeating) {
  for (const int64_t n : {1, 2, 3, 4, 5, 16, 17, 1000, 4097}) {
    for (uint64_t key = 0; key < 3; ++key) {
      std::vector<int64_t> seen;
      for (int64_t k = 0; k < n; ++k) seen.push_back(Permutation(n, key).at(k));
      int64_t fixed = 0;
      for (int64_t k = 0; k < n; ++k) fixed += seen[static_cast<size_t>(k)] == k;
      EXPECT_TRUE(n < 1000 || fixed < 10) << n;  // one expected
      std::sort(seen.begin(), seen.end());
      for (int64_t k = 0; k < n; ++k) ASSERT_EQ(seen[static_cast<size_t>(k)], k) << n;
    }
  }
  EXPECT_LT(Permutation(int64_t{1} << 40, 1).at(12345), int64_t{1} << 40);
}

TEST(LabRandom, ChoosesEverySetAsOften) {
  std::map<Tokens, int> counts;
  for (uint64_t k = 0; k < 10000; ++k) {
    lab::Random random(1, k, lab::Purpose::mask);
    ++counts[lab::choose(2, 5, random)];
  }
  EXPECT_EQ(counts.size(), 10U);
  // 1000 each, with a standard deviation of 30.
  for (const auto& [set, count] : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(LabCausal, PredictsTheNextToken) {
  const TempFolder folder;
  const auto file = make_tokens(folder / "x", many_documents());
  const auto sequences = make_sequences(file, options_of(Objective::causal, 64));
  EXPECT_EQ(sequences->pass(), file->tokens() / 64);
  for (int64_t k = 0; k < 3 * sequences->pass(); ++k) {
    const Sequence s = sequences->at(k);
    ASSERT_EQ(s.input.size(), 64U);
    ASSERT_EQ(s.targets.size(), 64U);
    EXPECT_TRUE(std::equal(s.input.begin() + 1, s.input.end(), s.targets.begin()));
    EXPECT_TRUE(s.positions.empty() && s.segments.empty() && s.decoder_input.empty() && s.next.empty());
    size_t known = 0;
    while (s.input[known] == kEnd) ++known;
    Tokens all = s.input;
    all.push_back(s.targets.back());
    EXPECT_EQ(all, ring(*file, s.input[known] - 200 - static_cast<int64_t>(known) + file->tokens(), 65));
  }
}

TEST(LabCausal, ReadsEveryTokenOncePerPassInAnotherOrder) {
  const TempFolder folder;
  const auto file = make_tokens(folder / "x", {5000}, 100000);
  const auto sequences = make_sequences(file, options_of(Objective::causal, 7));
  std::set<int64_t> offsets;
  std::set<Tokens> orders;
  for (int64_t pass = 0; pass < 4; ++pass) {
    std::map<int64_t, int> targets;
    Tokens order;
    for (int64_t k = 0; k < sequences->pass(); ++k) {
      const Sequence s = sequences->at(pass * sequences->pass() + k);
      for (const int64_t token : s.targets) ++targets[token];
      order.push_back(s.input[0]);
    }
    // All but what is left over when the ring is cut into sevens.
    EXPECT_EQ(std::ssize(targets), 5000 / 7 * 7);
    for (const auto& [token, count] : targets) EXPECT_EQ(count, 1) << token;
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    offsets.insert(*std::min_element(order.begin(), order.end()) % 7);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 4U);
  EXPECT_GE(offsets.size(), 2U);
}

TEST(LabCausal, DependsOnTheSeed) {
  const TempFolder folder;
  const auto file = make_tokens(folder / "x", many_documents());
  BatchOptions options = options_of(Objective::causal, 64);
  const auto a = make_sequences(file, options), b = make_sequences(file, options);
  options.seed = 4;
  const auto c = make_sequences(file, options);
  EXPECT_EQ(a->at(17).input, b->at(17).input);
  EXPECT_NE(a->at(17).input, c->at(17).input);
}

/// What a masked sequence was before anything was hidden.
Tokens shown(const Sequence& s) {
  Tokens tokens = s.input;
  for (size_t k = 0; k < s.positions.size(); ++k) tokens[static_cast<size_t>(s.positions[k])] = s.targets[k];
  return tokens;
}

TEST(LabMasked, HidesTheSameNumberOfTextTokensInEverySequence) {
  const TempFolder folder;
  const auto file = make_tokens(folder / "x", many_documents(), 100000);
  const auto sequences = make_sequences(file, options_of(Objective::masked, 128));
  EXPECT_EQ(sequences->pass(), file->tokens() / 126);
  double masked = 0, same = 0, all = 0;
  for (int64_t k = 0; k < 400; ++k) {
    const Sequence s = sequences->at(k);
    const Tokens before = shown(s);
    ASSERT_EQ(s.input.size(), 128U);
    EXPECT_EQ(s.segments, Tokens(128, 0));
    EXPECT_EQ(before.front(), kClass);
    EXPECT_EQ(before.back(), kSeparator);
    const size_t known = before[1] == kEnd ? 2 : 1;
    EXPECT_EQ(Tokens(before.begin() + 1, before.end() - 1),
              ring(*file, before[known] - 200 - static_cast<int64_t>(known) + 1 + file->tokens(), 126));
    EXPECT_EQ(s.positions.size(), 19U);  // 15 % of 126
    EXPECT_EQ(s.targets.size(), 19U);
    EXPECT_TRUE(std::is_sorted(s.positions.begin(), s.positions.end(), std::less_equal<>()));
    for (size_t i = 0; i < s.positions.size(); ++i) {
      const int64_t token = s.input[static_cast<size_t>(s.positions[i])];
      EXPECT_GE(s.targets[i], kFirstPiece);
      EXPECT_TRUE(token == kMask || token >= kFirstPiece);
      ++all;
      masked += token == kMask;
      same += token == s.targets[i];
    }
  }
  // Five standard deviations of shares among 7600.
  EXPECT_NEAR(masked / all, 0.8, 5 * std::sqrt(0.8 * 0.2 / all));
  EXPECT_NEAR(same / all, 0.1, 5 * std::sqrt(0.1 * 0.9 / all));
}

TEST(LabMasked, HidesOtherTokensInThePassAfter) {
  const TempFolder folder;
  const auto file = make_tokens(folder / "x", {200, 200});
  const auto sequences = make_sequences(file, options_of(Objective::masked, 66));
  EXPECT_NE(sequences->at(0).positions, sequences->at(sequences->pass()).positions);
}

TEST(LabMasked, ReplacesByPiecesOfTheWholeVocabulary) {
  const TempFolder folder;
  const auto file = make_tokens(folder / "x", {150, 150}, 520);
  BatchOptions options = options_of(Objective::masked, 128);
  options.mask_rate = 0.9;
  const auto sequences = make_sequences(file, options);
  std::set<int64_t> replacements;
  for (int64_t k = 0; k < 500; ++k) {
    const Sequence s = sequences->at(k);
    for (size_t i = 0; i < s.positions.size(); ++i) {
      const int64_t token = s.input[static_cast<size_t>(s.positions[i])];
      if (token != kMask && token != s.targets[i]) replacements.insert(token);
    }
  }
  EXPECT_EQ(std::ssize(replacements), 520 - kFirstPiece);
  EXPECT_EQ(*replacements.begin(), kFirstPiece);
}

TEST(LabMasked, PairsSentencesOfOneDocumentOrOfTwo) {
  const TempFolder folder;
  std::vector<int64_t> documents(50, 300);
  const auto file = make_tokens(folder / "x", documents);
  const auto sequences = make_sequences(file, options_of(Objective::masked, 128, true));
  EXPECT_EQ(sequences->pass(), file->tokens() / 125);
  double others = 0;
  std::set<size_t> lengths;
  for (int64_t k = 0; k < 1000; ++k) {
    const Sequence s = sequences->at(k);
    const Tokens before = shown(s);
    ASSERT_EQ(before.size(), 128U);
    ASSERT_EQ(s.segments.size(), 128U);
    ASSERT_EQ(s.next.size(), 1U);
    EXPECT_EQ(before.front(), kClass);
    EXPECT_EQ(before.back(), kSeparator);
    EXPECT_EQ(std::count(before.begin(), before.end(), kSeparator), 2);
    const auto middle = static_cast<size_t>(std::find(before.begin(), before.end(), kSeparator) - before.begin());
    const Tokens a(before.begin() + 1, before.begin() + static_cast<int64_t>(middle));
    const Tokens b(before.begin() + static_cast<int64_t>(middle) + 1, before.end() - 1);
    Tokens segments(middle + 1, 0);
    segments.resize(128, 1);
    EXPECT_EQ(s.segments, segments);
    // Documents are long enough: neither sentence leaves its own.
    EXPECT_EQ(a, ring(*file, a[0] - 200, std::ssize(a)));
    EXPECT_EQ(b, ring(*file, b[0] - 200, std::ssize(b)));
    EXPECT_EQ(std::count(before.begin(), before.end(), kEnd), 0);
    if (s.next[0] == 0) {
      EXPECT_EQ(b[0], a.back() + 1);
      EXPECT_EQ(file->document_of(a[0] - 200), file->document_of(b.back() - 200));
    } else {
      EXPECT_NE(file->document_of(a[0] - 200), file->document_of(b[0] - 200));
    }
    others += static_cast<double>(s.next[0]);
    lengths.insert(a.size());
  }
  EXPECT_NEAR(others / 1000, 0.5, 5 * std::sqrt(0.25 / 1000));
  EXPECT_EQ(*lengths.begin(), 31U);
  EXPECT_EQ(*lengths.rbegin(), 94U);
}

TEST(LabMasked, RunsOverTheEndOfShortDocuments) {
  const TempFolder folder;
  const auto file = make_tokens(folder / "x", std::vector<int64_t>(60, 5));
  const auto sequences = make_sequences(file, options_of(Objective::masked, 64, true));
  for (int64_t k = 0; k < 300; ++k) {
    const Sequence s = sequences->at(k);
    const Tokens before = shown(s);
    ASSERT_EQ(before.size(), 64U);
    EXPECT_EQ(s.positions.size(), 9U);
    const auto middle = std::find(before.begin(), before.end(), kSeparator);
    if (s.next[0] == 0) {
      // It begins within the document.
      EXPECT_EQ(middle[1], middle[-1] + 1);
      EXPECT_EQ(file->document_of(middle[1] - 200), file->document_of(before[1] - 200));
    } else {
      EXPECT_NE(file->document_of(middle[1] - 200), file->document_of(before[1] - 200));
    }
  }
}

TEST(LabMasked, RefusesDocumentsThatBeginTogether) {
  const TempFolder folder;
  (void)make_tokens(folder / "x", {8, 8, 8});
  std::string bytes = read(folder / "x");
  for (size_t document = 1; document < 3; ++document) bytes[bytes.size() - 24 + 8 * document] = 0;
  write(folder / "x", bytes);
  const auto file = std::make_shared<lab::TokenFile>(folder / "x", 100000, 7);
  const auto sequences = make_sequences(file, options_of(Objective::masked, 8, true));
  EXPECT_TRUE(contains(error_of([&] {
                         for (int64_t k = 0; k < 8; ++k) (void)sequences->at(k);
                       }),
                       "the file is damaged, prepare the data again"));
}

TEST(LabSpans, HaveTheLengthsOfT5) {
  const TempFolder folder;
  const auto file = make_tokens(folder / "x", many_documents());
  const auto sequences = make_sequences(file, options_of(Objective::spans, 512));
  // What the paper's setting gives: 568 tokens of text, 85 of them in 28 spans.
  EXPECT_EQ(sequences->pass(), file->tokens() / 568);
  EXPECT_EQ(sequences->at(0).input.size(), 512U);
  EXPECT_EQ(sequences->at(0).targets.size(), 114U);
}

TEST(LabSpans, PutTheTextTogetherAgain) {
  const TempFolder folder;
  const auto file = make_tokens(folder / "x", {4000});
  for (const auto& [length, rate, span] : std::vector<std::tuple<int64_t, double, double>>{
           {64, 0.15, 3}, {3, 0.15, 3}, {4, 0.5, 1}, {100, 0.5, 1}, {101, 0.5, 1}, {128, 0.9, 20}}) {
    BatchOptions options = options_of(Objective::spans, length);
    options.mask_rate = rate;
    options.span_length = span;
    const auto sequences = make_sequences(file, options);
    const size_t decoder = sequences->at(0).targets.size();
    std::set<Tokens> layouts;
    for (int64_t k = 0; k < 50; ++k) {
      const Sequence s = sequences->at(k);
      ASSERT_EQ(std::ssize(s.input), length);
      ASSERT_EQ(s.targets.size(), decoder);
      EXPECT_EQ(s.input.back(), kEnd);
      EXPECT_EQ(s.targets.back(), kEnd);
      EXPECT_EQ(s.decoder_input.front(), kPad);
      EXPECT_TRUE(std::equal(s.decoder_input.begin() + 1, s.decoder_input.end(), s.targets.begin()));
      ASSERT_EQ(s.decoder_input.size(), decoder);
      // Each sentinel of the input stands for what follows it in the targets.
      Tokens text, layout;
      auto from = s.targets.begin();
      int64_t sentinel = kSentinel;
      for (auto token = s.input.begin(); token + 1 != s.input.end(); ++token) {
        if (*token >= kFirstPiece || *token == kEnd) {
          text.push_back(*token);
          continue;
        }
        ASSERT_EQ(*token, sentinel);
        ASSERT_EQ(*from, sentinel);
        const size_t before = text.size();
        while (*++from >= kFirstPiece || (*from == kEnd && from + 1 != s.targets.end())) text.push_back(*from);
        EXPECT_GT(text.size(), before);
        layout.push_back(static_cast<int64_t>(text.size() - before));
        ++sentinel;
      }
      EXPECT_EQ(from + 1, s.targets.end());
      const int64_t known = text[0] == kEnd ? 1 : 0;
      EXPECT_EQ(text, ring(*file, text[static_cast<size_t>(known)] - 200 - known + file->tokens(), std::ssize(text)));
      layouts.insert(layout);
    }
    EXPECT_TRUE(length != 64 || layouts.size() > 5);
  }
}

TEST(LabSequences, SayWhyThereAreNone) {
  const TempFolder folder;
  const auto file = make_tokens(folder / "x", {50});
  const auto error = [&](const BatchOptions& options) {
    return error_of([&] { (void)make_sequences(file, options); });
  };
  EXPECT_EQ(error(options_of(Objective::causal, 50)),
            (folder / "x").native() +
                ": holds 50 tokens, fewer than the 51 that one sequence of length 50 takes; use a "
                "shorter length or more text");
  EXPECT_EQ(error(options_of(Objective::causal, 49)), "");
  EXPECT_TRUE(contains(error(options_of(Objective::masked, 53)), "fewer than the 51 that one sequence of length 53"));
  EXPECT_EQ(error(options_of(Objective::masked, 52)), "");
  EXPECT_TRUE(contains(error(options_of(Objective::spans, 64)), "one sequence of length 64"));
  EXPECT_EQ(error(options_of(Objective::causal, 0)), "a sequence length of 0: expected 1 or more");
  EXPECT_EQ(error(options_of(Objective::masked, 3)), "a sequence length of 3: masked tokens need 4 or more");
  EXPECT_EQ(error(options_of(Objective::masked, 6, true)),
            "a sequence length of 6: masked tokens with next-sentence prediction need 7 or more");
  EXPECT_EQ(error(options_of(Objective::masked, 16, true)),
            (folder / "x").native() +
                ": one document, but next-sentence prediction needs two; give more text, or say where documents end");
  EXPECT_EQ(error(options_of(Objective::spans, 2)), "a sequence length of 2: corrupted spans need 3 or more");
  EXPECT_TRUE(contains(error(options_of(Objective::spans, 4096)), "there are 100 sentinels"));
  EXPECT_EQ(error(options_of(Objective::causal, 16, true)),
            "next-sentence prediction goes with masked tokens alone; leave it out");
  BatchOptions options = options_of(Objective::spans, 16);
  options.span_length = 0.5;
  EXPECT_EQ(error(options), "a span length of 0.5: expected 1 or more");
  for (const double rate : {0.0, -1.0, 0.95, std::nan("")}) {
    options.mask_rate = rate;
    EXPECT_TRUE(error(options).starts_with("a mask rate of ")) << rate;
  }
}

}  // namespace
}  // namespace lab_test
