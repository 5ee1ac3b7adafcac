// Runs device code on the host: each thread of a block is a fiber, which goes on until it must wait for others, in an
// order that is drawn anew every time.  So what is wrong with the order of threads and blocks shows, though there is no
// GPU.
//
// Copies to shared memory happen at once or when they are waited for, at random.  Memory that a block begins with is
// filled with NaNs.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <utility>
#include <vector>

namespace came::test {

class Emulator {
 public:
  static constexpr int kWarp = 32;

  struct Shape {
    int blocks, threads;
    size_t bytes;         ///< Shared memory of a block.
    bool together;        ///< All blocks at the same time, or one after the other; one that waits lets others begin,
    int places = blocks;  ///< so many at once at most.
  };
  /// Runs a kernel; throws if threads wait for each other for ever, or lanes of a warp for different things.  `next` is
  /// called once, perhaps, when all blocks have let the next launch begin or are over.
  static void launch(const Shape& shape, uint64_t seed, const std::function<void()>& kernel,
                     const std::function<void()>& next = {});

  // For the code that runs.

  static int blocks() { return current->shape_.blocks; }
  static int threads() { return current->shape_.threads; }
  static int block() { return current->here_->number; }
  static int thread() { return current->me_->thread; }
  static unsigned char* memory() { return current->here_->memory.data(); }
  /// Lets others go on.
  static void pause() {
    current->paused_ = true;
    current->leave();
  }
  /// The next launch may begin once all blocks have come here, or are over.
  static void let_next_begin() {
    if (std::exchange(current->here_->lets_next, true)) return;
    ++current->let_;
    current->paused_ = current->resting_ = current->patient_;
    if (current->patient_) current->leave();
  }
  /// All threads of the block that are still there.
  static void barrier() { meet(current->here_->all, Purpose::barrier); }
  /// All threads of the warp.
  static void barrier_of_warp() { meet(warp().all, Purpose::barrier); }
  /// What lane `from` of the warp gives.
  template <class T>
  static T exchange(T value, int from) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    Warp& own = warp();
    uint64_t(&given)[kWarp] = own.given[own.all.round % 2];
    std::memcpy(&given[thread() % kWarp], &value, sizeof value);
    meet(own.all, Purpose::exchange);
    std::memcpy(&value, &given[from % kWarp], sizeof value);
    return value;
  }
  static void send_for(void* to, const void* from, int bytes) {
    const Copy copy{to, from, bytes};
    if (current->random_() % 3 == 0) return copy.happen();
    current->me_->open.push_back(copy);
  }
  static void sent() {
    Fiber& fiber = *current->me_;
    fiber.groups.push_back(std::move(fiber.open));
    fiber.open.clear();
  }
  static void arrived(size_t later) {
    auto& groups = current->me_->groups;
    for (; groups.size() > later; groups.erase(groups.begin())) {
      for (const Copy& copy : groups.front()) copy.happen();
    }
  }

 private:
  struct Copy {
    void* to;
    const void* from;  ///< Null: zeros.
    int bytes;
    void happen() const {
      from != nullptr ? std::memcpy(to, from, static_cast<size_t>(bytes))
                      : std::memset(to, 0, static_cast<size_t>(bytes));
    }
  };
  enum class Purpose { barrier, exchange };
  struct Meeting {
    Purpose purpose = Purpose::barrier;  ///< Of those who have arrived.
    int arrived = 0;
    int expected = 0;
    unsigned round = 0;
    void close() {
      arrived = 0;
      ++round;
    }
  };
  struct Fiber {
    int thread = 0;
    void* stack = nullptr;             ///< Where it goes on.
    const Meeting* awaited = nullptr;  ///< Not before this one's next round.
    unsigned round = 0;
    bool done = false;
    std::vector<Copy> open;
    std::vector<std::vector<Copy>> groups;
  };
  struct Warp {
    Meeting all;
    uint64_t given[2][kWarp] = {};
  };
  struct Block {
    int number = 0;
    int left = 0;
    bool lets_next = false;
    size_t first_stack = 0;
    uint64_t asleep = 0;  ///< A bit for each warp.
    Meeting all;
    std::vector<Warp> warps;
    std::vector<Fiber> fibers;
    std::vector<unsigned char> memory;
  };

