// came::Optimizer: groups, owned state, export and import by name.
#include <functional>
#include <span>

#include "algorithms/quantize.hpp"
#include "support.hpp"

namespace came::test {
namespace {

/// A small model: two matrices in two groups and a vector, with gradients that depend on the parameters.
struct Model {
  std::vector<float> a = std::vector<float>(12, 0.5F), da = a, b = std::vector<float>(8, -1.0F), db = b;
  std::vector<float> c = {1, 2, 3}, dc = c;
  std::vector<int64_t> a_shape{3, 4}, b_shape{4, 2}, c_shape{3};

  [[nodiscard]] std::vector<Parameter> parameters() {
    return {{"a", {a.data(), a_shape}, {da.data(), a_shape}, 0},
            {"b", {b.data(), b_shape}, {db.data(), b_shape}, 1},
            {"c", {c.data(), c_shape}, {dc.data(), c_shape}, 1}};
  }
  void compute_gradients(int step) {
    const auto fill = [&](const std::vector<float>& p, std::vector<float>& g) {
      for (size_t i = 0; i < p.size(); ++i) g[i] = p[i] + 0.1F * std::sin(float(step) + float(i));
    };
    fill(a, da);
    fill(b, db);
    fill(c, dc);
  }
  void train(Optimizer& optimizer, int from, int to) {
    for (int step = from; step < to; ++step) {
      compute_gradients(step);
      optimizer.step();
    }
  }
};

std::vector<Options> two_groups(const std::string& word) {
  Options first(word);
  Options second(word);
  first.lr = second.lr = 1e-2;
  second.weight_decay = 0.1;
  return {first, second};
}

TEST(Optimizer, LowersTheLoss) {
  for (const std::string& word : all_words()) {
    std::vector<double> w(20, 1.0);
    std::vector<double> g(20);
    const std::vector<int64_t> shape{4, 5};
    Options options(word);
    options.lr = word == "sm3" ? 0.1 : 0.01;  // SM3 never forgets a gradient, so its steps shrink
    options.weight_decay = 0;
    Optimizer optimizer(options, {{"w", {w.data(), shape}, {g.data(), shape}}});
    for (int step = 0; step < 200; ++step) {
      for (size_t i = 0; i < w.size(); ++i) g[i] = w[i];
      optimizer.step();
    }
    for (const double x : w) EXPECT_LT(std::abs(x), 0.5) << word;
  }
}

/// A deep copy of an exported state.
struct Saved {
  std::vector<std::string> bytes;
  std::vector<NamedTensor> tensors;

  explicit Saved(const Optimizer& optimizer) {
    for (const NamedTensor& t : optimizer.state()) {
      int64_t size = core::element_size(static_cast<DType>(t.tensor.dtype));
      for (int32_t d = 0; d < t.tensor.ndim; ++d) size *= t.tensor.shape[d];
      bytes.emplace_back(static_cast<const char*>(t.tensor.data), size_t(size));
      tensors.push_back(t);
    }
    for (size_t k = 0; k < bytes.size(); ++k) tensors[k].tensor.data = bytes[k].data();
  }
};

void expect_resumes(const std::string& word, const char* momentum_dtype, bool second_moment_codes = false) {
  std::vector<Options> groups = two_groups(word);
  for (Options& o : groups) {
    o.set("momentum_dtype", momentum_dtype).set("stochastic_rounding", "true");
    if (second_moment_codes) o.set("second_moment_dtype", "int8");
  }
  Model model;
  Optimizer optimizer(groups, model.parameters());
  model.train(optimizer, 0, 5);

  Model copy = model;
  Optimizer resumed(groups, copy.parameters());
  Saved saved(optimizer);
  std::reverse(saved.tensors.begin(), saved.tensors.end());  // order does not matter
  resumed.load_state(saved.tensors);

  model.train(optimizer, 5, 12);
  copy.train(resumed, 5, 12);
  EXPECT_EQ(model.a, copy.a) << word;
  EXPECT_EQ(model.b, copy.b) << word;
  EXPECT_EQ(model.c, copy.c) << word;
}

TEST(Optimizer, SavedAndLoadedGoesOnAsIfNeverStopped) {
  for (const std::string& word : all_words()) {
    for (const char* momentum_dtype : {"default", "bf16", "int8", "int4"}) {
      expect_resumes(word, momentum_dtype);
      if (has_second_moment(word)) expect_resumes(word, momentum_dtype, true);
    }
  }
}

/// A vector and a scalar as they were saved when moments of these were codes too.
struct OldState {
  std::vector<float> v = std::vector<float>(131, 1.0F), g = v;
  float one = 2, its_gradient = 1;
  std::vector<int64_t> shape{131};
  std::vector<int8_t> int8 = std::vector<int8_t>(131);
  std::vector<uint8_t> int4 = std::vector<uint8_t>(66), second = std::vector<uint8_t>(131);
  std::vector<float> scales{0.3F, 7.0F}, second_scales{0.2F, 5.0F};
  int8_t code = -100;
  uint8_t pair = 0x0b, byte = 200;  // -5 and nothing
  std::vector<int64_t> counters{9, 9};
  std::vector<int64_t> sizes{1, 2, 66};

