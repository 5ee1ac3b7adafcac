// How elements are stored: loaded as they are, decoded when they are used.  Formulas: src/algorithms/, the same as on
// the host.
#pragma once

#include "cuda/device/codes.cuh"

namespace came::cuda {

/// f32.
struct F32 {
  template <int N>
  using Raw = Vector<float, N>;

  template <int N, class W>
  __device__ static Raw<N> load(const Place& p, const W& w) {
    return load_vector<float, N>(p.data, w.at(p), w);
  }
  /// The place so many elements further on: a constant in the addresses that kernels compute.
  __device__ static Place after(Place p, int elements) {
    p.data += 4 * elements;
    p.whole += static_cast<uint64_t>(elements);
    return p;
  }
  /// The same by way of shared memory, for what is plain.
  template <int N, class W>
  __device__ static void send_for(Vector<float, N>* to, const Place& p, const W& w) {
    copy_later<sizeof(*to)>(to, p.data + static_cast<size_t>(w.at(p)) * sizeof(float), w.there);
  }
  template <int N, class W>
  __device__ static Raw<N> taken(const Vector<float, N>& raw, const Place&, const W&) {
    return raw;
  }
  template <int N>
  __device__ static void decode(const Place&, const Raw<N>& raw, float (&x)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) x[n] = raw.v[n];
  }
  /// Leaves in x what was stored.
  template <int N, class W>
  __device__ static void store(const Place& p, const W& w, float (&x)[N]) {
    Raw<N> raw;
#pragma unroll
    for (int n = 0; n < N; ++n) raw.v[n] = x[n];
    store_vector<float, N>(p.data, w.at(p), w, raw);
  }
};

/// bf16, in pairs: a half word would take a register.
template <Known known = Known::nothing>
struct BF16As {
  template <int N>
  using Raw = Vector<uint32_t, N / 2>;

  template <int N, class W>
  __device__ static Raw<N> load(const Place& p, const W& w) {
    if constexpr (W::kPlain) {
      return load_vector<uint32_t, N / 2>(p.data, w.at(p) / 2, w);
    } else {
      const auto halves = load_vector<uint16_t, N>(p.data, w.at(p), w);
      Raw<N> raw;
#pragma unroll
      for (int n = 0; n < N / 2; ++n) raw.v[n] = halves.v[2 * n] | static_cast<uint32_t>(halves.v[2 * n + 1]) << 16;
      return raw;
    }
  }
  __device__ static Place after(Place p, int elements) {
    p.data += 2 * elements;
    p.whole += static_cast<uint64_t>(elements);
    return p;
  }
  template <int Pairs, class W>
  __device__ static void send_for(Vector<uint32_t, Pairs>* to, const Place& p, const W& w) {
    copy_later<sizeof(*to)>(to, p.data + static_cast<size_t>(w.at(p)) * sizeof(uint16_t), w.there);
  }
  template <int Pairs, class W>
  __device__ static Vector<uint32_t, Pairs> taken(const Vector<uint32_t, Pairs>& raw, const Place&, const W&) {
    return raw;
  }
  template <class T, int N>
  __device__ static void decode(const Place&, const Raw<N>& raw, T (&x)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      x[n] = algorithms::float_of(n % 2 == 0 ? raw.v[n / 2] << 16 : raw.v[n / 2] & 0xffff0000U);
    }
  }
  template <class T, int N, class W>
  __device__ static void store(const Place& p, const W& w, T (&x)[N]) {
    Raw<N> raw;
#pragma unroll
    for (int n = 0; n < N / 2; ++n) {
      const auto low = static_cast<float>(x[2 * n]);
      const auto high = static_cast<float>(x[2 * n + 1]);
      if (known != Known::nearest && p.stochastic) {
        raw.v[n] = algorithms::bf16_from_f32_stochastic(low, w.random(p, 2 * n)) |
                   static_cast<uint32_t>(algorithms::bf16_from_f32_stochastic(high, w.random(p, 2 * n + 1))) << 16;
      } else {
        raw.v[n] = bf16_pair(low, high);
      }
    }
    decode(p, raw, x);
    if constexpr (W::kPlain) {
      store_vector<uint32_t, N / 2>(p.data, w.at(p) / 2, w, raw);
    } else {
      Vector<uint16_t, N> halves;
#pragma unroll
      for (int n = 0; n < N; ++n) halves.v[n] = static_cast<uint16_t>(raw.v[n / 2] >> (n % 2 * 16));
      store_vector<uint16_t, N>(p.data, w.at(p), w, halves);
    }
  }
};

