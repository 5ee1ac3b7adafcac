// src/algorithms/ gives the same bits on the device as on the host: every value of the 16-bit types widened, and a few
// million f32 bit patterns narrowed to nearest and stochastically, and coded in 8 and 4 bits, as a momentum and as a
// second moment, with keys and random bits.
//
// Exits with 0 (equal), 1 (a difference, or CUDA failed) or 77 (no CUDA device).
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "algorithms/quantize.hpp"
#include "algorithms/rounding.hpp"

namespace {

namespace alg = came::algorithms;

constexpr int kSkipped = 77;

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "algorithms_test: CUDA: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

/// All that the functions make of a 16-bit value or an f32 pattern, as bits.
struct Outcome {
  uint64_t key;
  uint64_t mixed;
  uint32_t random;
  uint32_t widened_bf16, widened_f16;
  uint32_t nearest_bf16, nearest_f16;
  uint32_t stochastic_bf16, stochastic_f16;
  uint32_t finite;
  uint32_t code_int8, code_int4;
  uint32_t decoded_int8, decoded_int4;
  uint32_t second_moment_scale, second_moment_code, second_moment;
};

/// What is narrowed at `index`, and by which draw.
struct Pattern {
  uint32_t bits;
  uint64_t seed, step, tensor, element;
};

__host__ __device__ Outcome evaluate(const Pattern& p) {
  const float x = alg::float_of(p.bits);
  const auto half = static_cast<uint16_t>(p.bits);
  const alg::Stream stream = static_cast<alg::Stream>(1 + p.bits % 3);
  Outcome out{};
  out.key = alg::rounding_key(p.seed, p.step, p.tensor, stream);
  out.mixed = alg::mix64(p.element);
  out.random = alg::random_bits(out.key, p.element);
  out.widened_bf16 = alg::bits_of(alg::f32_from_bf16(half));
  out.widened_f16 = alg::bits_of(alg::f32_from_f16(half));
  out.nearest_bf16 = alg::bf16_from_f32(x);
  out.nearest_f16 = alg::f16_from_f32(x);
  out.stochastic_bf16 = alg::bf16_from_f32_stochastic(x, out.random);
  out.stochastic_f16 = alg::f16_from_f32_stochastic(x, out.random);
  out.finite = alg::is_finite(p.bits) ? 1U : 0U;
  // A block's scale is its largest magnitude: here that of x, or a random one above it.
  const float other = fabsf(alg::float_of(static_cast<uint32_t>(p.seed)));
  const float scale = alg::usable_scale(other > fabsf(x) && alg::is_finite(alg::bits_of(other)) ? other : fabsf(x));
  if (out.finite != 0) {
    const int wide = alg::encode(x, scale, alg::kLevelsInt8);
    const int narrow = alg::unpack_int4(alg::pack_int4(0, true, alg::encode(x, scale, alg::kLevelsInt4)), true);
    out.code_int8 = static_cast<uint32_t>(wide);
    out.code_int4 = static_cast<uint32_t>(narrow);
    out.decoded_int8 = alg::bits_of(alg::decode(wide, scale, alg::kLevelsInt8));
    out.decoded_int4 = alg::bits_of(alg::decode(narrow, scale, alg::kLevelsInt4));
    const float second_scale = alg::second_moment_scale(scale);
    const int code = alg::encode_second_moment(fabsf(x), second_scale, out.random);
    out.second_moment_scale = alg::bits_of(second_scale);
    out.second_moment_code = static_cast<uint32_t>(code);
    out.second_moment = alg::bits_of(alg::decode_second_moment(code, second_scale));
  }
  return out;
}

__global__ void evaluate_all(const Pattern* patterns, Outcome* outcomes, size_t count) {
  const size_t k = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (k < count) outcomes[k] = evaluate(patterns[k]);
}

Pattern pattern(uint32_t bits, uint64_t index) {
  // Elements beyond 2^32 reach the upper half of the index; steps and tensors stay small, as they are in use.
  return {bits, alg::mix64(index), index % 1000, index % 77, index * 0x10000001ULL};
}

/// All 65536 low halves; around every 16-bit value its f32 neighbours and ties; and a walk over all of f32.
std::vector<Pattern> make_patterns() {
  std::vector<uint32_t> bits;
  for (uint32_t h = 0; h < 0x10000U; ++h) {
    bits.push_back(h);
    // For bf16 the lower half decides: zero, just above, the tie and its neighbours, just below the next value.
    for (const uint32_t low : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) bits.push_back(h << 16 | low);
    // For f16: the value, the tie above it (13 bits are dropped; below 2^-14 more, so the tie is made by a sum).
    const uint32_t here = alg::bits_of(alg::f32_from_f16(static_cast<uint16_t>(h)));
    const uint32_t next = alg::bits_of(alg::f32_from_f16(static_cast<uint16_t>(h + 1)));
    const uint32_t tie = alg::bits_of(0.5F * alg::float_of(here) + 0.5F * alg::float_of(next));
    for (const uint32_t center : {here, tie}) {
      for (const uint32_t offset : {0xffffffffU, 0U, 1U}) bits.push_back(center + offset);
    }
  }
  // An odd stride visits patterns of every exponent, sign and mantissa.
  for (uint64_t walk = 0; walk < 0x100000000ULL; walk += 1021) bits.push_back(static_cast<uint32_t>(walk));

  std::vector<Pattern> patterns;
  patterns.reserve(bits.size());
  for (size_t k = 0; k < bits.size(); ++k) patterns.push_back(pattern(bits[k], k));
  return patterns;
}

std::vector<Outcome> evaluate_on_device(const std::vector<Pattern>& patterns) {
  Pattern* in = nullptr;
  Outcome* out = nullptr;
  std::vector<Outcome> outcomes(patterns.size());
  check(cudaMalloc(&in, patterns.size() * sizeof(Pattern)));
  check(cudaMalloc(&out, outcomes.size() * sizeof(Outcome)));
  check(cudaMemcpy(in, patterns.data(), patterns.size() * sizeof(Pattern), cudaMemcpyHostToDevice));
  constexpr unsigned kThreads = 256;
  evaluate_all<<<static_cast<unsigned>((patterns.size() + kThreads - 1) / kThreads), kThreads>>>(in, out,
                                                                                                 patterns.size());
  check(cudaGetLastError());
  check(cudaMemcpy(outcomes.data(), out, outcomes.size() * sizeof(Outcome), cudaMemcpyDeviceToHost));
  check(cudaFree(in));
  check(cudaFree(out));
  return outcomes;
}

/// Counts differences of one function and shows the first.
struct Comparison {
  const char* name;
  size_t differences = 0;

