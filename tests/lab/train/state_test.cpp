// The state of optimizers through files: all of it or none, and no end to how far it counts.
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "error.hpp"
#include "remove_folder.hpp"
#include "storage/checkpoint.hpp"
#include "train/optimizers.hpp"
#include "train/snapshot.hpp"
#include "train/tensors.hpp"

namespace lab {
namespace {

// A matrix and a vector: with factors and without.
struct Pair : torch::nn::Module {
  Pair() {
    torch::manual_seed(5);
    weight = register_parameter("weight", at::randn({6, 4}));
    bias = register_parameter("bias", at::randn({4}));
  }
  void step(torch::optim::Optimizer& optimizer) {
    weight.mutable_grad() = at::ones({6, 4});
    bias.mutable_grad() = at::ones({4});
    optimizer.step();
  }
  at::Tensor weight, bias;
};

std::vector<StateEntry> copy_of(const std::vector<StateEntry>& entries) {
  std::vector<StateEntry> copies;
  for (const StateEntry& entry : entries) copies.push_back({entry.name, entry.tensor.clone()});
  return copies;
}

bool same(const std::vector<StateEntry>& a, const std::vector<StateEntry>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const StateEntry& x, const StateEntry& y) {
    return x.name == y.name && at::equal(x.tensor, y.tensor);
  });
}

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class LabState : public testing::TestWithParam<std::string> {
 protected:
  LabState() : optimizer(make_optimizer(GetParam(), 1e-3, {}, module)) {
    module.step(*optimizer);
    module.step(*optimizer);
    entries = copy_of(state_of(*optimizer, module));
  }
  std::string error_with(const std::vector<StateEntry>& changed, int64_t steps = 2) {
    return error_of([&] { set_state(*optimizer, module, changed, steps); });
  }

  Pair module;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::vector<StateEntry> entries;
};
INSTANTIATE_TEST_SUITE_P(All, LabState, testing::ValuesIn(optimizer_names()), [](const auto& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(LabState, WithoutAnEntryIsRefusedByNameAndChangesNothing) {
  ASSERT_EQ(error_with(entries), "no error");
  for (size_t missing = 0; missing < entries.size(); ++missing) {
    std::vector<StateEntry> fewer = entries;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(missing));
    EXPECT_EQ(error_with(fewer), entries[missing].name + " is missing");
  }
  std::vector<StateEntry> half;  // nothing of the vector
  for (const StateEntry& entry : entries) {
    if (entry.name.starts_with("weight/")) half.push_back(entry);
  }
  EXPECT_EQ(error_with(half), "bias/step is missing");
  EXPECT_EQ(error_with({}), "weight/step is missing");
  EXPECT_TRUE(same(state_of(*optimizer, module), entries));
}

TEST_P(LabState, WithAStrangeEntryIsRefusedByNameAndChangesNothing) {
  std::vector<StateEntry> more = entries;
  more.push_back({"weight/exp_avg_other", at::zeros({2})});
  EXPECT_EQ(error_with(more), "weight/exp_avg_other is no state of this model and optimizer after 2 steps");
  EXPECT_EQ(error_with({{"head/step", at::scalar_tensor(1, at::kLong)}}, 0),
            "head/step is no state of this model and optimizer after 0 steps");
  more = entries;
  more.push_back(entries[0]);
  EXPECT_EQ(error_with(more), entries[0].name + " is there twice");
  for (size_t k = 0; k < entries.size(); ++k) {
    std::vector<StateEntry> changed = entries;
    changed[k].tensor = at::zeros({7, 7, 7}, entries[k].tensor.options());
    EXPECT_TRUE(error_with(changed).starts_with(entries[k].name + " is ")) << error_with(changed);
    changed[k].tensor = entries[k].tensor.to(at::kDouble);
    EXPECT_TRUE(error_with(changed).starts_with(entries[k].name + " is Double ")) << error_with(changed);
  }
  EXPECT_TRUE(same(state_of(*optimizer, module), entries));
}

TEST_P(LabState, HasCountersOfStepsThatWereTaken) {
  for (const int64_t count : {int64_t{-1}, int64_t{0}, int64_t{3}, std::numeric_limits<int64_t>::max()}) {
    std::vector<StateEntry> changed = entries;
    for (StateEntry& entry : changed) {
      if (entry.name == "bias/step") entry.tensor = at::scalar_tensor(count, at::kLong);
    }
    EXPECT_EQ(error_with(changed), "bias/step is " + std::to_string(count) + ", expected 1 to 2");
  }
}

TEST_P(LabState, OfAnotherOptimizerIsRefused) {
  for (const std::string& name : optimizer_names()) {
    Pair twin;
    const auto other = make_optimizer(name, 1e-3, {}, twin);
    twin.step(*other);
    const auto state = copy_of(state_of(*other, twin));
    std::vector<std::string> theirs, ours;
    for (const StateEntry& entry : state) theirs.push_back(entry.name);
    for (const StateEntry& entry : entries) ours.push_back(entry.name);
    // Adam, AdamW and LAMB keep the same: the file's own word tells them apart, as in the next test.
    if (theirs == ours) continue;
    EXPECT_NE(error_with(state), "no error") << name;
  }
  EXPECT_TRUE(same(state_of(*optimizer, module), entries));
}

// 2^24 is where counting in f32 ends.
TEST_P(LabState, CountsOnBeyondWhatF32Counts) {
  for (const int64_t steps : {(int64_t{1} << 24) - 1, (int64_t{1} << 24) + 1, int64_t{1'000'000'000}}) {
    std::vector<StateEntry> late = copy_of(entries);
    for (StateEntry& entry : late) {
      if (entry.name.ends_with("/step")) entry.tensor = at::scalar_tensor(steps - 1, at::kLong);
    }
    set_state(*optimizer, module, late, steps - 1);
    const at::Tensor before = module.weight.detach().clone();
    module.step(*optimizer);
    EXPECT_FALSE(at::equal(module.weight, before)) << steps;
    EXPECT_TRUE(at::isfinite(module.weight).all().item<bool>()) << steps;
    for (const StateEntry& entry : state_of(*optimizer, module)) {
      if (!entry.name.ends_with("/step")) continue;
      EXPECT_EQ(entry.tensor.item<int64_t>(), steps) << entry.name;
    }
  }
}

// A checkpoint of a tiny model in a folder, whose file of state can be replaced.
class LabSnapshot : public testing::Test {
 protected:
  LabSnapshot() {
    std::string name = (std::filesystem::temp_directory_path() / "came-lab-state-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
    ModelConfig sizes = model_config("mlp");
    sizes.vocabulary = 50;
    model = make_model(sizes);
    model->initialize();
    optimizer = make_optimizer("adam", 1e-3, {}, *model);
    for (const at::Tensor& parameter : model->parameters()) parameter.mutable_grad() = at::ones_like(parameter);
    optimizer->step();
    checkpoint = {1, folder, {}, {kWeightsFile, kStateFile, kRandomFile}};
    write_tensors(folder / kWeightsFile, parameters_of(*model));
    write_tensors(folder / kRandomFile, {});
  }
  ~LabSnapshot() override { (void)remove_folder(folder); }

  void write_state(const std::map<std::string, std::string>& metadata, const std::string& without = "") {
    std::vector<NamedTensor> state;
    for (const auto& [name, tensor] : state_of(*optimizer, *model)) {
      if (name != without) state.push_back({name, tensor});
    }
    write_tensors(folder / kStateFile, state, metadata);
  }
  std::string error_as(const std::string& name) {
    const std::string message =
        error_of([&] { load_snapshot(checkpoint, name, *model, *optimizer, c10::Device(c10::kCPU)); });
    const std::string file = (folder / kStateFile).string() + ": ";
    return message.starts_with(file) ? message.substr(file.size()) : message;
  }

  std::filesystem::path folder;
  std::shared_ptr<Model> model;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  Checkpoint checkpoint;
};

TEST_F(LabSnapshot, OfAnotherOptimizerIsRefusedByName) {
  write_state({{"optimizer", "adam"}});
  EXPECT_EQ(error_as("adam"), "no error");
  EXPECT_EQ(error_as("adamw"), "state of adam, but the run is of adamw; take a checkpoint of this run");
  write_state({});
  EXPECT_EQ(error_as("adam"),
            "state of an optimizer without a name, but the run is of adam; take a checkpoint of this run");
}

TEST_F(LabSnapshot, WithoutAnEntryIsRefusedBeforeAWeightChanges) {
  const std::string name = model->named_parameters()[0].key() + "/exp_avg_sq";
  write_state({{"optimizer", "adam"}}, name);
  at::NoGradGuard no_grad;
  model->parameters()[0].fill_(7);
  EXPECT_EQ(error_as("adam"), name + " is missing; take another checkpoint");
  EXPECT_EQ(model->parameters()[0].max().item<double>(), 7);
}

}  // namespace
}  // namespace lab