using BF16 = BF16As<>;

/// f16.
struct F16 {
  template <int N>
  using Raw = Vector<uint16_t, N>;

  template <int N, class W>
  __device__ static Raw<N> load(const Place& p, const W& w) {
    return load_vector<uint16_t, N>(p.data, w.at(p), w);
  }
  template <class T, int N>
  __device__ static void decode(const Place&, const Raw<N>& raw, T (&x)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) x[n] = algorithms::f32_from_f16(raw.v[n]);
  }
  template <class T, int N, class W>
  __device__ static void store(const Place& p, const W& w, T (&x)[N]) {
    Raw<N> raw;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const auto value = static_cast<float>(x[n]);
      raw.v[n] =
          p.stochastic ? algorithms::f16_from_f32_stochastic(value, w.random(p, n)) : algorithms::f16_from_f32(value);
      x[n] = algorithms::f32_from_f16(raw.v[n]);
    }
    store_vector<uint16_t, N>(p.data, w.at(p), w, raw);
  }
};

/// Whatever the place says, as T.
template <class T>
struct Any {
  template <int N>
  struct Raw {
    T v[N];
  };

  template <int N, class W>
  __device__ static Raw<N> load(const Place& p, const W& w) {
    Raw<N> x;
    if (p.scales != nullptr) {
      Codes::decode(p, Codes::load<N>(p, w), x.v);
    } else if (p.dtype == DType::bf16) {
      BF16::decode(p, BF16::load<N>(p, w), x.v);
    } else if (p.dtype == DType::f16) {
      F16::decode(p, F16::load<N>(p, w), x.v);
    } else if (p.dtype == DType::f64) {
      const auto raw = load_vector<double, N>(p.data, w.at(p), w);
#pragma unroll
      for (int n = 0; n < N; ++n) x.v[n] = static_cast<T>(raw.v[n]);
    } else {
      const auto raw = load_vector<float, N>(p.data, w.at(p), w);
#pragma unroll
      for (int n = 0; n < N; ++n) x.v[n] = static_cast<T>(raw.v[n]);
    }
    return x;
  }
  /// Not later: what it takes to find an element is no copy.
  template <int N, class W>
  __device__ static void send_for(Raw<N>* to, const Place& p, const W& w) {
    *to = load<N>(p, w);
  }
  template <int N, class W>
  __device__ static Raw<N> taken(const Raw<N>& raw, const Place&, const W&) {
    return raw;
  }
  template <int N>
  __device__ static void decode(const Place&, const Raw<N>& raw, T (&x)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) x[n] = raw.v[n];
  }
  template <int N, class W>
  __device__ static void store(const Place& p, const W& w, T (&x)[N]) {
    if (p.scales != nullptr) {
      Codes::store(p, w, x);
    } else if (p.dtype == DType::bf16) {
      BF16::store(p, w, x);
    } else if (p.dtype == DType::f16) {
      F16::store(p, w, x);
    } else if (p.dtype == DType::f64) {
      store_as<double>(p, w, x);
    } else {
      store_as<float>(p, w, x);
    }
  }

 private:
  template <class U, int N, class W>
  __device__ static void store_as(const Place& p, const W& w, T (&x)[N]) {
    Vector<U, N> raw;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      raw.v[n] = static_cast<U>(x[n]);
      x[n] = static_cast<T>(raw.v[n]);
    }
    store_vector<U, N>(p.data, w.at(p), w, raw);
  }
};

}  // namespace came::cuda
