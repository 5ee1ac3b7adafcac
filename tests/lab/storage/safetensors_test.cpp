// Safetensors: what is read, what is refused, and what is on disk after a write.  Files of the reference implementation
// are in tests/python.
#include "storage/safetensors.hpp"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <limits>

#include "folder.hpp"

namespace lab_test {
namespace {

using lab::parse_safetensors;
using lab::SafetensorsFile;
using lab::StoredTensor;

/// A file of this header and so many bytes of data.
std::string file_of(const std::string& header, size_t data = 0) {
  std::string file;
  for (size_t k = 0; k < 8; ++k) file += static_cast<char>(header.size() >> (8 * k) & 255);
  file += header;
  for (size_t k = 0; k < data; ++k) file += static_cast<char>(k);
  return file;
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& range) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" + range + "]}";
}

std::string refusal(const std::string& file) {
  return error_of([&] { (void)parse_safetensors(bytes(file)); });
}

TEST(Safetensors, ReadsEachTensorWhereItLies) {
  const std::string file =
      file_of("{" + tensor("b", "F32", "2,1", "3,11") + ", \"__metadata__\": {\"k\": \"v\", \"\": \"\\u00e9\"}," +
                  tensor("a", "U8", "3", "0,3") + "," + tensor("scalar", "BF16", "", "11,13") + "}   ",
              13);
  const lab::Safetensors contents = parse_safetensors(bytes(file));
  ASSERT_EQ(contents.tensors.size(), 3U);
  EXPECT_EQ(contents.tensors[0].name, "a");
  EXPECT_EQ(contents.tensors[1].name, "b");
  EXPECT_EQ(contents.tensors[1].dtype, "F32");
  EXPECT_EQ(contents.tensors[1].shape, (std::vector<int64_t>{2, 1}));
  ASSERT_EQ(contents.tensors[1].data.size(), 8U);
  EXPECT_EQ(contents.tensors[1].data.front(), std::byte{3});
  EXPECT_EQ(contents.find("scalar"), &contents.tensors[2]);
  EXPECT_TRUE(contents.tensors[2].shape.empty());
  EXPECT_EQ(contents.find("other"), nullptr);
  EXPECT_EQ(contents.metadata, (std::map<std::string, std::string>{{"", "\u00e9"}, {"k", "v"}}));
}

TEST(Safetensors, KnowsEveryDtypeOfTheFormat) {
  const std::map<std::string, int64_t> bits{
      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},   {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"I16", 16}, {"F8_E5M2FNUZ", 8},
      {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32}, {"F32", 32},
      {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};
  for (const auto& [dtype, size] : bits) {
    EXPECT_EQ(lab::safetensors_bits(dtype), size);
    const std::string end = std::to_string(size);
    const std::string file = file_of("{" + tensor("t", dtype, "8", "0," + end) + "}", static_cast<size_t>(size));
    EXPECT_EQ(parse_safetensors(bytes(file)).tensors[0].data.size(), static_cast<size_t>(size)) << dtype;
  }
  EXPECT_EQ(lab::safetensors_bits("F31"), 0);
}

TEST(Safetensors, RefusesALengthThatIsNotTheHeaders) {
  EXPECT_TRUE(says(refusal(""), {"0 bytes"}));
  EXPECT_TRUE(says(refusal("1234567"), {"7 bytes"}));
  EXPECT_TRUE(says(refusal(file_of("{}").substr(0, 9)), {"header of 2 bytes", "only 1 follow"}));
  EXPECT_TRUE(says(refusal(std::string(8, '\xFF') + "{}"), {"18446744073709551615", "100000000"}));
  EXPECT_TRUE(says(refusal(std::string("\x01\xE1\xF5\x05\0\0\0\0{}", 10)), {"100000001", "over 100000000"}));
  EXPECT_TRUE(says(refusal(file_of(" {}")), {"does not begin with {"}));
  EXPECT_TRUE(says(refusal(file_of("")), {"does not begin with {"}));
}

