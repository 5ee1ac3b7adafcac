// Optimizers in archives.
//
//   optimizer                    its word
//   groups, group/<g>/params     how many there are
//   group/<g>/options            values of came_options by name
//   state/<k>                    of parameter k, counted over all groups: step, tensors by name
//
// Parameters are known by their number, as in Python, so that an archive fits any model of the same shape.
#include <torch/serialize/archive.h>

#include <utility>

#include "binding.hpp"
#include "came/torch/optimizer.hpp"

namespace came::torch {
namespace {

using ::torch::serialize::InputArchive;
using ::torch::serialize::OutputArchive;

[[noreturn]] void refuse(const std::string& message) { throw Error(Status::invalid_argument, "archive: " + message); }

int64_t read_count(InputArchive& archive, const std::string& key) {
  c10::IValue value;
  if (!archive.try_read(key, value) || !value.isInt()) refuse("no number '" + key + "', expected one");
  return value.toInt();
}

void expect_count(InputArchive& archive, const std::string& key, size_t expected) {
  const int64_t count = read_count(archive, key);
  if (count != static_cast<int64_t>(expected)) {
    refuse(key + " is " + std::to_string(count) + ", expected " + std::to_string(expected) + " as in this optimizer");
  }
}

std::string options_key(size_t group) { return "group/" + std::to_string(group) + "/options"; }
std::string params_key(size_t group) { return "group/" + std::to_string(group) + "/params"; }
std::string state_key(uint64_t id) { return "state/" + std::to_string(id); }

// The tensors in the order of the plan, on the parameter's device; throws unless they are those of its layout.
void arrange(ParamState& state, const Member& member, const came::Options& options) {
  TensorSpec spec = spec_of(member);
  spec.group = 0;
  const std::vector<StateSpec> wanted = layout(options, spec);
  put_in_order(state, wanted);
  for (auto& entry : state.tensors) entry.tensor = entry.tensor.to(member.param.device()).contiguous();
  check_state(member, state, wanted);
}

}  // namespace

void Optimizer::save(OutputArchive& archive) const {
  archive.write("optimizer", c10::IValue(static_cast<const Options&>(*defaults_).core().word()));
  archive.write("groups", c10::IValue(static_cast<int64_t>(param_groups_.size())));
  uint64_t id = 0;
  for (size_t g = 0; g < param_groups_.size(); ++g) {
    const auto& params = param_groups_[g].params();
    archive.write(params_key(g), c10::IValue(static_cast<int64_t>(params.size())));
    OutputArchive options(archive.compilation_unit());
    options_of(g).serialize(options);
    archive.write(options_key(g), options);
    for (const at::Tensor& param : params) {
      const auto found = state_.find(param.unsafeGetTensorImpl());
      if (found != state_.end() && found->second != nullptr) {
        OutputArchive state(archive.compilation_unit());
        found->second->serialize(state);
        archive.write(state_key(id), state);
      }
      ++id;
    }
  }
}

void Optimizer::load(InputArchive& archive) {
  const std::string own = static_cast<const Options&>(*defaults_).core().word();
  c10::IValue word;
  if (!archive.try_read("optimizer", word) || !word.isString()) refuse("not of a came optimizer, expected " + own);
  if (word.toStringRef() != own) refuse("of " + word.toStringRef() + ", expected " + own);
  expect_count(archive, "groups", param_groups_.size());

  std::vector<std::unique_ptr<::torch::optim::OptimizerOptions>> all_options;
  std::decay_t<decltype(state_)> all_states;
  uint64_t id = 0;
  for (size_t g = 0; g < param_groups_.size(); ++g) {
    const auto& params = param_groups_[g].params();
    expect_count(archive, params_key(g), params.size());
    InputArchive from;
    if (!archive.try_read(options_key(g), from)) refuse("no '" + options_key(g) + "', expected options");
    all_options.push_back(options_of(g).clone());
    auto& options = static_cast<Options&>(*all_options.back());
    options.serialize(from);
    for (size_t k = 0; k < params.size(); ++k, ++id) {
      InputArchive saved;
      if (!archive.try_read(state_key(id), saved)) continue;
      auto state = std::make_unique<ParamState>();
      state->serialize(saved);
      arrange(*state, {params[k], {}, static_cast<int>(g), static_cast<int>(k), id}, options.core());
      all_states[params[k].unsafeGetTensorImpl()] = std::move(state);
    }
  }
  for (size_t g = 0; g < param_groups_.size(); ++g) param_groups_[g].set_options(std::move(all_options[g]));
  state_ = std::move(all_states);
}

}  // namespace came::torch
