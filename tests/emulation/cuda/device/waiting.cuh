// Copies that come later, and counters, on the host.
#pragma once

#include "emulation/emulator.hpp"

namespace came::cuda {

inline unsigned char* memory_of_block() { return test::Emulator::memory(); }

inline int ask_for_thread() { return static_cast<int>(threadIdx.x); }

inline uint32_t ask_lane(uint32_t value, int lane) { return __shfl_sync(0xffffffffU, value, lane); }

/// A device stops at an address that is no multiple of what is moved.
inline void expect_aligned(const void* address, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) __builtin_trap();
}

template <int Bytes>
void copy_later(void* to, const void* from, bool there) {
  expect_aligned(to, Bytes);
  expect_aligned(from, there ? Bytes : 1);
  test::Emulator::send_for(to, there ? from : nullptr, Bytes);
}
inline void send_for(void* to, const char* from, bool there) { copy_later<16>(to, from, there); }
inline void sent() { test::Emulator::sent(); }
template <int Later>
void arrived() {
  test::Emulator::arrived(Later);
}

inline void fetch_ahead(const void*) {}
inline void leave(float* to, const float (&x)[4]) {
  expect_aligned(to, sizeof x);
  std::memcpy(to, x, sizeof x);
}
inline constexpr int kLine = 128;
/// No NaN, which is what lies beyond the workspace.
inline void discard(char* line) {
  expect_aligned(line, kLine);
  std::memset(line, 0x7e, kLine);
}

inline void let_next_begin() { test::Emulator::let_next_begin(); }
/// The runtime runs what comes before it first, or this one from its beginning to its end in the midst of that.
inline void await_launch_before() {}

inline void raise(unsigned* counter) {
  test::Emulator::barrier();
  if (threadIdx.x == 0) ++*counter;
}
inline void poll(const unsigned* counter, unsigned count) {
  while (*static_cast<const volatile unsigned*>(counter) < count) test::Emulator::pause();
}
inline void await(const unsigned* counter, unsigned count) {
  if (threadIdx.x == 0) poll(counter, count);
  test::Emulator::barrier();
}
inline unsigned glance(const unsigned* counter) { return *static_cast<const volatile unsigned*>(counter); }
inline void keep_pace(const unsigned* counter, unsigned count) { poll(counter, count); }

}  // namespace came::cuda
