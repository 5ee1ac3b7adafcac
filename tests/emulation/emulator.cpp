// Fibers, and in which order they go on.
#include "emulation/emulator.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <stdexcept>
#include <utility>

/// Puts what a function must keep on the stack, leaves the stack's end in *from, and goes on where another ended.
extern "C" void came_test_switch(void** from, void* to);
asm(R"(
.text
.type came_test_switch, @function
came_test_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size came_test_switch, . - came_test_switch
)");

namespace came::test {
namespace {

constexpr size_t kStack = size_t{128} << 10;
constexpr size_t kKept = 6;  ///< Registers.

/// Turns after which nothing is expected to happen any more.
constexpr int64_t kPatience = 1'000'000;

/// Room for a fiber; kept from launch to launch.
char* stack(size_t number) {
  static thread_local std::vector<char*> stacks;
  while (stacks.size() <= number) {
    void* memory = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    stacks.push_back(static_cast<char*>(memory));
  }
  return stacks[number];
}

}  // namespace

thread_local Emulator* Emulator::current = nullptr;

void Emulator::launch(const Shape& shape, uint64_t seed, const std::function<void()>& kernel,
                      const std::function<void()>& next) {
  Emulator emulator(shape, seed, kernel, next);
  emulator.outer_ = current;
  if (current != nullptr) emulator.stacks_ = current->stacks_;
  const struct Restored {
    ~Restored() { current = outer; }
    Emulator* outer;
  } restored{std::exchange(current, &emulator)};
  // Variables in shared memory are one for all blocks here: without other shared memory, a kernel's blocks change
  // places only where they wait for each other.
  shape.together&& shape.bytes > 0 ? emulator.run_together() : emulator.run_one_by_one();
}

void Emulator::go_to_next() {
  if (let_ < shape_.blocks || !next_ || went_) return;
  went_ = true;
  next_();
}

void Emulator::begin(Block& block, int number) {
  const auto threads = static_cast<size_t>(shape_.threads);
  if (block.fibers.empty()) block.first_stack = std::exchange(stacks_, stacks_ + threads);
  block.number = number;
  block.lets_next = false;
  block.left = shape_.threads;
  block.asleep = 0;
  block.all = {};
  block.all.expected = shape_.threads;
  block.memory.assign(shape_.bytes, 0xff);
  block.warps.assign((threads + kWarp - 1) / kWarp, {});
  for (size_t k = 0; k < block.warps.size(); ++k) {
    block.warps[k].all.expected = std::min(kWarp, shape_.threads - static_cast<int>(k) * kWarp);
  }
  block.fibers.resize(threads);
  for (size_t k = 0; k < threads; ++k) {
    Fiber& fiber = block.fibers[k];
    fiber.thread = static_cast<int>(k);
    fiber.awaited = nullptr;
    fiber.done = false;
    fiber.open.clear();
    fiber.groups.clear();
    // As came_test_switch leaves it: registers, then where to go on; a function begins eight bytes off sixteen.
    auto* top = reinterpret_cast<void**>(stack(block.first_stack + k) + kStack) - 1;
    *--top = reinterpret_cast<void*>(enter);
    fiber.stack = top - kKept;
  }
}

void Emulator::enter() {
  current->kernel_();
  current->end(*current->me_);
  current->leave();
}

void Emulator::end(Fiber& fiber) {
  fiber.done = true;
  // In the midst of a launch before it, which one that is over would have waited for.
  const bool inner = outer_ != nullptr;
  if (--here_->left == 0 && !inner && !std::exchange(here_->lets_next, true)) ++let_;
  // Those who wait do not wait for threads that are gone.
  Meeting& all = here_->all;
  --all.expected;
  if (all.arrived > 0 && all.arrived == all.expected) all.close();
}

void Emulator::leave() { came_test_switch(&me_->stack, scheduler_); }

bool Emulator::go_on(Block& block) {
  here_ = &block;
  const auto threads = static_cast<size_t>(shape_.threads);
  const uint64_t first = random_();
  // Some warps sleep for a while, so that others get far ahead.
  if (first % 8 == 0) block.asleep = random_() & random_();
  const uint64_t flip = random_() % block.warps.size() * kWarp;
  bool any = false;
  for (size_t k = 0; k < threads; ++k) {
    size_t at = (first + k) % threads;
    if ((at ^ flip) < threads) at ^= flip;
    Fiber& fiber = block.fibers[at];
    if (fiber.done || (fiber.awaited != nullptr && fiber.awaited->round == fiber.round)) continue;
    if ((block.asleep >> (at / kWarp) & 1) != 0) continue;
    fiber.awaited = nullptr;
    me_ = &fiber;
    any = true;
    came_test_switch(&scheduler_, fiber.stack);
    if (astray_) throw std::runtime_error("lanes of a warp wait for different things");
    if (std::exchange(resting_, false)) return true;
  }
  return std::exchange(block.asleep, any ? block.asleep : 0) != 0 || any;
}

bool Emulator::run_alone(Block& block) {
  for (int64_t turn = 0; block.left > 0; ++turn) {
    paused_ = false;
    if (!go_on(block) || turn == kPatience) throw std::runtime_error("threads wait for each other for ever");
    if (paused_) return block.left == 0;
  }
  return true;
}

void Emulator::run_one_by_one() {
  std::vector<int> order(static_cast<size_t>(shape_.blocks));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  auto next = order.begin();
  std::deque<Block> places;  // as many as have been under way at the same time
  std::vector<size_t> vacant;
  std::vector<size_t> waiting;
  const bool early = random_() % 2 == 0;
  constexpr size_t kMostResting = 16;
  for (int64_t turn = 0; next != order.end() || !waiting.empty(); ++turn) {
    if (turn == kPatience) throw std::runtime_error("blocks wait for each other for ever");
    const bool has_place = waiting.size() < static_cast<size_t>(shape_.places);
    if (next != order.end() && has_place && (waiting.empty() || random_() % 2 == 0)) {
      if (vacant.empty()) {
        vacant.push_back(places.size());
        places.emplace_back();
      }
      waiting.push_back(vacant.back());
      vacant.pop_back();
      begin(places[waiting.back()], *next++);
    } else {
      std::swap(waiting[random_() % waiting.size()], waiting.back());
    }
    patient_ = early && waiting.size() <= kMostResting;
    const bool over = run_alone(places[waiting.back()]);
    go_to_next();
    if (!over) continue;
    vacant.push_back(waiting.back());
    waiting.pop_back();
  }
}

void Emulator::run_together() {
  std::vector<Block> blocks(static_cast<size_t>(shape_.blocks));
  for (size_t k = 0; k < blocks.size(); ++k) {
    begin(blocks[k], static_cast<int>(k));
  }
  const auto left = [](const Block& block) { return block.left > 0; };
  for (int64_t turn = 0; std::any_of(blocks.begin(), blocks.end(), left); ++turn) {
    if (turn == kPatience) throw std::runtime_error("blocks wait for each other for ever");
    // One at random goes on for a while.
    Block& block = blocks[random_() % blocks.size()];
    for (uint64_t rounds = 1 + random_() % 40; rounds > 0 && block.left > 0; --rounds) go_on(block);
    go_to_next();
  }
}

}  // namespace came::test
