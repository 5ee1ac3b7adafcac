// Runs device code on the host: each thread of each block is a fiber, which goes on until it must wait for others, and
// blocks take turns at random.  So what is wrong with their order shows, though there is no GPU.
//
// Copies to shared memory happen at once or when they are waited for, at random.  Memory that a block begins with is
// filled with NaNs.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

namespace came::test {

class Emulator {
 public:
  static constexpr int kThreads = 256;
  static constexpr int kWarp = 32;

  /// Runs a kernel over so many blocks, all at the same time.
  static void launch(int blocks, size_t shared_bytes, uint64_t seed, const std::function<void()>& kernel) {
    Emulator emulator(blocks, shared_bytes, seed, kernel);
    current() = &emulator;
    emulator.run();
    current() = nullptr;
  }

  // For the code that runs.

  static int block() { return current()->block_; }
  static int thread() { return current()->thread_; }
  static unsigned char* memory() { return current()->here().memory.data(); }
  /// Lets others go on.
  static void pause() { swapcontext(&current()->me().context, &current()->scheduler_); }
  /// All threads of the block.
  static void barrier() {
    Block& block = current()->here();
    wait_for_all(block.arrived, block.round, kThreads);
  }
  /// What lane `from` of the warp gives.
  template <class T>
  static T exchange(T value, int from) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    Warp& warp = current()->here().warps[static_cast<size_t>(thread() / kWarp)];
    const unsigned round = warp.round;
    std::memcpy(&warp.given[round % 2][thread() % kWarp], &value, sizeof value);
    wait_for_all(warp.arrived, warp.round, kWarp);
    T given;
    std::memcpy(&given, &warp.given[round % 2][from % kWarp], sizeof given);
    return given;
  }
  static void send_for(void* to, const void* from) {
    if (current()->random_() % 3 == 0) return copy({to, from});
    current()->me().open.push_back({to, from});
  }
  static void sent() {
    Fiber& fiber = current()->me();
    fiber.groups.push_back(std::move(fiber.open));
    fiber.open.clear();
  }
  static void arrived(size_t later) {
    auto& groups = current()->me().groups;
    for (; groups.size() > later; groups.pop_front()) {
      for (const Copy& each : groups.front()) copy(each);
    }
  }

 private:
  static constexpr size_t kStack = size_t{48} << 10;
  static constexpr size_t kItem = 16;

  struct Copy {
    void* to;
    const void* from;  ///< Null: zeros.
  };
  struct Fiber {
    ucontext_t context{};
    std::unique_ptr<char[]> stack;
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
    bool done = false;
  };
  struct Warp {
    unsigned arrived = 0;
    unsigned round = 0;
    uint64_t given[2][kWarp] = {};
  };
  struct Block {
    unsigned arrived = 0;
    unsigned round = 0;
    std::vector<Warp> warps{kThreads / kWarp};
    std::vector<Fiber> fibers{kThreads};
    std::vector<unsigned char> memory;
  };

  Emulator(int blocks, size_t shared_bytes, uint64_t seed, const std::function<void()>& kernel)
      : blocks_(static_cast<size_t>(blocks)), random_(seed), kernel_(kernel) {
    for (Block& block : blocks_) {
      block.memory.assign(shared_bytes, 0xff);
      for (Fiber& fiber : block.fibers) {
        fiber.stack = std::make_unique<char[]>(kStack);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.get();
        fiber.context.uc_stack.ss_size = kStack;
        makecontext(&fiber.context, enter, 0);
      }
    }
  }

  static Emulator*& current() {
    static Emulator* emulator = nullptr;
    return emulator;
  }
  Block& here() { return blocks_[static_cast<size_t>(block_)]; }
  Fiber& me() { return here().fibers[static_cast<size_t>(thread_)]; }

  static void copy(const Copy& each) {
    if (each.from != nullptr) {
      std::memcpy(each.to, each.from, kItem);
    } else {
      std::memset(each.to, 0, kItem);
    }
  }
  static void wait_for_all(unsigned& arrived, unsigned& round, int count) {
    const unsigned mine = round;
    if (++arrived == static_cast<unsigned>(count)) {
      arrived = 0;
      ++round;
      return;
    }
    while (round == mine) pause();
  }
  static void enter() {
    current()->kernel_();
    current()->me().done = true;
    pause();
  }

  /// A block at random goes on for a while, then another.
  void run() {
    constexpr int64_t kPatience = 5'000'000;
    size_t left = blocks_.size() * kThreads;
    for (int64_t turn = 0; left > 0; ++turn) {
      if (turn == kPatience) throw std::runtime_error("blocks wait for each other for ever");
      block_ = static_cast<int>(random_() % blocks_.size());
      for (uint64_t rounds = 1 + random_() % 40; rounds > 0; --rounds) {
        const uint64_t first = random_();
        for (uint64_t k = 0; k < kThreads; ++k) {
          thread_ = static_cast<int>((first + k) % kThreads);
          if (me().done) continue;
          swapcontext(&scheduler_, &me().context);
          if (me().done) --left;
        }
      }
    }
  }

  std::vector<Block> blocks_;
  std::mt19937_64 random_;
  std::function<void()> kernel_;
  ucontext_t scheduler_{};
  int block_ = 0;
  int thread_ = 0;
};

}  // namespace came::test

// The words of CUDA.

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
#define __builtin_assume(x)

struct EmulatedThread {
  operator unsigned() const { return static_cast<unsigned>(came::test::Emulator::thread()); }
};
struct EmulatedBlock {
  operator unsigned() const { return static_cast<unsigned>(came::test::Emulator::block()); }
};
inline constexpr struct { EmulatedThread x; } threadIdx;
inline constexpr struct { EmulatedBlock x; } blockIdx;
inline constexpr struct { unsigned x = came::test::Emulator::kThreads; } blockDim;

struct float4 {
  float x, y, z, w;
};

inline void __syncthreads() { came::test::Emulator::barrier(); }
inline void __syncwarp() { came::test::Emulator::exchange(0, 0); }
template <class T>
T __shfl_sync(unsigned, T value, int from) {
  return came::test::Emulator::exchange(value, from);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return came::test::Emulator::exchange(value, came::test::Emulator::thread() % came::test::Emulator::kWarp ^ mask);
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
template <class T>
T atomicAdd(T* to, T value) {
  const T old = *to;
  *to += value;
  return old;
}
inline double __longlong_as_double(long long bits) {
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Named by code that is not run.
unsigned max(unsigned, unsigned);
bool __isGlobal(const void*);
unsigned __byte_perm(unsigned, unsigned, unsigned);
float __fmaf_rn(float, float, float);
unsigned __reduce_max_sync(unsigned, unsigned);
int __clz(int);
