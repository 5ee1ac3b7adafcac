// Nested modules by path, and the parameters registered in them.
#include "models/scope.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>

namespace lab {

Scope Scope::operator/(const std::string& path) const {
  Scope scope = *this;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string word = path.substr(begin, end - begin);
    const auto children = scope.module_->named_children();
    const auto* child = children.find(word);
    scope.module_ = child != nullptr
                        ? child->get()
                        : scope.module_->register_module(word, std::make_shared<torch::nn::Module>(word)).get();
    begin = end + 1;
  }
  return scope;
}

at::Tensor Scope::parameter(const std::string& name, at::IntArrayRef shape) const {
  return module_->register_parameter(name, at::empty(shape, at::TensorOptions().dtype(at::kFloat).device(device_)));
}

}  // namespace lab
