#include "train/tensors.hpp"

#include <ATen/ATen.h>

#include <array>
#include <cstring>

#include "error.hpp"

namespace lab {
namespace {

struct Spelling {
  at::ScalarType torch;
  const char* file;
};
constexpr std::array kSpellings = {
    Spelling{at::kDouble, "F64"}, Spelling{at::kFloat, "F32"}, Spelling{at::kBFloat16, "BF16"},
    Spelling{at::kHalf, "F16"},   Spelling{at::kLong, "I64"},  Spelling{at::kInt, "I32"},
    Spelling{at::kShort, "I16"},  Spelling{at::kChar, "I8"},   Spelling{at::kByte, "U8"},
    Spelling{at::kBool, "BOOL"},
};

const char* file_dtype(at::ScalarType type) {
  for (const auto& [torch, file] : kSpellings) {
    if (torch == type) return file;
  }
  fail("tensors of {} cannot be saved", at::toString(type));
}

at::ScalarType torch_dtype(const StoredTensor& stored) {
  for (const auto& [torch, file] : kSpellings) {
    if (stored.dtype == file) return torch;
  }
  fail("{} has the dtype {}, which the lab does not use", stored.name, stored.dtype);
}

std::string shape_text(at::IntArrayRef shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

}  // namespace

void write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                   const std::map<std::string, std::string>& metadata) {
  std::vector<at::Tensor> host;  // keeps the copies alive
  std::vector<StoredTensor> stored;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor& copy = host.emplace_back(tensor.detach().to(at::kCPU).contiguous());
    stored.push_back({name,
                      file_dtype(copy.scalar_type()),
                      copy.sizes().vec(),
                      {static_cast<const std::byte*>(copy.const_data_ptr()), copy.nbytes()}});
  }
  write_safetensors(path, stored, metadata);
}

at::Tensor read_tensor(const StoredTensor& stored) {
  at::Tensor made = at::empty(stored.shape, torch_dtype(stored));
  if (!stored.data.empty()) std::memcpy(made.mutable_data_ptr(), stored.data.data(), stored.data.size());
  return made;
}

std::vector<NamedTensor> parameters_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> tensors;
  for (const auto& parameter : module.named_parameters()) tensors.push_back({parameter.key(), parameter.value()});
  return tensors;
}

void read_parameters(const std::filesystem::path& path, torch::nn::Module& module) {
  const SafetensorsFile file(path);
  const auto wanted = parameters_of(module);
  for (const auto& [name, tensor] : wanted) {
    const StoredTensor* stored = file.contents().find(name);
    if (stored == nullptr)
      fail("{}: no {}, which the model has; is it a checkpoint of another model?", path.string(), name);
    if (stored->shape != tensor.sizes().vec() || torch_dtype(*stored) != tensor.scalar_type())
      fail("{}: {} is {} {}, but the model's is {} {}; is it a checkpoint of another model?", path.string(), name,
           stored->dtype, shape_text(stored->shape), file_dtype(tensor.scalar_type()), shape_text(tensor.sizes()));
  }
  if (file.contents().tensors.size() != wanted.size())
    fail("{}: {} tensors, but the model has {}; is it a checkpoint of another model?", path.string(),
         file.contents().tensors.size(), wanted.size());
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : wanted) tensor.copy_(read_tensor(*file.contents().find(name)));
}

}  // namespace lab
