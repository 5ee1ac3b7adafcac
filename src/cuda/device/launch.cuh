// How kernels are launched and how a block finds its matrices.
#pragma once

#include "cuda/device/panel.cuh"
#include "cuda/device/waiting.cuh"
#include "cuda/kernels.hpp"
#include "cuda/launching.hpp"

namespace came::cuda {

/// Threads of a block where its size decides how far sums reach before they leave it, and elsewhere.
inline constexpr int kWide = 512;
inline constexpr int kNarrow = 256;

/// Stands at the beginning of a kernel.  Launches of one phase take different tensors: the next one may begin as soon
/// as all blocks of this one have, and this one is not over before the one that it ran beside.  The last one of a phase
/// lets nobody begin: a programmatic launch of the caller may read what it writes.
struct Beside {
  __device__ explicit Beside(const Args& a) {
    if (a.lets_next != 0) let_next_begin();
  }
  __device__ ~Beside() { await_launch_before(); }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
};

template <class T, int Threads>
union Shelves {
  Shelf<T, Threads> block;
  Shelf<T, kWarp> warps[Threads / kWarp];
};

template <class T, int Threads>
__device__ inline Shelves<T, Threads>& shelves() {
  return *reinterpret_cast<Shelves<T, Threads>*>(memory_of_block());
}

/// Calls body(team, shelf, columns, b) for the matrices of a part, each with room for two numbers per column, if it is
/// a matrix that a team owns whole.
template <int Threads, class T, class Body>
__device__ inline void for_matrices(const Subject<T>& s, const Part& part, const Body& body) {
  Shelves<T, Threads>& all = shelves<T, Threads>();
  T* columns = reinterpret_cast<T*>(&all + 1);
  if (s.t.owner == Owner::matrix && s.t.rows * s.t.cols <= kTinyMatrix) {
    const Team<kWarp> team;
    T* own = columns + team.index * 2 * s.t.cols;
    for (int64_t b = part.batch + team.index; b < part.batch + part.batches; b += Threads / kWarp) {
      body(team, all.warps[team.index], own, b);
    }
    __syncthreads();
    return;
  }
  const Team<Threads> team;
  for (int64_t b = part.batch; b < part.batch + part.batches; ++b) body(team, all.block, columns, b);
}

/// Calls f with the types of a variant.
template <class F>
void with_types(Variant variant, const F& f) {
  switch (variant) {
    case Variant::f32_f32:
      return f(TypesOf<Variant::f32_f32>{});
    case Variant::f32_bf16:
      return f(TypesOf<Variant::f32_bf16>{});
    case Variant::f32_codes:
      return f(TypesOf<Variant::f32_codes>{});
    case Variant::bf16_f32:
      return f(TypesOf<Variant::bf16_f32>{});
    case Variant::bf16_bf16:
      return f(TypesOf<Variant::bf16_bf16>{});
    case Variant::bf16_codes:
      return f(TypesOf<Variant::bf16_codes>{});
    case Variant::any32:
      return f(TypesOf<Variant::any32>{});
    case Variant::any64:
      return f(TypesOf<Variant::any64>{});
  }
}

/// The variant whose parameter and gradient are stored alike, where nothing else matters.
constexpr Variant without_momentum(Variant variant) {
  if (variant == Variant::f32_bf16 || variant == Variant::f32_codes) return Variant::f32_f32;
  if (variant == Variant::bf16_f32 || variant == Variant::bf16_codes) return Variant::bf16_bf16;
  return variant;
}

/// Calls f with the types of a plain variant once its options are known: no branches then in a loop's middle.
template <class K, class F>
CAME_MAIN_ROUTE void with_known(const Subject<typename K::T>& s, const F& f) {
  using T = typename K::T;
  constexpr bool kBF16 = std::is_same_v<typename K::Param, BF16>;
  using Param = std::conditional_t<kBF16, BF16As<Known::nearest>, typename K::Param>;
  if constexpr (!K::kPlain) {
    f(K{});
  } else if (s.o.stochastic_rounding != 0) {
    f(K{});
  } else if constexpr (std::is_same_v<typename K::Momentum, Codes>) {
    if (s.t.momentum_dtype == DType::u8) {
      f(Types<T, Param, CodesAs<Known::bits4>, true>{});
    } else {
      f(Types<T, Param, CodesAs<Known::bits8>, true>{});
    }
  } else if constexpr (std::is_same_v<typename K::Momentum, BF16>) {
    f(Types<T, Param, BF16As<Known::nearest>, true>{});
  } else {
    f(Types<T, Param, typename K::Momentum, true>{});
  }
}

template <class F>
void with_gradient_types(Variant variant, const F& f) {
  switch (without_momentum(variant)) {
    case Variant::f32_f32:
      return f(TypesOf<Variant::f32_f32>{});
    case Variant::bf16_bf16:
      return f(TypesOf<Variant::bf16_bf16>{});
    case Variant::any64:
      return f(TypesOf<Variant::any64>{});
    default:
      return f(TypesOf<Variant::any32>{});
  }
}

template <class... More>
using KernelFunction = void (*)(Args, More...);

/// Launches a kernel over the parts or chunks of a launch, with this much shared memory besides the columns'.
template <class... More>
void launch_parts(KernelFunction<More...> kernel, Args args, const Launch& launch, int threads, size_t shared,
                  const Queue& queue, More... more) {
  const size_t bytes = shared + static_cast<size_t>(launch.buffer);
  const size_t most = launch.buffer > 0 ? shared + kMostBuffer : bytes;
  if (launch.work == Work::chunks) {
    args.chunks += launch.first;
  } else {
    args.parts += launch.first;
  }
  run_kernel(kernel, {launch.count, threads, bytes, launch.beside ? Manner::beside : Manner::after, most}, queue, args,
             more...);
}

/// Does a launch of kernels for K take a tensor, as a step's Scalars or sheet say?
template <class K, class Said>
__device__ inline bool is_taken(const Args& a, const Said& said) {
  if constexpr (!K::kPlain) {
    if (a.unaligned != 0) return said.unaligned != 0;
  }
  return said.active != 0;
}

/// Whether something follows from the slots for this block's tensor: not where it has no elements, whose mean is none.
__device__ inline bool is_finished_here(const Args& a) {
  const TensorTable& t = a.tensors[blockIdx.x];
  const Scalars& s = a.scalars[blockIdx.x];
  return !is_skipped(a) && t.sharded && t.elements > 0 && (s.active != 0 || s.unaligned != 0);
}

/// One block per tensor, for what follows from slots.
inline void launch_tensors(KernelFunction<> kernel, const Args& args, const Queue& queue) {
  if (args.tensor_count > 0) run_kernel(kernel, {args.tensor_count, kNarrow, 0, Manner::after}, queue, args);
}

/// Calls f(subject) with the arithmetic of a tensor.
template <class F>
__device__ inline void with_subject(const Args& a, int64_t tensor, const F& f) {
  if (a.tensors[tensor].dtype == DType::f64) {
    f(Subject<double>(a, tensor));
  } else {
    f(Subject<float>(a, tensor));
  }
}

}  // namespace came::cuda
