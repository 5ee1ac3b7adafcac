// Resident matrices, on the host: the kernels of src/cuda/device/residents.cuh beside the equations in
// f64, side by side and one launch after the other, in many orders.
#include <gtest/gtest.h>

#include <cmath>

#include "cuda/device/residents.cuh"

namespace came::test {
namespace {

using namespace cuda;

struct Settings {
  double lr = 1e-2, decay = 1e-3, beta1 = 0.9, beta2 = 0.99, beta3 = 0.995, eps1 = 1e-30, eps2 = 1e-16;
  double clip = 0.7, correction = 0.5, multiplier = 0.25;
};

struct Matrix {
  int rows, cols;
  bool active;
  std::vector<float> param, grad, momentum, row, col, res_row, res_col;

  bool operator==(const Matrix&) const = default;
};

/// Pieces: 3, 3, 3, 6, 19 (large), 5, 2, 7 (large), 4, 4, 2, 4, 2, 3, 3, 2, 40 (large); blocks of a team: 6.
constexpr struct {
  int rows, cols;
  bool active;
} kShapes[] = {{70, 1024, true}, {33, 2048, true},  {20, 3072, true}, {190, 1024, true}, {600, 1024, true},
               {40, 4096, true}, {33, 516, true},   {50, 4096, true}, {100, 768, false}, {128, 1024, true},
               {37, 1024, true}, {64, 2048, false}, {9, 4096, true},  {21, 4096, true},  {90, 1024, true},
               {38, 1024, true}, {630, 2048, true}};

std::vector<Matrix> matrices(uint64_t seed) {
  std::mt19937_64 random(7);
  const auto fill = [&](std::vector<float>& to, int64_t count, double scale, double offset) {
    to.resize(static_cast<size_t>(count));
    for (float& x : to) {
      x = static_cast<float>(scale * (offset + static_cast<double>(static_cast<int64_t>(random())) * 0x1p-63));
    }
  };
  std::vector<Matrix> all;
  for (const auto& shape : kShapes) {
    Matrix m{shape.rows, shape.cols, shape.active, {}, {}, {}, {}, {}, {}, {}};
    const int64_t elements = int64_t{shape.rows} * shape.cols;
    fill(m.param, elements, 1, 0);
    fill(m.grad, elements, 1e-2, 0);
    fill(m.momentum, elements, 1, 0);
    for (std::vector<float>* averages : {&m.row, &m.res_row}) fill(*averages, m.rows, 1e-4, 2);
    for (std::vector<float>* averages : {&m.col, &m.res_col}) fill(*averages, m.cols, 1e-4, 2);
    all.push_back(std::move(m));
  }
  // Other matrices come first, and others share a wave.
  std::rotate(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(seed % all.size()), all.end());
  return all;
}

enum class Form { side_by_side, streaming, streaming_unaligned };

class Step {
 public:
  Step(std::vector<Matrix>& all, const Settings& settings) : sheets_(all.size()), arrivals_(all.size()) {
    std::vector<TensorTable> tensors(all.size());
    for (size_t k = 0; k < all.size(); ++k) {
      Matrix& m = all[k];
      tensors[k].rows = m.rows;
      tensors[k].cols = m.cols;
      tensors[k].resident = true;
      const auto put = [&](Word word, uint64_t value) { sheets_[k].word[static_cast<int>(word)] = value; };
      const auto number = [&](Word word, double value) {
        uint64_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        put(word, bits);
      };
      const auto address = [&](Word word, void* data) { put(word, reinterpret_cast<uint64_t>(data)); };
      address(Word::param, m.param.data());
      address(Word::grad, m.grad.data());
      address(Word::momentum, m.momentum.data());
      address(Word::row, m.row.data());
      address(Word::col, m.col.data());
      address(Word::res_row, m.res_row.data());
      address(Word::res_col, m.res_col.data());
      address(Word::counter, &arrivals_[k]);
      for (const Word word : {Word::active, Word::unaligned}) put(word, m.active ? 1 : 0);
      put(Word::rows, static_cast<uint64_t>(m.rows));
      put(Word::cols, static_cast<uint64_t>(m.cols));
      number(Word::share_of_row, 1.0 / m.rows);
      number(Word::multiplier, settings.multiplier);
      number(Word::lr, settings.lr);
      number(Word::decay, settings.decay);
      number(Word::rate1, 1 - settings.beta1);
      number(Word::rate2, 1 - settings.beta2);
      number(Word::rate3, 1 - settings.beta3);
      number(Word::eps1, settings.eps1);
      number(Word::eps2, settings.eps2);
      number(Word::clip, settings.clip);
      number(Word::correction, settings.correction);
    }
    std::tie(pieces_, residents_) = waves_of(tensors);
    turns_.resize(static_cast<size_t>(residents_.turns()));
    workspace_.assign(static_cast<size_t>(residents_.floats() + kBeyond), NAN);
    run_.a.sheets = sheets_.data();
    run_.a.turns = turns_.data();
    run_.large = pieces_.data();
    run_.large_count = residents_.large;
    run_.pieces = pieces_.data() + residents_.large;
    run_.waves = residents_.waves;
    run_.areas = workspace_.data();
    run_.results = run_.areas + residents_.blocks * residents_.area;
    run_.area = residents_.area;
  }

