// Copies that come later, and counters, on the host.
#pragma once

#include "emulation/emulator.hpp"

namespace came::cuda {

inline unsigned char* memory_of_block() { return test::Emulator::memory(); }

inline void send_for(void* to, const char* from, bool there) { test::Emulator::send_for(to, there ? from : nullptr); }
template <int Bytes>
void copy_later(void*, const void*, bool);  // no kernel that runs here needs it
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