  Emulator(const Shape& shape, uint64_t seed, const std::function<void()>& kernel, const std::function<void()>& next)
      : shape_(shape), random_(seed), kernel_(kernel), next_(next) {}

  static Warp& warp() { return current->here_->warps[static_cast<size_t>(thread() / kWarp)]; }
  static void meet(Meeting& meeting, Purpose purpose) {
    Fiber& fiber = *current->me_;
    if (meeting.arrived > 0 && meeting.purpose != purpose) current->astray_ = true;
    meeting.purpose = purpose;
    if (++meeting.arrived == meeting.expected) return meeting.close();
    fiber.awaited = &meeting;
    fiber.round = meeting.round;
    current->leave();
  }
  static void enter();

  void begin(Block& block, int number);
  /// Runs the launch beside this one if it may begin.
  void go_to_next();
  /// Each thread of a block goes on until it must wait; false: none could.
  bool go_on(Block& block);
  void leave();
  void end(Fiber& fiber);
  /// Until it waits for another, or is over: then true.
  bool run_alone(Block& block);
  void run_one_by_one();
  void run_together();

  static thread_local Emulator* current;

  Shape shape_;
  std::mt19937_64 random_;
  const std::function<void()>& kernel_;
  const std::function<void()>& next_;
  bool patient_ = false;       ///< Blocks that let the next launch begin do nothing else for a while,
  bool resting_ = false;       ///< and this one just has.
  int let_ = 0;                ///< Blocks that have, or are over.
  Emulator* outer_ = nullptr;  ///< The launch that this one runs in the midst of.
  bool went_ = false;          ///< The next one has begun.
  size_t stacks_ = 0;          ///< Taken by blocks of this launch, and of those that it runs in the midst of.
  void* scheduler_ = nullptr;
  bool paused_ = false;  ///< Somebody waits for another block.
  bool astray_ = false;  ///< Lanes of a warp wait in different places.
  Block* here_ = nullptr;
  Fiber* me_ = nullptr;
};

}  // namespace came::test

// The words of CUDA.

#include <math.h>

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
struct EmulatedThreads {
  operator unsigned() const { return static_cast<unsigned>(came::test::Emulator::threads()); }
};
struct EmulatedBlocks {
  operator unsigned() const { return static_cast<unsigned>(came::test::Emulator::blocks()); }
};
inline constexpr struct { EmulatedThread x; } threadIdx;
inline constexpr struct { EmulatedBlock x; } blockIdx;
inline constexpr struct { EmulatedThreads x; } blockDim;
inline constexpr struct { EmulatedBlocks x; } gridDim;

struct float4 {
  float x, y, z, w;
};

inline void __syncthreads() { came::test::Emulator::barrier(); }
inline void __syncwarp() { came::test::Emulator::barrier_of_warp(); }
inline void __threadfence() {}
template <class T>
T __shfl_sync(unsigned, T value, int from) {
  return came::test::Emulator::exchange(value, from);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return came::test::Emulator::exchange(value, came::test::Emulator::thread() % came::test::Emulator::kWarp ^ mask);
}
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline unsigned __ballot_sync(unsigned all, bool holds) {
  unsigned lanes = holds ? 1U << threadIdx.x % 32 : 0U;
  for (int mask = 16; mask > 0; mask /= 2) lanes |= __shfl_xor_sync(all, lanes, mask);
  return lanes;
}
inline unsigned __reduce_max_sync(unsigned all, unsigned value) {
  for (int mask = 1; mask < came::test::Emulator::kWarp; mask *= 2)
    value = max(value, __shfl_xor_sync(all, value, mask));
  return value;
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
inline long long __double_as_longlong(double value) {
  long long bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
/// Four bytes of the eight of (low, high), each chosen by a number of four bits.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned choice) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  unsigned chosen = 0;
  for (unsigned k = 0; k < 4; ++k) {
    const unsigned number = choice >> (4 * k) & 15U;
    auto byte = static_cast<unsigned>(bytes >> (8 * (number & 7U)) & 255U);
    if (number > 7) byte = byte > 127 ? 255 : 0;  // its sign
    chosen |= byte << (8 * k);
  }
  return chosen;
}
