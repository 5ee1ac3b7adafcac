// Stands in for gpu/device.cpp in builds without CUDA, where no test may need a device.
#include <stdexcept>

#include "device.hpp"

namespace came::test::device {
namespace {

[[noreturn]] void fail() { throw std::runtime_error("these tests were built without CUDA"); }

}  // namespace

bool present() { return false; }
void* allocate(int64_t) { fail(); }
void release(void*) noexcept {}
void upload(void*, const void*, int64_t) { fail(); }
void download(void*, const void*, int64_t) { fail(); }
void fill(void*, int, int64_t) { fail(); }
void synchronize() { fail(); }

}  // namespace came::test::device
