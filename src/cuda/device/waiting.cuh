// Copies to shared memory that come later, and counters by which blocks wait for each other: what takes instructions of
// the device.  tests/emulation/ has the same for the host.
#pragma once

#include <cstdint>

namespace came::cuda {

/// Shared memory of the block, as much as the launch asked for.
__device__ inline unsigned char* memory_of_block() {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  return shared_memory;
}

/// Number of this thread, as if nobody knew: what follows from it is computed anew, instead of kept where registers are
/// few and memory is far.
__device__ __forceinline__ int ask_for_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

/// What a lane of the warp has, likewise.  All lanes must ask.
__device__ __forceinline__ uint32_t ask_lane(uint32_t value, int lane) {
  uint32_t found;
  asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, -1;" : "=r"(found) : "r"(value), "r"(lane));
  return found;
}

/// 16 bytes from memory to shared memory, or zeros, some time before arrived().
__device__ __forceinline__ void send_for(void* to, const char* from, bool there) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0) : "memory");
}
/// The same for 4, 8 or 16 bytes that are read once.
template <int Bytes>
__device__ __forceinline__ void copy_later(void* to, const void* from, bool there) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(Bytes), "r"(there ? Bytes : 0)
               : "memory");
}
/// Ends a group of them.
__device__ inline void sent() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// All but the last `Later` groups that were sent.
template <int Later>
__device__ inline void arrived() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Later) : "memory");
}

/// L2 fetches a line that is read soon.
__device__ __forceinline__ void fetch_ahead(const void* line) { asm volatile("prefetch.global.L2 [%0];" ::"l"(line)); }

/// A vector that other blocks read soon: L2 keeps it longer than what streams through.
__device__ __forceinline__ void leave(float* to, const float (&x)[4]) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]),
               "f"(x[3]), "l"(policy)
               : "memory");
}
/// A line that nobody reads any more: L2 need not keep it, nor write it to memory.
inline constexpr int kLine = 128;
__device__ __forceinline__ void discard(char* line) {
  asm volatile("discard.global.L2 [%0], %1;" ::"l"(line), "n"(kLine) : "memory");
}

/// A launch that runs beside this one may begin once all blocks have said so, or are over.
__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
/// Waits until the launch that this one runs beside, if any, is over.
__device__ inline void await_launch_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Counts a block that has come so far; what it wrote before is seen by those who wait for it.
__device__ inline void raise(unsigned* counter) {
  __syncthreads();
  if (ask_for_thread() == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
/// Waits until so many have come.
__device__ inline void poll(const unsigned* counter, unsigned count) {
  unsigned seen;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  } while (seen < count);
}
/// The whole block does.
__device__ inline void await(const unsigned* counter, unsigned count) {
  if (ask_for_thread() == 0) poll(counter, count);
  __syncthreads();
}
/// How far a counter is.
__device__ __forceinline__ unsigned glance(const unsigned* counter) {
  unsigned seen;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  return seen;
}
/// Waits likewise, where nothing is read that those who came wrote.
__device__ inline void keep_pace(const unsigned* counter, unsigned count) {
  unsigned seen;
  do {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  } while (seen < count);
}

}  // namespace came::cuda