  void operator()(Form form, uint64_t seed) {
    if (form == Form::side_by_side) {
      launch(kWavesAtOnce * kMostPieces, seed, [this] { large_kernel<Where<true>>(run_); });
      launch(kWavesAtOnce * kMostPieces, seed + 1, [this] { resident_kernel<Where<true>>(run_); });
    } else if (form == Form::streaming) {
      stages<Where<true>>(seed);
    } else {
      stages<Where<false>>(seed);
    }
    for (size_t k = workspace_.size() - kBeyond; k < workspace_.size(); ++k) {
      EXPECT_TRUE(std::isnan(workspace_[k])) << "beyond the workspace";
    }
  }

  [[nodiscard]] const Residents& residents() const { return residents_; }

 private:
  static constexpr int64_t kBeyond = 4096;

  static void launch(int blocks, uint64_t seed, const std::function<void()>& kernel) {
    Emulator::launch({blocks, kThreads, kBytes, true}, seed, kernel);
  }
  template <class W>
  void stages(uint64_t seed) {
    const auto all = [&](int blocks, int wave, int large) {
      for (const Stage stage : {Stage::statistics, Stage::squares, Stage::momentum, Stage::instability, Stage::apply}) {
        launch(blocks, ++seed, [&] { streaming_kernel<W>(run_, wave, large, stage); });
      }
    };
    for (int k = 0; k < residents_.large; ++k) all(kWavesAtOnce * kMostPieces, 0, k);
    for (int wave = 0; wave < residents_.waves; wave += kWavesAtOnce) {
      all(std::min(kWavesAtOnce, residents_.waves - wave) * kMostPieces, wave, -1);
    }
  }

