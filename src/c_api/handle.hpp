// PRIVATE.  What every function of the C interface needs: errors into statuses, checked pointers and structs.
#pragma once

#include <cstdint>
#include <string>

#include "core/message.hpp"
#include "core/optimizer.hpp"
#include "core/plan.hpp"

struct came_plan {
  came::core::Plan plan;
};

struct came_optimizer {
  came::core::Optimizer optimizer;
};

namespace came::c_api {

/// Turns the exception in flight into a status and this thread's message.
came_status report() noexcept;

/// Runs f; nothing it throws gets past.
template <class F>
came_status guarded(F f) noexcept {
  try {
    f();
    return CAME_STATUS_OK;
  } catch (...) {
    return report();
  }
}

/// The object behind a pointer argument.
template <class T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) core::invalid(name, " is null, expected an address");
  return *pointer;
}

/// The struct behind a pointer argument, of this ABI's size.
template <class T>
T& checked_struct(T* pointer, const char* name) {
  T& value = required(pointer, name);
  if (value.struct_size != sizeof(T)) {
    core::fail(Status::abi_mismatch, name, ".struct_size is ", value.struct_size, ", expected ", sizeof(T),
               value.struct_size > sizeof(T) ? ": the caller was built for a newer ABI of libcame" : "");
  }
  return value;
}

/// Element `index` of an array argument of structs.
template <class T>
const T& checked_element(const T* array, int64_t index, const char* name) {
  required(array, name);
  return checked_struct(array + index, (std::string(name) + "[" + std::to_string(index) + "]").c_str());
}

std::vector<came_options> copy_groups(const came_options* groups, int32_t count);
std::vector<TensorSpec> copy_specs(const came_tensor_spec* specs, int64_t count);

}  // namespace came::c_api