  void compare(uint64_t device, uint64_t host, uint32_t bits) {
    if (device == host) return;
    if (differences++ == 0) {
      std::fprintf(stderr, "%s of %08x: device %llx, host %llx\n", name, bits, static_cast<unsigned long long>(device),
                   static_cast<unsigned long long>(host));
    }
  }
};

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device (%s)\n", cudaGetErrorString(cudaGetLastError()));
    return kSkipped;
  }
  const std::vector<Pattern> patterns = make_patterns();
  const std::vector<Outcome> outcomes = evaluate_on_device(patterns);

  std::vector<Comparison> all{{"rounding_key"},
                              {"mix64"},
                              {"random_bits"},
                              {"f32_from_bf16"},
                              {"f32_from_f16"},
                              {"bf16_from_f32"},
                              {"f16_from_f32"},
                              {"bf16_from_f32_stochastic"},
                              {"f16_from_f32_stochastic"},
                              {"is_finite"},
                              {"encode, int8"},
                              {"encode, int4"},
                              {"decode, int8"},
                              {"decode, int4"},
                              {"second_moment_scale"},
                              {"encode_second_moment"},
                              {"decode_second_moment"}};
  for (size_t k = 0; k < patterns.size(); ++k) {
    const Outcome& device = outcomes[k];
    const Outcome host = evaluate(patterns[k]);
    const uint64_t pairs[][2] = {{device.key, host.key},
                                 {device.mixed, host.mixed},
                                 {device.random, host.random},
                                 {device.widened_bf16, host.widened_bf16},
                                 {device.widened_f16, host.widened_f16},
                                 {device.nearest_bf16, host.nearest_bf16},
                                 {device.nearest_f16, host.nearest_f16},
                                 {device.stochastic_bf16, host.stochastic_bf16},
                                 {device.stochastic_f16, host.stochastic_f16},
                                 {device.finite, host.finite},
                                 {device.code_int8, host.code_int8},
                                 {device.code_int4, host.code_int4},
                                 {device.decoded_int8, host.decoded_int8},
                                 {device.decoded_int4, host.decoded_int4},
                                 {device.second_moment_scale, host.second_moment_scale},
                                 {device.second_moment_code, host.second_moment_code},
                                 {device.second_moment, host.second_moment}};
    for (size_t f = 0; f < all.size(); ++f) all[f].compare(pairs[f][0], pairs[f][1], patterns[k].bits);
  }
  size_t differences = 0;
  for (const Comparison& comparison : all) {
    differences += comparison.differences;
    if (comparison.differences != 0) std::fprintf(stderr, "%s: %zu differ\n", comparison.name, comparison.differences);
  }
  std::printf("%zu patterns, %zu functions, %zu differences\n", patterns.size(), all.size(), differences);
  return differences == 0 ? 0 : 1;
}
