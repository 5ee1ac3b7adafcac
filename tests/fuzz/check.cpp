// Every allocation of a fuzz target counts, in every build.
#include "check.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>

namespace {
thread_local int64_t allocated = 0;
}  // namespace

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CAME_FUZZ_HOOKS
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define CAME_FUZZ_HOOKS
#endif

#ifdef CAME_FUZZ_HOOKS
// AddressSanitizer tells of each, and keeps its own operator new, which knows how memory was allocated.
extern "C" void __sanitizer_malloc_hook(const volatile void*, size_t size) { allocated += static_cast<int64_t>(size); }
extern "C" void __sanitizer_free_hook(const volatile void*) {}
#else
namespace {
void* counted(std::size_t size) {
  allocated += static_cast<int64_t>(size);
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace came_fuzz {

int64_t allocated_bytes() { return allocated; }

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", what.c_str());
  std::abort();
}

void require_message(const std::string& message) {
  require(!message.empty() && message.size() < 1000, "an error of no or great length: " + message);
  require(message.find('\n') == std::string::npos, "an error of several lines: " + message);
}

InputFile::InputFile(const std::string& name) {
  const std::filesystem::path memory = "/dev/shm";
  const bool there = ::access(memory.c_str(), W_OK) == 0;
  std::string folder = ((there ? memory : std::filesystem::temp_directory_path()) / "came-fuzz-XXXXXX").string();
  require(::mkdtemp(folder.data()) != nullptr, "cannot make " + folder);
  folder_ = folder;
  path_ = folder_ / name;
}

InputFile::~InputFile() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void InputFile::write(Input input) const {
  std::ofstream file(path_, std::ios::binary);
  file.write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
  require(static_cast<bool>(file.flush()), "cannot write " + path_.string());
}

}  // namespace came_fuzz
