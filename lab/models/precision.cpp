// What autocast asks for, and switching it off.
#include "models/precision.hpp"

#include <ATen/autocast_mode.h>

namespace lab {
namespace {

bool is_on(at::DeviceType device) {
  return (device == at::kCPU || device == at::kCUDA) && at::autocast::is_autocast_enabled(device);
}

}  // namespace

NoAutocast::NoAutocast(at::DeviceType device) : device_(device), was_on_(is_on(device)) {
  if (was_on_) at::autocast::set_autocast_enabled(device_, false);
}

NoAutocast::~NoAutocast() {
  if (was_on_) at::autocast::set_autocast_enabled(device_, true);
}

at::ScalarType compute_dtype(const at::Tensor& weight) {
  const at::DeviceType device = weight.device().type();
  return is_on(device) ? at::autocast::get_autocast_dtype(device) : weight.scalar_type();
}

}  // namespace lab
