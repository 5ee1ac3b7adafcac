// Param groups of the libtorch adapter: their options hold, whoever adds them, and schedulers reach them.
#include "support.hpp"

namespace torch_test {
namespace {

using came::torch::AdamW, came::torch::AdamWOptions, came::torch::CAME, came::torch::CAMEOptions;

template <class OptionsType>
const OptionsType& options_at(const torch::optim::Optimizer& optimizer, size_t group) {
  return dynamic_cast<const OptionsType&>(optimizer.param_groups()[group].options());
}

// The parameters of a model in two groups: matrices, and all others.
struct Halves {
  std::vector<at::Tensor> matrices, vectors, all;
  std::vector<int> groups;

  explicit Halves(const Model& model) {
    for (const at::Tensor& p : model->parameters()) (p.dim() > 1 ? matrices : vectors).push_back(p);
    all = matrices;
    all.insert(all.end(), vectors.begin(), vectors.end());
    groups.assign(matrices.size(), 0);
    groups.resize(all.size(), 1);
  }
};

void expect_twin(came::torch::Optimizer& optimizer, Model& model, const Halves& halves,
                 const std::vector<came::Options>& options) {
  Twin twin(halves.all, options, halves.groups);
  for (int step = 0; step < 10; ++step) {
    compute_gradients(model, step);
    twin.step(halves.all, {options[0].lr, options[1].lr});
    optimizer.step();
  }
  twin.expect_equal(halves.all, optimizer);
}

TEST(TorchGroups, KeepWhatTheyWereGivenAndInheritTheRest) {
  for (const std::string& word : all_words()) {
    SCOPED_TRACE(word);
    Model model;
    const Halves halves(model);
    const Settings defaults{{"lr", "0.003"}, {"weight_decay", "0.1"}, {"cautious", "true"}};
    const auto given = [&] { return make_options(word, {{"lr", "0.001"}, {"weight_decay", "0"}}); };
    const auto optimizer = make_optimizer(word, {{halves.matrices}, {halves.vectors, given()}}, defaults);
    const auto& first = dynamic_cast<const came::torch::Options&>(optimizer->param_groups()[0].options()).core();
    const auto& second = dynamic_cast<const came::torch::Options&>(optimizer->param_groups()[1].options()).core();
    EXPECT_EQ(first.lr, 0.003);
    EXPECT_EQ(first.weight_decay, 0.1);
    EXPECT_EQ(second.lr, 0.001);
    EXPECT_EQ(second.weight_decay, 0);
    EXPECT_EQ(second.cautious, 1);
    expect_twin(*optimizer, model, halves,
                {make_options(word, defaults)->core(),
                 make_options(word, {{"lr", "0.001"}, {"weight_decay", "0"}, {"cautious", "true"}})->core()});
  }
}

TEST(TorchGroups, KeepAValueThatIsAlsoTheDefaultOfItsClass) {
  // libtorch's own classes tell what was given by comparing with such defaults, and lose this one.
  const at::Tensor a = torch::ones({2, 2}).requires_grad_(), b = torch::ones({2, 2}).requires_grad_();
  const double usual = CAMEOptions().lr();
  CAME optimizer(std::vector<OptimizerParamGroup>{{{a}}, {{b}, std::make_unique<CAMEOptions>(usual)}},
                 CAMEOptions(0.5));
  EXPECT_EQ(options_at<CAMEOptions>(optimizer, 0).lr(), 0.5);
  EXPECT_EQ(options_at<CAMEOptions>(optimizer, 1).lr(), usual);
}

TEST(TorchGroups, HoldAfterAddParamGroup) {
  Model model;
  const Halves halves(model);
  CAME optimizer(halves.matrices, CAMEOptions(0.003).weight_decay(0.1));
  optimizer.add_param_group(
      {halves.vectors, std::make_unique<CAMEOptions>(CAMEOptions(0.001).betas({0.8, 0.99, 0.999}))});
  EXPECT_EQ(options_at<CAMEOptions>(optimizer, 1).weight_decay(), 0.1);
  expect_twin(optimizer, model, halves,
              {CAMEOptions(0.003).weight_decay(0.1).core(),
               CAMEOptions(0.001).weight_decay(0.1).betas({0.8, 0.99, 0.999}).core()});
}

TEST(TorchGroups, HoldAfterLoad) {
  Model model, other;
  const Halves halves(model), others(other);
  const auto make = [](const Halves& h, double lr) {
    return AdamW(
        std::vector<OptimizerParamGroup>{
            {h.matrices}, {h.vectors, std::make_unique<AdamWOptions>(AdamWOptions(lr / 2).weight_decay(0))}},
        AdamWOptions(lr).weight_decay(0.1));
  };
  AdamW optimizer = make(halves, 0.01), loaded = make(others, 0.5);
  std::stringstream file;
  torch::save(optimizer, file);
  torch::load(loaded, file);
  EXPECT_EQ(options_at<AdamWOptions>(loaded, 0), options_at<AdamWOptions>(optimizer, 0));
  EXPECT_EQ(options_at<AdamWOptions>(loaded, 1), options_at<AdamWOptions>(optimizer, 1));
  EXPECT_EQ(options_at<AdamWOptions>(loaded, 1).lr(), 0.005);
  expect_twin(loaded, other, others,
              {AdamWOptions(0.01).weight_decay(0.1).core(), AdamWOptions(0.005).weight_decay(0).core()});
}

TEST(TorchGroups, ThatLibtorchAddedWithoutTheirOptionsAreRefused) {
  const at::Tensor a = torch::ones({2, 2}).requires_grad_(), b = torch::ones({2, 2}).requires_grad_();
  CAME optimizer(std::vector<at::Tensor>{a}, 0.5);
  torch::optim::Optimizer& base = optimizer;
  base.add_param_group({{b}, std::make_unique<CAMEOptions>(0.001)});
  ASSERT_EQ(options_at<CAMEOptions>(optimizer, 1).lr(), 0.5) << "libtorch keeps them now: the refusal can go";
  a.mutable_grad() = torch::ones({2, 2});
  EXPECT_EQ(error_of([&] { optimizer.step(); }),
            "group 1: added through torch::optim::Optimizer, which drops options of classes that it does not know; "
            "expected add_param_group of the came::torch optimizer itself");
  EXPECT_TRUE(same_bits(a, torch::ones({2, 2})));
}

TEST(TorchGroups, FollowASchedulerEachFromItsOwnRate) {
  Model model;
  const Halves halves(model);
  CAME optimizer(
      std::vector<OptimizerParamGroup>{{halves.matrices}, {halves.vectors, std::make_unique<CAMEOptions>(0.001)}},
      CAMEOptions(0.004));
  torch::optim::StepLR scheduler(optimizer, /*step_size=*/2, /*gamma=*/0.5);
  Twin twin(halves.all, {CAMEOptions().core(), CAMEOptions().core()}, halves.groups);
  double factor = 1;
  for (int step = 0; step < 8; ++step) {
    compute_gradients(model, step);
    twin.step(halves.all, {0.004 * factor, 0.001 * factor});
    optimizer.step();
    scheduler.step();
    if (step > 0 && step % 2 == 0) factor /= 2;  // libtorch's first call counts as none.
    EXPECT_EQ(options_at<CAMEOptions>(optimizer, 0).lr(), 0.004 * factor);
    EXPECT_EQ(options_at<CAMEOptions>(optimizer, 1).lr(), 0.001 * factor);
  }
  twin.expect_equal(halves.all, optimizer);
  EXPECT_EQ(optimizer.plans_made(), 1);
}

TEST(TorchOptions, AreCopiedComparedAndReadBack) {
  const CAMEOptions options = CAMEOptions(0.1)
                                  .betas({0.1, 0.2, 0.3})
                                  .eps1(1e-20)
                                  .eps2(1e-10)
                                  .clip_threshold(2)
                                  .bias_correction(false)
                                  .view(came::View::fold)
                                  .momentum_dtype(DType::i8)
                                  .seed(~uint64_t{0})
                                  .max_grad_norm(3)
                                  .maximize(true);
  EXPECT_EQ(options.betas(), std::make_tuple(0.1, 0.2, 0.3));
  EXPECT_EQ(options.seed(), ~uint64_t{0});
  EXPECT_EQ(options.get_lr(), 0.1);
  const auto clone = options.clone();
  EXPECT_EQ(dynamic_cast<CAMEOptions&>(*clone), options);
  clone->set_lr(0.2);
  EXPECT_FALSE(dynamic_cast<CAMEOptions&>(*clone) == options);

  torch::serialize::OutputArchive out;
  options.serialize(out);
  std::stringstream file;
  out.save_to(file);
  torch::serialize::InputArchive in;
  in.load_from(file);
  CAMEOptions read;
  EXPECT_FALSE(read == options);
  read.serialize(in);
  EXPECT_EQ(read, options);
  EXPECT_EQ(read.seed(), ~uint64_t{0});
  EXPECT_EQ(error_of([&] { AdamWOptions().serialize(in); }), "archive: options of came, expected those of adamw");
}

TEST(TorchOptions, AreDefaultsOfTheCore) {
  for (const std::string& word : all_words()) {
    EXPECT_TRUE(came::torch::Options::same(make_options(word, {})->core(), came::Options(word))) << word;
  }
}

}  // namespace
}  // namespace torch_test