  OldState() {
    for (size_t k = 0; k < 131; ++k) {
      int8[k] = static_cast<int8_t>(static_cast<int>(k) * 2 - 127);
      second[k] = static_cast<uint8_t>(k + 100);
    }
    for (size_t k = 0; k < 66; ++k) int4[k] = static_cast<uint8_t>(k * 37);
  }
  std::vector<Parameter> parameters() {
    return {{"v", {v.data(), shape}, {g.data(), shape}}, {"s", TensorView(&one), TensorView(&its_gradient)}};
  }
  std::vector<NamedTensor> tensors(bool pairs) {
    const std::span<const int64_t> one_size(sizes.data(), 1), two(sizes.data() + 1, 1), half(sizes.data() + 2, 1);
    return {{"v.exp_avg", pairs ? TensorView(int4.data(), half, DType::u8) : TensorView(int8.data(), shape, DType::i8)},
            {"v.exp_avg_scale", {scales.data(), two}},
            {"v.exp_avg_sq", {second.data(), shape, DType::u8}},
            {"v.exp_avg_sq_scale", {second_scales.data(), two}},
            {"v.step", TensorView(&counters[0])},
            {"s.exp_avg", pairs ? TensorView(&pair, one_size, DType::u8) : TensorView(&code, {}, DType::i8)},
            {"s.exp_avg_scale", {scales.data(), one_size}},
            {"s.exp_avg_sq", TensorView(&byte, {}, DType::u8)},
            {"s.exp_avg_sq_scale", {second_scales.data(), one_size}},
            {"s.step", TensorView(&counters[1])}};
  }
};

TEST(Optimizer, LoadsCodesOfVectorsAsWhatTheyMeant) {
  for (const bool pairs : {false, true}) {
    OldState old;
    Options o = Options::adamw();
    o.set("momentum_dtype", pairs ? "int4" : "int8").set("second_moment_dtype", "int8");
    Optimizer optimizer(o, old.parameters());
    optimizer.load_state(old.tensors(pairs));
    const std::vector<NamedTensor> state = optimizer.state();
    ASSERT_EQ(state.size(), 6U);
    const auto number = [&](size_t s, size_t k) { return static_cast<const float*>(state[s].tensor.data)[k]; };
    for (size_t k = 0; k < 131; ++k) {
      const int nibble = old.int4[k / 2] >> (k % 2 * 4) & 15;
      const int code = pairs ? (nibble < 8 ? nibble : nibble - 16) : old.int8[k];
      const int levels = pairs ? 7 : 127;
      const double part = double(code) / levels, root = double(old.second[k]) / 255;
      const double first = double(old.scales[k / 128]) * part * std::abs(part);
      const double second = double(old.second_scales[k / 128]) * root * root * root * root;
      // (30): 1/L^2, two products.  (31): 1/255 and a product, to the fourth power, which is two more, and a product.
      ASSERT_NEAR(number(0, k), first, 3 * 0x1p-24 * std::abs(first)) << k;
      ASSERT_NEAR(number(1, k), second, 12 * 0x1p-24 * second) << k;
      // And exactly as kernels read codes.
      ASSERT_EQ(number(0, k), algorithms::decode(code, old.scales[k / 128], levels));
      ASSERT_EQ(number(1, k), algorithms::decode_second_moment(old.second[k], old.second_scales[k / 128]));
    }
    EXPECT_EQ(number(3, 0), algorithms::decode(pairs ? -5 : -100, 0.3F, pairs ? 7 : 127));
    EXPECT_EQ(number(4, 0), algorithms::decode_second_moment(200, 0.2F));
    EXPECT_EQ(*static_cast<const int64_t*>(state[2].tensor.data), 9);
  }
}

TEST(Optimizer, CodesOfVectorsThatDoNotFitChangeNothing) {
  OldState old;
  Options o = Options::adamw();
  o.set("momentum_dtype", "int8").set("second_moment_dtype", "int8");
  Optimizer optimizer(o, old.parameters());
  optimizer.load_state(old.tensors(false));
  const Saved before(optimizer);
  const auto expect_unchanged = [&](size_t which, const std::function<void(NamedTensor&)>& change,
                                    const std::string& part) {
    std::vector<NamedTensor> states = old.tensors(false);
    change(states[which]);
    expect_error([&] { optimizer.load_state(states); }, part);
    EXPECT_EQ(Saved(optimizer).bytes, before.bytes);
  };
  const auto shorter = [&](NamedTensor& t) { t.tensor.shape = old.sizes.data(); };
  expect_unchanged(0, shorter, "state 'v.exp_avg': tensor has shape [1], expected [131]");
  expect_unchanged(1, shorter, "state 'v.exp_avg_scale': tensor has shape [1], expected [2]");
  expect_unchanged(
      2, [](NamedTensor& t) { t.tensor.dtype = CAME_DTYPE_I8; }, "'v.exp_avg_sq': tensor is int8, expected u8");
  expect_unchanged(
      3, [](NamedTensor& t) { t.tensor.data = nullptr; }, "'v.exp_avg_sq_scale': tensor.data is null");
  expect_unchanged(
      1, [](NamedTensor& t) { t.name = "v.scale"; }, "state 'v.exp_avg': tensor is int8, expected f32");
  expect_unchanged(
      0, [](NamedTensor& t) { t.tensor.dtype = CAME_DTYPE_F32; }, "'v.exp_avg_scale': unknown");
}

TEST(Optimizer, RoundsAParameterAlikeWhereverItStandsInTheList) {
  const auto last = [](bool reversed) {
    std::vector<uint16_t> a(12, 0x3f80), b(12, 0x3f80);  // ones in bf16
    const std::vector<float> grad(12, 1.0F);
    const std::vector<int64_t> shape{12};
    std::vector<Parameter> list{{"a", {a.data(), shape, DType::bf16}, {grad.data(), shape}},
                                {"b", {b.data(), shape, DType::bf16}, {grad.data(), shape}}};
    if (reversed) std::reverse(list.begin(), list.end());
    Options o = Options::adamw();
    o.stochastic_rounding = 1;
    Optimizer optimizer(o, list);
    for (int step = 0; step < 20; ++step) optimizer.step();
    EXPECT_NE(a, b);  // each has random bits of its own
    return a;
  };
  EXPECT_EQ(last(false), last(true));
}

TEST(Optimizer, ExportsStateByName) {
  Model model;
  const Optimizer optimizer(two_groups("came"), model.parameters());
  std::vector<std::string> names;
  for (const NamedTensor& t : optimizer.state()) names.push_back(t.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a.exp_avg", "a.exp_avg_sq_row", "a.exp_avg_sq_col", "a.exp_avg_res_row",
                                             "a.exp_avg_res_col", "a.step", "b.exp_avg", "b.exp_avg_sq_row",
                                             "b.exp_avg_sq_col", "b.exp_avg_res_row", "b.exp_avg_res_col", "b.step",
                                             "c.exp_avg", "c.exp_avg_sq", "c.step"}));
}