TEST(Safetensors, RefusesWhatIsNotTheFormatsJson) {
  const std::vector<std::string> headers{
      "{", "{}}", "{\"a\":}", "{} x", "{\"\xFF\":1}", "{\"a\":\"\\ud800\"}", "{\"a\n\":1}", std::string("{}\0", 3)};
  for (const std::string& header : headers) {
    EXPECT_TRUE(says(refusal(file_of(header)), {"header: byte", "not valid JSON"})) << header;
  }
  EXPECT_TRUE(says(refusal(file_of("{\"a\":1e999}")), {"not valid JSON"}));
  EXPECT_TRUE(says(refusal(file_of("{\"a\":[[[1]]]}")), {"nested"}));
  EXPECT_TRUE(says(refusal(file_of("{\"a\":" + std::string(1000000, '['))), {"nested"}));
  std::string deep;
  for (int k = 0; k < 100000; ++k) deep += "{\"a\":";
  EXPECT_TRUE(says(refusal(file_of(deep)), {"nested"}));
}

TEST(Safetensors, RefusesNamesThatOccurTwice) {
  const std::string one = tensor("a\\n", "U8", "1", "0,1");
  EXPECT_TRUE(says(refusal(file_of("{" + one + "," + one + "}", 1)), {"\"a\\n\" occurs twice"}));
  EXPECT_TRUE(says(refusal(file_of("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}")), {"\"k\" occurs twice"}));
  EXPECT_TRUE(says(refusal(file_of("{\"__metadata__\":{},\"__metadata__\":{}}")), {"__metadata__", "twice"}));
  EXPECT_TRUE(says(refusal(file_of("{\"a\":{\"shape\":[],\"shape\":[]}}")), {"\"shape\" occurs twice"}));
}

TEST(Safetensors, RefusesAHeaderOfAnotherForm) {
  EXPECT_TRUE(says(refusal(file_of("{\"a\":1}")), {"tensor \"a\": not an object"}));
  EXPECT_TRUE(says(refusal(file_of("{\"__metadata__\":1}")), {"__metadata__ is not an object"}));
  EXPECT_TRUE(says(refusal(file_of("{\"__metadata__\":{\"a\":1}}")), {"\"a\" is not a string"}));
  EXPECT_TRUE(says(refusal(file_of("{\"a\":{\"shape\":[],\"dtype\":\"U8\"}}")), {"data_offsets is missing"}));
  EXPECT_TRUE(says(refusal(file_of("{\"a\":{\"shape\":[],\"dtype\":\"U8\",\"x\":1}}")), {"unknown key \"x\""}));
  const auto with = [](const std::string& shape, const std::string& dtype, const std::string& range) {
    return refusal(
        file_of("{\"a\":{\"shape\":" + shape + ",\"dtype\":" + dtype + ",\"data_offsets\":" + range + "}}", 8));
  };
  EXPECT_TRUE(says(with("{}", "\"U8\"", "[0,8]"), {"shape is not an array"}));
  EXPECT_TRUE(says(with("[8]", "1", "[0,8]"), {"dtype is not a string"}));
  EXPECT_TRUE(says(with("[8]", "\"u8\"", "[0,8]"), {"unknown dtype \"u8\""}));
  for (const char* size : {"-8", "8.0", "\"8\"", "null", "9223372036854775808", "18446744073709551616", "-0", "8e0"}) {
    EXPECT_TRUE(says(with(std::string("[") + size + "]", "\"U8\"", "[0,8]"), {"not a whole number"})) << size;
  }
  for (const char* range : {"[0]", "[0,8,8]", "[0,8.0]", "[-1,8]", "0", "[]", "{}"}) {
    EXPECT_TRUE(says(with("[8]", "\"U8\"", range), {"two whole numbers"})) << range;
  }
}

