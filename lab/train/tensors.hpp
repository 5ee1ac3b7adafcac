// Between torch's tensors and safetensors files.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "storage/safetensors.hpp"

namespace lab {

/// A tensor with the name it has in a file.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Writes tensors of any device; returns when they are on disk.
void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                   const std::map<std::string, std::string>& metadata = {});
/// Copies one out of a file, to the CPU.
[[nodiscard]] at::Tensor read_tensor(const StoredTensor& stored);

/// The parameters of a module under their own names.
[[nodiscard]] std::vector<NamedTensor> parameters_of(const torch::nn::Module& module);
/// Fills all parameters from a file; throws an Error that begins with its path, and changes none, unless the file has
/// exactly these names, shapes and dtypes.
void read_parameters(const std::filesystem::path& path, torch::nn::Module& module);

}  // namespace lab