TEST(Optimizer, BadStateChangesNothing) {
  Model model;
  Optimizer optimizer(two_groups("came"), model.parameters());
  model.train(optimizer, 0, 3);
  Model other_model;
  Optimizer other(two_groups("came"), other_model.parameters());
  other_model.train(other, 0, 1);
  const Saved before(optimizer);
  const auto expect_unchanged = [&](const std::vector<NamedTensor>& states, const std::string& part) {
    expect_error([&] { optimizer.load_state(states); }, part);
    EXPECT_EQ(Saved(optimizer).bytes, before.bytes);
  };

  Saved good(other);
  auto states = good.tensors;
  states.pop_back();
  expect_unchanged(states, "state 'c.step': missing");
  states = good.tensors;
  states.push_back(states[0]);
  expect_unchanged(states, "state 'a.exp_avg': given twice");
  states = good.tensors;
  states[1].name = "a.exp_avg_sq";
  expect_unchanged(states, "state 'a.exp_avg_sq': unknown");
  states = good.tensors;
  states.back().tensor.dtype = CAME_DTYPE_F64;
  expect_unchanged(states, "state 'c.step': tensor is f64, expected i64");
  states = good.tensors;
  states[2].tensor.shape = states[1].tensor.shape;
  expect_unchanged(states, "state 'a.exp_avg_sq_col': tensor has shape [3], expected [4]");
  states = good.tensors;
  states[0].tensor.data = nullptr;
  expect_unchanged(states, "state 'a.exp_avg': tensor.data is null");
  states = good.tensors;
  int64_t negative = -1;
  states.back().tensor.data = &negative;
  expect_unchanged(states, "state 'c.step': -1 given");
  int64_t endless = int64_t{1} << 53;  // a step could not count it
  states.back().tensor.data = &endless;
  expect_unchanged(states, "state 'c.step': 9007199254740992 given, expected 0 to 9007199254740991");
  states = optimizer.state();
  states[1].tensor.data = states[3].tensor.data;
  expect_unchanged(states, "state 'a.exp_avg_sq_row': tensor.data is another state");
  optimizer.load_state(good.tensors);
  EXPECT_EQ(Saved(optimizer).bytes, good.bytes);
}