TEST(Safetensors, RefusesRangesThatDoNotFitTheShapeOrTheFile) {
  const auto with = [](const std::string& entry, size_t data) { return refusal(file_of("{" + entry + "}", data)); };
  EXPECT_TRUE(says(with(tensor("a", "F32", "2", "0,8"), 7), {"0 to 8", "7 bytes of data"}));
  EXPECT_TRUE(says(with(tensor("a", "F32", "2", "8,0"), 8), {"8 to 0"}));
  EXPECT_TRUE(says(with(tensor("a", "F32", "3", "0,8"), 8), {"hold 8 bytes", "F32 [3] takes 12"}));
  EXPECT_TRUE(says(with(tensor("a", "F32", "4294967296,4294967296", "0,0"), 0), {"overflows"}));
  EXPECT_TRUE(says(with(tensor("a", "F32", "0,4294967296,4294967296", "0,0"), 0), {"overflows"}));
  EXPECT_TRUE(says(with(tensor("a", "F4", "3", "0,1"), 1), {"F4", "whole byte"}));
}

TEST(Safetensors, RefusesOverlapsHolesAndTrailingBytes) {
  const std::string a = tensor("a", "U8", "4", "0,4");
  EXPECT_TRUE(says(refusal(file_of("{" + a + "," + tensor("b", "U8", "4", "3,7") + "}", 7)), {"\"b\"", "overlap"}));
  EXPECT_TRUE(says(refusal(file_of("{" + a + "," + tensor("b", "U8", "4", "0,4") + "}", 4)), {"\"b\"", "overlap"}));
  EXPECT_TRUE(says(refusal(file_of("{" + a + "," + tensor("b", "U8", "4", "5,9") + "}", 9)), {"\"b\"", "hole"}));
  EXPECT_TRUE(says(refusal(file_of("{" + a + "," + tensor("b", "U8", "0", "2,2") + "}", 4)), {"overlap"}));
  EXPECT_TRUE(says(refusal(file_of("{" + a + "}", 5)), {"1 bytes after the last tensor"}));
  EXPECT_TRUE(says(refusal(file_of("{}", 1)), {"1 bytes after"}));
  EXPECT_TRUE(parse_safetensors(bytes(file_of("{}"))).tensors.empty());
}

TEST(Safetensors, ShowsALongNameCutShort) {
  const std::string message = refusal(file_of("{\"" + std::string(5000, 'x') + "\":1}"));
  EXPECT_LT(message.size(), 200U);
  EXPECT_TRUE(says(message, {"xxx...\""}));
}

TEST(Safetensors, WritesTheSameBytesWhateverTheOrder) {
  const Folder folder;
  const std::string data = "0123456789abcdef";
  std::vector<StoredTensor> tensors{{"z", "U8", {2}, bytes(data).first(2)},
                                    {"b", "F32", {}, bytes(data).subspan(2, 4)},
                                    {"a", "BF16", {3, 0}, {}},
                                    {"a\"", "F32", {1, 2}, bytes(data).subspan(6, 8)}};
  lab::write_safetensors(folder / "one", tensors, {{"format", "pt"}, {"a", "b"}});
  std::swap(tensors[0], tensors[3]);
  std::swap(tensors[1], tensors[2]);
  lab::write_safetensors(folder / "two", tensors, {{"a", "b"}, {"format", "pt"}});
  const std::string file = read(folder / "one");
  EXPECT_EQ(read(folder / "two"), file);
  const std::string header = "{\"__metadata__\":{\"a\":\"b\",\"format\":\"pt\"}," +
                             tensor("a\\\"", "F32", "1,2", "0,8") + "," + tensor("b", "F32", "", "8,12") + "," +
                             tensor("a", "BF16", "3,0", "12,12") + "," + tensor("z", "U8", "2", "12,14") + "}";
  ASSERT_EQ(static_cast<size_t>(file[0]) + 256 * static_cast<size_t>(static_cast<unsigned char>(file[1])),
            (header.size() + 7) / 8 * 8);
  EXPECT_EQ(file.substr(8, header.size()), header);
  EXPECT_EQ(file.substr(file.size() - 14), "6789abcd234501");
  const SafetensorsFile again(folder / "one");
  EXPECT_EQ(again.contents().tensors.size(), 4U);
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"one", "two"}));
}

