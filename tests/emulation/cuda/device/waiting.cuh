// Copies that come later, and counters, on the host.
#pragma once

#include "emulation/emulator.hpp"

namespace came::cuda {

inline unsigned char* memory_of_block() { return test::Emulator::memory(); }

inline void send_for(void* to, const char* from, bool there) { test::Emulator::send_for(to, there ? from : nullptr); }
/// At once: those who need it wait for nobody.
template <int Bytes>
void copy_later(void* to, const void* from, bool there) {
  std::memset(to, 0, Bytes);
  if (there) std::memcpy(to, from, Bytes);
}
inline void sent() { test::Emulator::sent(); }
template <int Later>
void arrived() {
  test::Emulator::arrived(Later);
}

inline void raise(unsigned* counter) {
  test::Emulator::barrier();
  if (threadIdx.x == 0) ++*counter;
}
inline void poll(const unsigned* counter, unsigned count) {
  while (*static_cast<const volatile unsigned*>(counter) < count) test::Emulator::pause();
}

}  // namespace came::cuda
