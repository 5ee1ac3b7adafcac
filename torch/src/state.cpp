// State of one parameter in archives: the counter, then every tensor under its name.
#include "came/torch/state.hpp"

#include <torch/serialize/archive.h>
#include <came/error.hpp>

namespace came::torch {

const at::Tensor& ParamState::at(const std::string& name) const {
  std::string names;
  for (const Entry& entry : tensors) {
    if (entry.name == name) return entry.tensor;
    names += (names.empty() ? "" : ", ") + entry.name;
  }
  throw Error(Status::invalid_argument, "state: no '" + name + "', expected one of " + names);
}

void ParamState::serialize(::torch::serialize::OutputArchive& archive) const {
  archive.write("step", c10::IValue(step));
  for (const Entry& entry : tensors) archive.write(entry.name, entry.tensor, /*is_buffer=*/true);
}

void ParamState::serialize(::torch::serialize::InputArchive& archive) {
  ParamState read;
  c10::IValue count;
  if (!archive.try_read("step", count) || !count.isInt() || count.toInt() < 0) {
    throw Error(Status::invalid_argument, "archive: state without a step >= 0, expected one");
  }
  read.step = count.toInt();
  for (const std::string& key : archive.keys()) {
    if (key == "step") continue;
    Entry entry{key, {}};
    // Into a tensor that is not defined: one that is would keep its own dtype.
    if (archive.try_read(key, entry.tensor, /*is_buffer=*/true)) read.tensors.push_back(std::move(entry));
  }
  *this = std::move(read);
}

}  // namespace came::torch
