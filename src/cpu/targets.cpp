// Which instruction sets there are and which one runs.  Highway's own choice lives in a shared library of its own; this
// one keeps libcame free of it.
#include <atomic>

#include "cpu/kernels.hpp"
#include "hwy/highway.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace came::cpu {
namespace {

#if HWY_ARCH_X86
/// Not every compiler's __builtin_cpu_supports knows this one.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

Target supported() {
#if HWY_ARCH_X86
  // All that Highway lets the compiler use for a target: a virtual machine may hide one of them and show the others.
  const bool sse4 = __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
                    __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
                    __builtin_cpu_supports("aes");
  const bool avx2 = sse4 && __builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") &&
                    __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    has_f16c();
  const bool avx3 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  Target set = HWY_STATIC_TARGET;
  if (sse4) set |= HWY_SSE4;
  if (avx2) set |= HWY_AVX2;
  if (avx3) set |= HWY_AVX3;
  return set & HWY_TARGETS;
#else
  return HWY_STATIC_TARGET;
#endif
}

std::atomic<Target> forced{0};

}  // namespace

std::array<Target, 16> targets() {
  std::array<Target, 16> list{};
  size_t count = 0;
  for (Target set = supported(); set != 0 && count < list.size(); set &= set - 1) list[count++] = set & -set;
  return list;
}

Target target() {
  static const Target best = targets()[0];
  const Target chosen = forced.load(std::memory_order_relaxed);
  return chosen != 0 ? chosen : best;
}

void force_target(Target chosen) { forced.store(chosen, std::memory_order_relaxed); }

const char* target_name(Target target) { return hwy::TargetName(target); }

}  // namespace came::cpu