TEST(Optimizer, FollowsItsLearningRatePerGroup) {
  Model model;
  Optimizer optimizer(two_groups("adamw"), model.parameters());
  optimizer.set_lr(0, 0.0);
  const std::vector<float> a = model.a;
  const std::vector<float> b = model.b;
  model.train(optimizer, 0, 2);
  EXPECT_EQ(model.a, a);
  EXPECT_NE(model.b, b);
  expect_error([&] { optimizer.set_lr(0, -1); }, "lr: -1 given");
  expect_error([&] { optimizer.set_lr(0.1); }, "no group given", "0 to 1");
  expect_error([&] { optimizer.set_lr(2, 1); }, "group: 2 given, expected 0 to 1");
}

TEST(Optimizer, ReadsAnotherGradientWhenTold) {
  Model model;
  Optimizer optimizer(two_groups("adamw"), model.parameters());
  const std::vector<float> zero(12, 0.0F);
  const std::vector<float> a = model.a;
  optimizer.set_grad(0, TensorView(zero.data(), model.a_shape));
  optimizer.set_lr(0, 1e-2);
  Options plain = Options::adamw();
  optimizer.step();
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_FLOAT_EQ(model.a[i], a[i] * float(1 - 1e-2 * plain.weight_decay));  // decay alone
  }
  expect_error([&] { optimizer.set_grad(0, TensorView(zero.data(), model.b_shape)); }, "'a'",
               "[4, 2], expected [3, 4]");
  expect_error([&] { optimizer.set_grad(3, TensorView(zero.data(), model.a_shape)); }, "parameter: 3 given");
}

TEST(Optimizer, SkipsAnOverflowedStep) {
  Model model;
  Optimizer optimizer(two_groups("came"), model.parameters());
  model.train(optimizer, 0, 2);
  const Saved before(optimizer);
  const std::vector<float> a = model.a;
  model.compute_gradients(2);
  optimizer.step(65536.0, true);
  EXPECT_EQ(Saved(optimizer).bytes, before.bytes);
  EXPECT_EQ(model.a, a);
  optimizer.step(65536.0, false);
  EXPECT_NE(model.a, a);
}

TEST(Optimizer, HoldsWhatTheEstimatePromises) {
  Model model;
  const Optimizer optimizer(two_groups("came"), model.parameters());
  int64_t bytes = 0;
  for (const NamedTensor& t : optimizer.state()) {
    if (t.name.ends_with(".step")) continue;
    int64_t size = core::element_size(static_cast<DType>(t.tensor.dtype));
    for (int32_t d = 0; d < t.tensor.ndim; ++d) size *= t.tensor.shape[d];
    bytes += size;
  }
  EXPECT_EQ(optimizer.memory().state_bytes, bytes);
}

TEST(Optimizer, BadParametersAreNamed) {
  Model model;
  const auto with = [&](auto change) {
    std::vector<Parameter> list = model.parameters();
    change(list);
    return [&, list] { Optimizer(two_groups("came"), list); };
  };
  expect_error(with([](auto& l) { l[1].name = "a"; }), "parameter 1 'a'", "used twice");
  expect_error(with([](auto& l) { l[2].name = ""; }), "parameter 2", "empty");
  expect_error(with([](auto& l) { l[0].param.data = nullptr; }), "'a'", "param.data is null");
  expect_error(with([](auto& l) { l[0].grad.data = nullptr; }), "'a'", "grad.data is null");
  expect_error(with([](auto& l) { l[0].grad.ndim = 1; }), "'a'", "grad has shape [3], expected [3, 4]");
  expect_error(with([](auto& l) { l[0].group = 2; }), "'a'", "group is 2");
  expect_error(with([](auto& l) { l[0].param.device = CAME_DEVICE_CUDA; }), "'a'", "param is on cuda");
}

}  // namespace
}  // namespace came::test
