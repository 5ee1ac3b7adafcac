// The two pieces of the paper as functions: Equation 2 is optimal in generalised Kullback-Leibler divergence,
// Equation 3 is what it says.
#include "support.hpp"

namespace came::test {
namespace {

/// Sum of v log(v / a) - v + a, with 0 log 0 = 0.
double divergence(const std::vector<double>& v, const std::vector<double>& w, const std::vector<double>& h) {
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    for (size_t j = 0; j < h.size(); ++j) {
      const double x = v[i * h.size() + j];
      const double a = w[i] * h[j];
      sum += (x > 0 ? x * std::log(x / a) : 0.0) - x + a;
    }
  }
  return sum;
}

struct Factorized {
  std::vector<double> v, w, h;
};

Factorized factorize(size_t n, size_t m, uint64_t seed, double zeros = 0.1) {
  std::mt19937_64 engine(seed);
  std::gamma_distribution<double> gamma(0.7, 2.0);
  std::bernoulli_distribution zero(zeros);
  Factorized f{std::vector<double>(n * m), std::vector<double>(n), std::vector<double>(m)};
  for (double& x : f.v) x = zero(engine) ? 0.0 : gamma(engine);
  const int64_t shape[2] = {int64_t(n), int64_t(m)};
  nmf_rank1(TensorView(f.v.data(), shape), TensorView(f.w.data(), {shape, 1}), TensorView(f.h.data(), {shape + 1, 1}));
  return f;
}

// W and H are sums of at most 7 positive terms over one of 35, and so are the sums here: less than 64 roundings.
constexpr double kSums = 64 * 0x1p-53;

TEST(NmfRank1, KeepsRowAndColumnSums) {
  const Factorized f = factorize(7, 5, 1);
  for (size_t i = 0; i < 7; ++i) {
    double given = 0;
    double expected = 0;
    for (size_t j = 0; j < 5; ++j) {
      given += f.w[i] * f.h[j];
      expected += f.v[i * 5 + j];
    }
    EXPECT_NEAR(given, expected, kSums * expected);
  }
  for (size_t j = 0; j < 5; ++j) {
    double given = 0;
    double expected = 0;
    for (size_t i = 0; i < 7; ++i) {
      given += f.w[i] * f.h[j];
      expected += f.v[i * 5 + j];
    }
    EXPECT_NEAR(given, expected, kSums * expected);
  }
}

TEST(NmfRank1, NoOtherRankOneFactorsAreCloserInKullbackLeiblerDivergence) {
  std::mt19937_64 engine(3);
  std::normal_distribution<double> normal;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Factorized f = factorize(2 + seed % 7, 1 + seed % 5, seed);
    const double best = divergence(f.v, f.w, f.h);
    for (int k = 0; k < 200; ++k) {
      // From small perturbations, where a saddle would show, to factors that have nothing to do with these.
      const double size = std::pow(10.0, -4 + 5 * (k % 50) / 50.0);
      Factorized other = f;
      for (double& x : other.w) x *= std::exp(size * normal(engine));
      for (double& x : other.h) x *= std::exp(size * normal(engine));
      EXPECT_GE(divergence(f.v, other.w, other.h), best - 1e-12 * (1 + best)) << "seed " << seed << " size " << size;
    }
  }
}

TEST(NmfRank1, AllZeroGivesZeroFactors) {
  const Factorized f = factorize(3, 4, 1, 1.0);
  for (const double x : f.w) EXPECT_EQ(x, 0.0);
  for (const double x : f.h) EXPECT_EQ(x, 0.0);
}

TEST(NmfRank1, RefusesBadInputAndWritesNothing) {
  std::vector<double> v(6, 1.0);
  std::vector<double> w(2, 5.0);
  std::vector<double> h(3, 5.0);
  const std::vector<int64_t> s23{2, 3};
  const std::vector<int64_t> s2{2};
  const std::vector<int64_t> s3{3};
  const auto call = [&] { nmf_rank1(TensorView(v.data(), s23), TensorView(w.data(), s2), TensorView(h.data(), s3)); };
  v[4] = -1;
  expect_error(call, "v: element [1, 1] is -1");
  v[4] = std::numeric_limits<double>::quiet_NaN();
  expect_error(call, "v: element [1, 1] is", "nan");
  v[4] = std::numeric_limits<double>::infinity();
  expect_error(call, "v: element [1, 1] is inf");
  v[4] = 1;
  expect_error([&] { nmf_rank1(TensorView(v.data(), s23), TensorView(w.data(), s3), TensorView(h.data(), s3)); }, "w",
               "[3], expected [2]");
  expect_error([&] { nmf_rank1(TensorView(v.data(), s3), TensorView(w.data(), s2), TensorView(h.data(), s3)); },
               "v: 1 dimensions, expected 2");
  EXPECT_EQ(w, std::vector<double>(2, 5.0));
  EXPECT_EQ(h, std::vector<double>(3, 5.0));
}

TEST(ConfidenceUpdate, IsTheMomentumOverItsDistanceToTheUpdate) {
  const std::vector<double> m{1.0, -2.0, 0.0, 3.0};
  const std::vector<double> u{1.0, 1.0, 2.0, -1.0};
  std::vector<double> out(4);
  const std::vector<int64_t> shape{4};
  confidence_update(TensorView(m.data(), shape), TensorView(u.data(), shape), 1e-4, TensorView(out.data(), shape));
  // A sum, a root and a quotient, each rounded once: less than the 4 ulps of EXPECT_DOUBLE_EQ.
  EXPECT_DOUBLE_EQ(out[0], 100.0);
  EXPECT_DOUBLE_EQ(out[1], -2.0 / std::sqrt(9.0001));
  EXPECT_EQ(out[2], 0.0);
  EXPECT_DOUBLE_EQ(out[3], 3.0 / std::sqrt(16.0001));
}

TEST(ConfidenceUpdate, RefusesBadInput) {
  std::vector<double> a(4, 1.0);
  const std::vector<int64_t> s4{4};
  const std::vector<int64_t> s3{3};
  const TensorView view(a.data(), s4);
  expect_error([&] { confidence_update(view, view, 0, view); }, "eps: 0 given");
  expect_error([&] { confidence_update(view, TensorView(a.data(), s3), 1, view); }, "u", "[3], expected [4]");
  expect_error([&] { confidence_update(view, view, 1, TensorView(static_cast<double*>(nullptr), s4)); }, "out", "null");
}

}  // namespace
}  // namespace came::test
