// A framework's tensors as the functions that borrow see them: objects that describe themselves, and handles of theirs.
#pragma once

#include <cstring>
#include <utility>
#include <vector>

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

inline constexpr int kPlain = 1;
inline constexpr int kOther = 2;
inline constexpr int kForeign = 3;

struct Object {
  const void* type = &kPlain;
  alignas(8) float values[6] = {};
  int64_t shape[2] = {2, 3};
  int64_t strides[2] = {3, 1};
  bool refuses = false;
  int32_t layout = 5;  // strided
  int64_t memory_bytes = sizeof values;
  int64_t memory_offset = 0;
  Lent lent{values, 1, 0, 2, 2, 32, 1, shape, strides, 0};
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

inline int unwanted(void* /*object*/, void* /*tensor*/) {
  ADD_FAILURE() << "described as a whole";
  return -1;
}

/// The same objects by properties: what a handle points to begins some bytes after its object.
inline constexpr int kOffset = 8;
inline constexpr int32_t kFirstType = 10;  // f64, f32, bf16, f16 from here on

template <class Value, class Read>
int32_t tell_of(void* handle, void* value, const Read& read) {
  const auto& from = *reinterpret_cast<Object*>(static_cast<char*>(handle) - kOffset);
  if (from.refuses) return 1;
  *static_cast<Value*>(value) = static_cast<Value>(read(from));
  return 0;
}

template <class Value, class Read>
int32_t tell(void* handle, void* value, const Read& read) {
  return tell_of<Value>(handle, value, [&](const Object& from) { return read(from.lent); });
}

inline int32_t type_of(const Lent& t) {
  if (t.lanes != 1) return 0;
  if (t.code == 4) return kFirstType + 2;
  if (t.bits == 8) return kFirstType + (t.code == 0 ? 4 : 5);
  return kFirstType + (t.bits == 64 ? 0 : t.bits == 32 ? 1 : 3);
}

inline came_handles handles() {
  came_handles h = CAME_HANDLES_INIT;
  h.offset = kOffset;
  h.type_offset = 0;
  h.type = &kPlain;
  h.other_type = &kOther;
  h.data = [](void* at, void* to) {
    return tell<void*>(
        at, to, [](auto& t) { return t.data == nullptr ? nullptr : static_cast<char*>(t.data) + t.byte_offset; });
  };
  h.shape = [](void* at, void* to) { return tell<const int64_t*>(at, to, [](auto& t) { return t.shape; }); };
  h.strides = [](void* at, void* to) { return tell<const int64_t*>(at, to, [](auto& t) { return t.strides; }); };
  h.ndim = [](void* at, void* to) { return tell<int64_t>(at, to, [](auto& t) { return t.ndim; }); };
  h.dtype = [](void* at, void* to) { return tell<int32_t>(at, to, type_of); };
  h.device = [](void* at, void* to) { return tell<int32_t>(at, to, [](auto& t) { return t.device_type - 1; }); };
  h.device_index = [](void* at, void* to) { return tell<int32_t>(at, to, [](auto& t) { return t.device_id; }); };
  h.layout = [](void* at, void* to) { return tell_of<int32_t>(at, to, [](auto& o) { return o.layout; }); };
  h.memory_bytes = [](void* at, void* to) { return tell_of<int64_t>(at, to, [](auto& o) { return o.memory_bytes; }); };
  h.memory_offset = [](void* at, void* to) {
    return tell_of<int64_t>(at, to, [](auto& o) { return o.memory_offset; });
  };
  h.strided = 5;
  h.i8 = kFirstType + 4;
  h.u8 = kFirstType + 5;
  h.cpu = 0;
  h.cuda = 1;
  h.f64 = kFirstType;
  h.f32 = kFirstType + 1;
  h.bf16 = kFirstType + 2;
  h.f16 = kFirstType + 3;
  return h;
}

}  // namespace came::test
