// OpenMP's threads: one region per step, and a barrier inside it.  No thread is ever started here, so a step takes its
// threads from the same pool as its host program and obeys omp_set_num_threads.
//
// ThreadSanitizer does not see the synchronisation inside the OpenMP runtime; under it every edge is spelled out.
#pragma once

#include <omp.h>

#include "core/float_mode.hpp"

#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#define CAME_CPU_ACQUIRE(address) __tsan_acquire(const_cast<void*>(static_cast<const void*>(address)))
#define CAME_CPU_RELEASE(address) __tsan_release(const_cast<void*>(static_cast<const void*>(address)))
#define CAME_CPU_UNSEEN __attribute__((no_sanitize("thread")))
#else
#define CAME_CPU_ACQUIRE(address) static_cast<void>(address)
#define CAME_CPU_RELEASE(address) static_cast<void>(address)
#define CAME_CPU_UNSEEN
#endif

namespace came::cpu {

/// One worker of a team.
class Worker {
 public:
  Worker(int index, int count, const void* team) : index_(index), count_(count), team_(team) {}

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] int count() const { return count_; }

  /// Waits for all workers of the team; what each wrote before, all see after.
  void wait() const {
    if (count_ == 1) return;
    CAME_CPU_RELEASE(team_);
#pragma omp barrier
    CAME_CPU_ACQUIRE(team_);
  }

 private:
  int index_;
  int count_;
  const void* team_;
};

template <class Body>
void work(const Body& body, int index, int count) {
  CAME_CPU_ACQUIRE(&body);
  const core::FloatMode mode;
  body(Worker(index, count, &body));
  CAME_CPU_RELEASE(&body);
}

/// Calls body(worker) on every thread of a team; on this thread alone unless `worthwhile`.
template <class Body>
CAME_CPU_UNSEEN void in_parallel(bool worthwhile, const Body& body) {
  CAME_CPU_RELEASE(&body);
#pragma omp parallel if (worthwhile)
  work(body, omp_get_thread_num(), omp_get_num_threads());
  CAME_CPU_ACQUIRE(&body);
}

}  // namespace came::cpu
