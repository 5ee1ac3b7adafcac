// The fuzzer's corpus, replayed in every test run.
#include "../../fuzz/safetensors_check.hpp"
#include "folder.hpp"

namespace lab_test {
namespace {

TEST(SafetensorsCorpus, IsReadOrRefusedAsTheFormatSays) {
  int read_whole = 0;
  int refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CAME_TEST_SOURCES "/fuzz/corpus/safetensors")) {
    SCOPED_TRACE(entry.path());
    ++(check_safetensors(bytes(read(entry.path()))) ? read_whole : refused);
  }
  EXPECT_GT(read_whole, 5);
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace lab_test
