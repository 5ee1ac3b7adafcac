// How documents are cut out of files: a file of any size goes through a buffer of 1 MiB; a line of JSON is held whole.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "data/corpus.hpp"
#include "data/utf8.hpp"
#include "error.hpp"

namespace lab {

namespace fs = std::filesystem;

namespace {

constexpr size_t kChunk = size_t{1} << 20;
// A document of JSONL is parsed in one go.
constexpr size_t kLongestJsonLine = size_t{64} << 20;

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos; }

/// Hands a text over in chunks; the last one ends its document.
void emit(std::string_view text, const Corpus::Sink& sink) {
  if (text.empty()) return;
  while (text.size() > kChunk) {
    const size_t cut = find_cut(text, kChunk);
    sink(text.substr(0, cut), false);
    text.remove_prefix(cut);
  }
  sink(text, true);
}

}  // namespace

// Chunks end with a line where they can, and hold whole characters always.
void Corpus::read_chunks(const fs::path& path, const std::function<void(std::string_view)>& take) {
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  if (!file) fail("{}: {}", path.native(), std::strerror(errno));
  std::string buffer;
  size_t offset = 0;  // of the buffer in the file
  for (bool end = false; !end || !buffer.empty();) {
    while (!end && buffer.size() <= kChunk) {
      const size_t had = buffer.size();
      buffer.resize(had + kChunk);
      const size_t got = std::fread(buffer.data() + had, 1, kChunk, file.get());
      buffer.resize(had + got);
      bytes_read_ += static_cast<int64_t>(got);
      if (std::ferror(file.get())) fail("{}: {}", path.native(), std::strerror(errno));
      end = got < kChunk;
    }
    std::string_view chunk = std::string_view(buffer).substr(0, find_cut(buffer, kChunk));
    const size_t size = chunk.size();
    if (const size_t bad = find_invalid_utf8(chunk); bad != std::string_view::npos) {
      fail("{}: byte {} is 0x{:02x}, which is no UTF-8; decompress the file, or convert it: iconv -f LATIN1 -t UTF-8",
           path.native(), offset + bad, static_cast<unsigned char>(chunk[bad]));
    }
    // The byte order mark that some editors write is no text.
    if (offset == 0 && chunk.starts_with("\xef\xbb\xbf")) chunk.remove_prefix(3);
    if (!chunk.empty()) take(chunk);
    buffer.erase(0, size);
    offset += size;
  }
}

void Corpus::read_whole(const fs::path& file, const Sink& sink) {
  bool begun = false;
  read_chunks(file, [&](std::string_view chunk) {
    sink(chunk, false);
    begun = true;
  });
  if (begun) sink({}, true);
}

void Corpus::read_lines(const fs::path& file, const Sink& sink) {
  std::string text;          // of the document that has begun, but for what was handed over
  std::string_view newline;  // that follows `text` if the document goes on
  bool begun = false;
  const auto finish = [&] {
    if (begun) sink(text, true);
    text.clear();
    newline = {};
    begun = false;
  };
  read_chunks(file, [&](std::string_view chunk) {
    while (!chunk.empty()) {
      const size_t end = chunk.find('\n');
      std::string_view line = chunk.substr(0, end);
      chunk.remove_prefix(end == std::string_view::npos ? chunk.size() : end + 1);
      const bool whole = end != std::string_view::npos;
      const bool carriage = whole && line.ends_with('\r');
      if (carriage) line.remove_suffix(1);
      // What follows a chunk without a line's end belongs to the same line.
      const bool starts = !begun || !newline.empty();
      if (starts && is_blank(line)) {
        if (whole) finish();
        continue;
      }
      text.append(newline).append(line);
      begun = true;
      newline = !whole ? "" : carriage ? "\r\n" : "\n";
      if (whole && rule_ == DocumentRule::line) {
        finish();
      } else if (text.size() >= kChunk) {
        sink(text, false);
        text.clear();
      }
    }
  });
  finish();
}

void Corpus::read_json_lines(const fs::path& file, const Sink& sink) {
  std::string line;
  int64_t number = 0;
  const auto take = [&] {
    ++number;
    if (is_blank(line)) return;
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) {
      fail("{}:{}: expected an object of JSON such as {{\"{}\": \"...\"}}, found {}", file.native(), number, text_key_,
           object.is_discarded() ? "no valid JSON" : object.type_name());
    }
    const auto text = object.find(text_key_);
    if (text == object.end()) {
      fail("{}:{}: the object has no key \"{}\"; name the one that holds the text", file.native(), number, text_key_);
    }
    if (!text->is_string()) {
      fail("{}:{}: \"{}\" is of type {}, expected a string", file.native(), number, text_key_, text->type_name());
    }
    emit(text->get_ref<const std::string&>(), sink);
  };
  read_chunks(file, [&](std::string_view chunk) {
    while (!chunk.empty()) {
      const size_t end = chunk.find('\n');
      line.append(chunk.substr(0, end));
      if (line.size() > kLongestJsonLine) {
        fail("{}:{}: the line is longer than {} MiB; cut it into several documents", file.native(), number + 1,
             kLongestJsonLine >> 20);
      }
      if (end == std::string_view::npos) return;
      take();
      line.clear();
      chunk.remove_prefix(end + 1);
    }
  });
  if (!line.empty()) take();
}

}  // namespace lab
