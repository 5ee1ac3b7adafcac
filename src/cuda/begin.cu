// Before the first phase: addresses and host scalars go to the workspace, then what blocks must know of each tensor.
#include "cuda/begin.hpp"

#include <algorithm>
#include <type_traits>

#include "cuda/device/moments.cuh"
#include "cuda/device/waiting.cuh"
#include "cuda/launching.hpp"

namespace came::cuda {
namespace {

constexpr uint64_t kAlignment = 16;

/// A message as a launch carries it in its arguments.
template <int Count>
struct Words {
  int64_t first;
  int32_t count;
  uint64_t value[Count];
};

template <int Count>
__global__ void bind_kernel(const __grid_constant__ Words<Count> words, uint64_t* to, ScalarTable after) {
  const int k = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (k < words.count) to[words.first + k] = words.value[k];
  if (k == words.count && after.data != nullptr) {
    const double number = scalar_at(after.data, after.dtype, 0);
    to[words.first + k] = static_cast<uint64_t>(__double_as_longlong(number));
  }
}

template <class Word>
__device__ double value_of(const Word& word, const ScalarTable& scalar, int64_t k, double fallback) {
  if (scalar.word >= 0) return __longlong_as_double(static_cast<long long>(word(scalar.word + k)));
  return scalar.data != nullptr ? scalar_at(scalar.data, scalar.dtype, k) : fallback;
}

/// Threads of a block, and those that share a tensor: each has a power to take, which takes long.
constexpr int kBegin = 128;
constexpr int kPowers = 4;

/// Is a power of a step's number wanted: of beta1, beta2, beta3, or what beta2 grows with?
__device__ bool is_wanted(int power, Algorithm algorithm, const came_options& o) {
  if (power == 3) return o.beta2_decay < 0;
  if (power == 2) return algorithm == Algorithm::came && o.bias_correction != 0;
  return algorithm == Algorithm::adam || algorithm == Algorithm::adamw || algorithm == Algorithm::lamb;
}

/// What blocks that keep a resident matrix, or take a vector, must know of it.
template <class Pointer>
__device__ void write_sheet(const Args& a, const TensorTable& t, const came_options& o, const Scalars& s, int64_t k,
                            const Pointer& pointer) {
  Sheet& sheet = a.sheets[k];
  const auto put = [&](Word at, uint64_t word) { sheet.word[static_cast<int>(at)] = word; };
  const auto put_number = [&](Word at, double x) { put(at, static_cast<uint64_t>(__double_as_longlong(x))); };
  const auto put_state = [&](Word at, int8_t state) { put(at, state == 0 ? 0 : pointer(state)); };
  put(Word::param, pointer(0));
  put(Word::grad, pointer(1));
  put_state(Word::momentum, t.states.momentum);
  put_state(Word::row, t.vector ? t.states.full : t.states.row);
  put_state(Word::col, t.states.col);
  put_state(Word::res_row, t.states.res_row);
  put_state(Word::res_col, t.states.res_col);
  put(Word::counter, reinterpret_cast<uint64_t>(a.arrivals + t.first_set));
  put(Word::rows, static_cast<uint64_t>(t.rows));
  put(Word::cols, static_cast<uint64_t>(t.cols));
  put(Word::active, s.active != 0 ? 1 : 0);
  put(Word::unaligned, s.unaligned != 0 ? 1 : 0);
  put_number(Word::multiplier, s.multiplier);
  put_number(Word::lr, s.lr);
  put_number(Word::decay, s.lr * o.weight_decay);
  put_number(Word::rate1, algorithms::rate_of(o.beta1));
  put_number(Word::rate2, algorithms::rate_of(s.beta2));
  put_number(Word::rate3, algorithms::rate_of(o.beta3));
  put_number(Word::eps1, o.eps1);
  put_number(Word::eps2, o.eps2);
  put_number(Word::clip, o.clip_threshold);
  put_number(Word::share_of_row, 1 / static_cast<double>(t.rows));
  put_number(Word::correction, o.bias_correction != 0 ? s.correction3 : 1.0);
}

/// The same of blocks that take a chunk.
template <class Pointer>
__device__ void write_moments_sheet(const Args& a, const TensorTable& t, const came_options& o, const Scalars& s,
                                    int64_t k, const Pointer& pointer, bool aligned) {
  const auto state = [&](int8_t at) { return at == 0 ? 0 : pointer(at); };
  const Rates<float> rates(o, s, a.algorithm == Algorithm::adamw, 1.0);
  const int64_t row = t.first_batch * t.whole_rows + t.first_row;
  a.moments[k] = {.param = pointer(0),
                  .grad = pointer(1),
                  .momentum = state(t.states.momentum),
                  .momentum_scale = state(t.states.momentum_scale),
                  .second = state(t.states.second),
                  .keys = {s.keys[static_cast<int>(algorithms::Stream::parameter)],
                           s.keys[static_cast<int>(algorithms::Stream::momentum)]},
                  .whole = static_cast<uint64_t>(row * t.whole_cols),
                  .elements = t.batch * t.rows * t.cols,
                  .multiplier = static_cast<float>(s.multiplier),
                  .rate1 = static_cast<float>(algorithms::rate_of(o.beta1)),
                  .rate2 = static_cast<float>(algorithms::rate_of(o.beta2)),
                  .l2 = rates.l2,
                  .decay = rates.decay,
                  .root = rates.root,
                  .eps = rates.eps,
                  .rate = rates.rate,
                  .dtype = t.dtype,
                  .grad_dtype = t.grad_dtype,
                  .momentum_dtype = t.momentum_dtype,
                  .stochastic = o.stochastic_rounding,
                  .active = s.active,
                  .vectors = static_cast<int16_t>(aligned ? 1 : 0),
                  .unaligned = s.unaligned};
}

/// Is an address of a tensor, or of a state of it, no multiple of what vectors take?  As Call::bind says on the host.
template <class Pointer>
__device__ bool is_unaligned(const States& states, const Pointer& pointer) {
  uint64_t addresses = pointer(0) | pointer(1);
  for (const int8_t at : {states.momentum, states.momentum_scale, states.second, states.second_scale, states.row,
                          states.col, states.full, states.res_row, states.res_col, states.res_full}) {
    if (at != 0) addresses |= pointer(at);
  }
  return addresses % kAlignment != 0;
}

/// Counts the step where that is done on the device.
__device__ void raise_counter(const ScalarTable& step, int64_t k) {
  void* data = const_cast<void*>(step.data);
  if (data == nullptr) return;
  if (step.dtype == DType::f32) {
    static_cast<float*>(data)[k] += 1;
  } else if (step.dtype == DType::i64) {
    static_cast<int64_t*>(data)[k] += 1;
  } else {
    static_cast<double*>(data)[k] += 1;
  }
}

/// Writes the last words, reads a step's scalars for every tensor, counts the step, and makes counters of arrivals
/// ready. A counter that all tensors share is read from where it was copied to, because some block raises it.
template <int Count>
__global__ void __launch_bounds__(kBegin)
    begin_kernel(const __grid_constant__ Args a, const __grid_constant__ Words<Count> words) {
  const Team<kBegin> team;
  if (is_skipped(a)) return;
  const auto word = [&](int64_t k) { return k >= words.first ? words.value[k - words.first] : a.words[k]; };
  double norm = 0;
  if (a.norm_count > 0) {
    double sum = 0;
    for (int64_t range = 0; range < a.norm_count; ++range) {
      const double* squares = a.reductions + a.norms[range].begin;
      sum += team.sum_of(a.norms[range].count, [&](int64_t k) { return squares[k]; });
    }
    norm = sqrt(sum);
  }
  const int64_t first = blockIdx.x * int64_t{kBegin} + team.rank;
  const int64_t all = gridDim.x * int64_t{kBegin};
  // L2 fetches at once what is looked up one after the other, here and in the launches to come.
  const auto fetch = [&](const void* from, int64_t bytes) {
    for (int64_t at = first * kLine; at < bytes; at += all * kLine) fetch_ahead(static_cast<const char*>(from) + at);
  };
  fetch(a.tensors, a.tensor_count * static_cast<int64_t>(sizeof(TensorTable)));
  fetch(a.groups, sizeof(came_options));
  if (a.step.data != nullptr && a.step.each != 0)
    fetch(a.step.data, a.tensor_count * static_cast<int64_t>(sizeof(float)));
  fetch(a.soon, a.soon_bytes);
  const double scale = value_of(word, a.grad_scale, 0, 1.0);
  const int power = team.rank % kPowers;
  for (int64_t base = 0; base < a.tensor_count; base += all / kPowers) {
    const bool there = base + first / kPowers < a.tensor_count;
    const int64_t k = there ? base + first / kPowers : 0;
    const TensorTable& t = a.tensors[k];
    const came_options& o = a.groups[t.group];
    Scalars s{};
    s.lr = value_of(word, a.lr, t.group, o.lr);
    s.count = (there ? value_of(word, a.step, a.step.each != 0 ? k : 0, 0.0) : 0.0) + 1;
    const double multiplier = algorithms::gradient_multiplier(scale, o.max_grad_norm, norm);
    s.multiplier = o.maximize != 0 ? -multiplier : multiplier;
    const double of = power == 0 ? o.beta1 : power == 1 ? o.beta2 : power == 2 ? o.beta3 : s.count;
    const bool wanted = is_wanted(power, a.algorithm, o);
    const double correction = wanted ? 1 - pow(of, power < 3 ? s.count : o.beta2_decay) : 0.0;
    const auto from = [&](int other) { return __shfl_sync(kAll, correction, (team.rank - power + other) % kWarp); };
    s.correction1 = from(0);
    s.correction2 = from(1);
    s.correction3 = from(2);
    const double growing = from(3);
    s.beta2 = o.beta2_decay < 0 ? growing : o.beta2;  // (14)
    if (!there || power != 0) continue;
    for (uint64_t stream = 1; stream < 4; ++stream) {
      s.keys[stream] = algorithms::rounding_key(o.seed, static_cast<uint64_t>(s.count), t.id,
                                                static_cast<algorithms::Stream>(stream));
    }
    const auto pointer = [&](int at) { return word(t.pointers + at); };
    const bool given = pointer(1) != 0;
    s.unaligned = a.unaligned != 0 && given && t.needs_alignment && is_unaligned(t.states, pointer) ? 1 : 0;
    s.active = given && s.unaligned == 0 ? 1 : 0;
    uint64_t addresses = pointer(0) | pointer(1);
    for (const int8_t at : {t.states.momentum, t.states.second, t.states.full, t.states.res_full}) {
      if (at != 0) addresses |= pointer(at);
    }
    const bool rows_fit = t.cols % kColumns == 0 || t.batch * t.rows == 1;
    const bool aligned = addresses % kAlignment == 0;
    s.vectors = aligned && rows_fit ? 1 : 0;
    a.scalars[k] = s;
    if (t.resident || t.vector) write_sheet(a, t, o, s, k, pointer);
    if (t.flat) write_moments_sheet(a, t, o, s, k, pointer, aligned);
    a.agreements[k] = 0;
    a.arrivals[a.set_count + k] = 0;
    if (a.raises != 0 && a.step.each != 0 && given) raise_counter(a.step, k);
  }
  for (int64_t k = first; k < words.count; k += all) a.words[words.first + k] = words.value[k];
  for (int64_t k = first; k < a.set_count; k += all) a.arrivals[k] = 0;
  for (int64_t k = first; k < a.turn_count; k += all) a.turns[k] = 0;
  if (a.raises != 0 && a.step.each == 0 && first == 0) raise_counter(a.step, 0);
}

/// Words of messages that kernels are compiled for.
constexpr int kSizes[] = {512, 1024, 2048, 3072, kMostWords};

/// Calls f with a message as arguments, the smallest that hold it: a launch copies all of its own.
template <class F>
void with_words(const Message& message, const F& f) {
  const auto fill = [&]<int Count>(std::integral_constant<int, Count>) {
    Words<Count> words;
    words.first = message.first;
    words.count = message.count;
    std::copy_n(message.word, message.count, words.value);
    f(words);
  };
  if (message.count <= kSizes[0]) return fill(std::integral_constant<int, kSizes[0]>{});
  if (message.count <= kSizes[1]) return fill(std::integral_constant<int, kSizes[1]>{});
  if (message.count <= kSizes[2]) return fill(std::integral_constant<int, kSizes[2]>{});
  if (message.count <= kSizes[3]) return fill(std::integral_constant<int, kSizes[3]>{});
  fill(std::integral_constant<int, kMostWords>{});
}

}  // namespace

void run_bind(const Args& args, const Message& message, const ScalarTable& after, const Queue& queue) {
  constexpr int kThreads = 128;
  with_words(message, [&]<int Count>(const Words<Count>& words) {
    run_kernel(bind_kernel<Count>, {message.count / kThreads + 1, kThreads, 0, Manner::after}, queue, words, args.words,
               after);
  });
}

void ask_for_begin(const Args& args) {
  const Queue nowhere{.asks = true};
  Message message{};
  for (const int size : kSizes) {
    message.count = size;
    run_bind(args, message, {}, nowhere);
    run_begin(args, message, nowhere);
  }
}

bool launches_overlap() {
  constexpr int kSince = 90;
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(begin_kernel<512>)), "kernels");
  return attributes.ptxVersion >= kSince;
}

void run_begin(const Args& args, const Message& message, const Queue& queue) {
  constexpr int64_t kMost = 64;
  const int64_t blocks = std::clamp<int64_t>((args.tensor_count * kPowers + kBegin - 1) / kBegin, 1, kMost);
  with_words(message, [&]<int Count>(const Words<Count>& words) {
    static_assert(sizeof(Args) + sizeof words <= 32764);
    run_kernel(begin_kernel<Count>, {blocks, kBegin, 0, Manner::after}, queue, args, words);
  });
}

}  // namespace came::cuda
