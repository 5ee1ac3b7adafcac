// A framework's tensors as the functions that borrow see them: objects that describe themselves and their storages.
#pragma once

#include <cstring>
#include <vector>

#include "python_bridge/bridge.h"
#include "support.hpp"

namespace came::test {

/// As DLPack lays it out.
struct Lent {
  void* data;
  int32_t device_type = 1;
  int32_t device_id = 0;
  int32_t ndim = 2;
  uint8_t code = 2;
  uint8_t bits = 32;
  uint16_t lanes = 1;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset = 0;
};

struct Object {
  alignas(8) float values[6] = {};
  int64_t shape[2] = {2, 3};
  int64_t strides[2] = {3, 1};
  bool refuses = false;
  Lent lent{values, 1, 0, 2, 2, 32, 1, shape, strides, 0};
  char* begin = reinterpret_cast<char*>(values);  // of its storage
  intptr_t bytes = sizeof values;
  bool has_storage = true;
  int handed_out = 0;  // and not let go of
};

inline void* item(void* list, intptr_t index) {
  return (*static_cast<std::vector<Object*>*>(list))[static_cast<size_t>(index)];
}

inline int lend(void* object, void* tensor) {
  const auto& from = *static_cast<Object*>(object);
  if (from.refuses) return -1;
  std::memcpy(tensor, &from.lent, sizeof(Lent));
  return 0;
}

/// An object stands for its storage and for the address of that, too.
inline int kStorage = 0;
inline int kBegin = 0;

inline void* call(void* function, void* object) {
  auto& from = *static_cast<Object*>(object);
  if (function == &kStorage ? !from.has_storage : from.begin == nullptr) return nullptr;
  ++from.handed_out;
  return object;
}

inline came_framework framework_of_objects() {
  came_framework f = CAME_FRAMEWORK_INIT;
  f.item = item;
  f.lend = lend;
  f.call = call;
  f.storage = &kStorage;
  f.begin = &kBegin;
  f.size = [](void* object) { return static_cast<Object*>(object)->bytes; };
  f.address = [](void* object) -> void* { return static_cast<Object*>(object)->begin; };
  f.release = [](void* object) { --static_cast<Object*>(object)->handed_out; };
  return f;
}

}  // namespace came::test
