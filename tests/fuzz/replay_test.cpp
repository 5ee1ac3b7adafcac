// The fuzzers' corpora, replayed in every test run, in every build.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <vector>

#include "check.hpp"

namespace came_fuzz {
namespace {

struct Replayed {
  int accepted = 0, refused = 0;
};

/// Every input of a target; a check that fails stops the program, after the name of its input.
Replayed replay(const std::string& target, const std::function<bool(Input)>& check) {
  Replayed count;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(CAME_FUZZ_CORPUS) / target)) {
    std::printf("%s\n", entry.path().c_str());
    std::fflush(stdout);
    std::ifstream file(entry.path(), std::ios::binary);
    // Of exactly its size, as libFuzzer gives it: a byte beyond is outside.
    const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
    ++(check(std::as_bytes(std::span(text))) ? count.accepted : count.refused);
  }
  return count;
}

TEST(Corpus, OfTheCInterfaceHolds) { EXPECT_GT(replay("c_api", check_c_api).accepted, 20); }

#ifdef CAME_FUZZ_LAB
/// Inputs of both kinds, or a corpus has lost its worth.
void expect_both(const Replayed& count) {
  EXPECT_GT(count.accepted, 5);
  EXPECT_GT(count.refused, 10);
}

TEST(Corpus, OfConfigurationsIsReadOrRefused) { expect_both(replay("config", check_config)); }
TEST(Corpus, OfDatasetsIsReadOrRefused) { expect_both(replay("dataset", check_dataset)); }
TEST(Corpus, OfManifestsIsReadOrRefused) { expect_both(replay("manifest", check_manifest)); }
TEST(Corpus, OfSafetensorsIsReadOrRefused) { expect_both(replay("safetensors", check_safetensors)); }
TEST(Corpus, OfTokenFilesIsReadOrRefused) { expect_both(replay("token_file", check_token_file)); }
#endif

}  // namespace
}  // namespace came_fuzz