TEST(Safetensors, RefusesToWriteWhatItWouldNotRead) {
  const Folder folder;
  const std::string data(16, 'x');
  const auto refused = [&](const std::vector<StoredTensor>& tensors,
                           const std::map<std::string, std::string>& metadata) {
    return error_of([&] { lab::write_safetensors(folder / "file", tensors, metadata); });
  };
  const StoredTensor good{"a", "U8", {16}, bytes(data)};
  EXPECT_TRUE(says(refused({good, good}, {}), {(folder / "file").string(), "\"a\": the name is taken"}));
  EXPECT_TRUE(says(refused({{"__metadata__", "U8", {16}, bytes(data)}}, {}), {"the name is taken"}));
  EXPECT_TRUE(says(refused({{"a", "F32", {16}, bytes(data)}}, {}), {"16 bytes, but F32 [16] takes 64"}));
  EXPECT_TRUE(says(refused({{"a", "F32", {-4}, bytes(data)}}, {}), {"negative"}));
  EXPECT_TRUE(says(refused({{"a", "float", {4}, bytes(data)}}, {}), {"unknown dtype \"float\""}));
  EXPECT_TRUE(says(refused({{"\xFF", "U8", {16}, bytes(data)}}, {}), {"UTF-8"}));
  EXPECT_TRUE(says(refused({good}, {{"a", "\xFF"}}), {"UTF-8"}));
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(Safetensors, SaysWhichFileItCannotRead) {
  const Folder folder;
  write(folder / "short", "abc");
  write(folder / "empty", "");
  EXPECT_TRUE(says(error_of([&] { SafetensorsFile(folder / "short"); }), {(folder / "short").string() + ": 3 bytes"}));
  EXPECT_TRUE(says(error_of([&] { SafetensorsFile(folder / "empty"); }), {(folder / "empty").string() + ": 0 bytes"}));
  EXPECT_TRUE(says(error_of([&] { SafetensorsFile(folder / "none"); }), {(folder / "none").string(), "No such file"}));
  EXPECT_TRUE(says(error_of([&] { SafetensorsFile{folder.path()}; }), {folder.path().string(), "not a plain file"}));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_TRUE(says(error_of([&] { SafetensorsFile(folder / "pipe"); }), {"not a plain file"}));
}

// A limit on the size of files stands for a full disk.
TEST(Safetensors, AFullDiskLeavesTheOldFile) {
  const Folder folder;
  const auto path = folder / "model.safetensors";
  const std::string data(1 << 20, 'x');
  lab::write_safetensors(path, std::vector<StoredTensor>{{"old", "U8", {4}, bytes(data).first(4)}});
  const std::string before = read(path);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit tight{1 << 16, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const std::string message = error_of([&] {
    lab::write_safetensors(path, std::vector<StoredTensor>{{"new", "U8", {1 << 20}, bytes(data)}});
  });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(says(message, {path.string() + ": cannot write 1048656 bytes: File too large"}));
  EXPECT_EQ(read(path), before);
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"model.safetensors"});
}

TEST(Safetensors, MovesWithItsMap) {
  const Folder folder;
  const std::string data = "abcd";
  lab::write_safetensors(folder / "a", std::vector<StoredTensor>{{"t", "U8", {4}, bytes(data)}});
  SafetensorsFile first(folder / "a");
  const SafetensorsFile second = std::move(first);
  EXPECT_EQ(second.contents().find("t")->data[2], std::byte{'c'});
}

}  // namespace
}  // namespace lab_test