  std::vector<Sheet> sheets_;
  std::vector<unsigned> arrivals_, turns_;
  std::vector<PieceTable> pieces_;
  std::vector<float> workspace_;
  Residents residents_;
  ResidentArgs run_{};
};

/// docs/algorithms.md, equations (5) to (13), for what one step leaves of `before`.
void expect_close(const Matrix& before, const Matrix& after, const Settings& o) {
  const int n = before.rows;
  const int m = before.cols;
  const auto at = [m](int i, int j) {
    return static_cast<size_t>(i) * static_cast<size_t>(m) + static_cast<size_t>(j);
  };
  const auto averages = [&](const std::vector<float>& rows, const std::vector<float>& cols, double beta, double eps,
                            const auto& value, std::vector<double>& r, std::vector<double>& c) {
    r.assign(static_cast<size_t>(n), 0);
    c.assign(static_cast<size_t>(m), 0);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < m; ++j) {
        r[static_cast<size_t>(i)] += value(i, j) / m;
        c[static_cast<size_t>(j)] += value(i, j) / n;
      }
    }
    double mean = 0;
    for (size_t i = 0; i < r.size(); ++i) mean += r[i] = beta * rows[i] + (1 - beta) * (r[i] + eps);
    for (size_t j = 0; j < c.size(); ++j) c[j] = beta * cols[j] + (1 - beta) * (c[j] + eps);
    return mean / n;
  };
  std::vector<double> r, c, rr, cc;
  const auto g = [&](int i, int j) { return o.multiplier * before.grad[at(i, j)]; };
  const double mean = averages(
      before.row, before.col, o.beta2, o.eps1, [&](int i, int j) { return g(i, j) * g(i, j); }, r, c);
  const auto unclipped = [&](int i, int j) {
    return g(i, j) * std::sqrt(mean / (r[static_cast<size_t>(i)] * c[static_cast<size_t>(j)]));
  };
  double squares = 0;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) squares += unclipped(i, j) * unclipped(i, j);
  }
  const double ratio = std::max(1.0, std::sqrt(squares / n / m) / o.clip);
  const auto momentum = [&](int i, int j) {
    return o.beta1 * before.momentum[at(i, j)] + (1 - o.beta1) * unclipped(i, j) / ratio;
  };
  const double mean_of_instability = averages(
      before.res_row, before.res_col, o.beta3, o.eps2,
      [&](int i, int j) { return std::pow(unclipped(i, j) / ratio - momentum(i, j), 2); }, rr, cc);
  // Some dozens of roundings of f32, and one of what is stored.
  double of_momentum = 0;
  double of_param = 0;
  double of_averages = 0;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      const double p = before.param[at(i, j)];
      const double expected =
          p - o.decay * p -
          o.lr * momentum(i, j) *
              std::sqrt(mean_of_instability * o.correction / (rr[static_cast<size_t>(i)] * cc[static_cast<size_t>(j)]));
      of_momentum = std::max(of_momentum, std::abs(after.momentum[at(i, j)] - momentum(i, j)));
      of_param = std::max(of_param, std::abs(after.param[at(i, j)] - expected));
    }
  }
  const auto compare = [&](const std::vector<float>& found, const std::vector<double>& expected) {
    for (size_t k = 0; k < found.size(); ++k) of_averages = std::max(of_averages, std::abs(found[k] / expected[k] - 1));
  };
  compare(after.row, r);
  compare(after.col, c);
  compare(after.res_row, rr);
  compare(after.res_col, cc);
  EXPECT_LE(of_momentum, 1e-6) << n << "x" << m;
  EXPECT_LE(of_param, 1e-6) << n << "x" << m;
  EXPECT_LE(of_averages, 2e-6) << n << "x" << m;
}

class EmulatedResident : public testing::TestWithParam<int> {};

TEST_P(EmulatedResident, TakesTheSameStepInEveryFormAndOrder) {
  const auto seed = static_cast<uint64_t>(GetParam());
  Settings settings;
  if (seed % 2 == 1) settings.clip = 0.05;
  const std::vector<Matrix> before = matrices(seed);
  std::vector<Matrix> after[3];
  for (const Form form : {Form::side_by_side, Form::streaming, Form::streaming_unaligned}) {
    if (form == Form::streaming_unaligned && seed > 0) continue;  // it takes a while
    auto& all = after[static_cast<size_t>(form)];
    all = before;
    Step step(all, settings);
    EXPECT_EQ(step.residents().large, 3);
    EXPECT_GE(step.residents().waves, 2 * kWavesAtOnce);
    step(form, 1000 * seed + 100 * static_cast<uint64_t>(form));
  }
  for (size_t k = 0; k < before.size(); ++k) {
    const Matrix& found = after[0][k];
    EXPECT_TRUE(after[1][k] == found && (seed > 0 || after[2][k] == found)) << "matrix " << k;
    if (before[k].active) {
      expect_close(before[k], found, settings);
    } else {
      EXPECT_TRUE(found == before[k]) << "matrix " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, EmulatedResident, testing::Range(0, 5));

}  // namespace
}  // namespace came::test
