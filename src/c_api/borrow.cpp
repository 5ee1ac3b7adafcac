// Addresses of a framework's tensors: through DLPack, without its header, since the one struct that is read is part of
// its stable ABI, version 1; or through functions that tell one property of a tensor each.
#include <algorithm>
#include <cstddef>
#include <limits>

#include "came/came.h"

namespace {

struct DlTensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major
  uint64_t byte_offset;
};
static_assert(sizeof(DlTensor) == 48 && offsetof(DlTensor, shape) == 24);

constexpr int32_t kCpu = 1;
constexpr int32_t kCuda = 2;
constexpr int32_t kCudaHost = 3;
constexpr uint8_t kFloat = 2;
constexpr uint8_t kBfloat = 4;

constexpr int64_t kUntold = std::numeric_limits<int64_t>::max();

/// What a framework says of a tensor.
struct Seen {
  void* data = nullptr;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;  // in elements; null: row-major
  int64_t ndim = 0;
  came_dtype dtype = CAME_DTYPE_DEFAULT;  // none of ours
  came_device device = CAME_DEVICE_CPU;
  int32_t device_index = 0;
  int64_t bytes = kUntold;  // of its memory, from `data` on
};

came_dtype dtype_of(const DlTensor& t) {
  if (t.lanes != 1) return CAME_DTYPE_DEFAULT;
  if (t.code == kBfloat && t.bits == 16) return CAME_DTYPE_BF16;
  if (t.code != kFloat) return CAME_DTYPE_DEFAULT;
  return t.bits == 32 ? CAME_DTYPE_F32 : t.bits == 64 ? CAME_DTYPE_F64 : t.bits == 16 ? CAME_DTYPE_F16 : 0;
}

bool look(came_dlpack_lend lend, void* object, Seen& seen) {
  DlTensor t{};
  if (lend(object, &t) != 0) return false;
  const bool on_host = t.device_type == kCpu || t.device_type == kCudaHost;
  if (!on_host && t.device_type != kCuda) return false;
  seen.data = t.data == nullptr ? nullptr : static_cast<char*>(t.data) + t.byte_offset;
  seen.shape = t.shape;
  seen.strides = t.strides;
  seen.ndim = t.ndim;
  seen.dtype = dtype_of(t);
  seen.device = on_host ? CAME_DEVICE_CPU : CAME_DEVICE_CUDA;
  seen.device_index = on_host ? 0 : t.device_id;
  return true;
}

int64_t element_bytes(came_dtype dtype) {
  switch (dtype) {
    case CAME_DTYPE_F64:
      return 8;
    case CAME_DTYPE_F32:
      return 4;
    case CAME_DTYPE_BF16:
    case CAME_DTYPE_F16:
      return 2;
    default:
      return 1;
  }
}

/// Does an object have a handle?  What a framework hands out as a gradient may be anything.
bool has_handle(const came_handles& of, const void* object) {
  const void* type = *reinterpret_cast<const void* const*>(static_cast<const char*>(object) + of.type_offset);
  return type == of.type || type == of.other_type;
}

/// `before` is what the tensor was known as: an address belongs to one device, which is asked for where it is new.
bool look(const came_handles& of, void* object, const came_tensor& before, Seen& seen) {
  void* handle = static_cast<char*>(object) + of.offset;
  int32_t layout = 0;  // first: of what is not strided, some other questions are errors
  if (of.layout(handle, &layout) != 0 || layout != of.strided) return false;
  int32_t dtype = 0;
  if (of.data(handle, &seen.data) != 0 || of.shape(handle, &seen.shape) != 0 ||
      of.strides(handle, &seen.strides) != 0 || of.ndim(handle, &seen.ndim) != 0 || of.dtype(handle, &dtype) != 0) {
    return false;
  }
  seen.device = before.device;
  seen.device_index = before.device_index;
  if (seen.data == nullptr || seen.data != before.data) {
    int32_t device = 0;
    if (of.device(handle, &device) != 0 || (device != of.cpu && device != of.cuda)) return false;
    if (of.device_index(handle, &seen.device_index) != 0) return false;
    seen.device = device == of.cpu ? CAME_DEVICE_CPU : CAME_DEVICE_CUDA;
    if (device == of.cpu) seen.device_index = 0;
  }
  seen.dtype = dtype == of.f32    ? CAME_DTYPE_F32
               : dtype == of.bf16 ? CAME_DTYPE_BF16
               : dtype == of.f16  ? CAME_DTYPE_F16
               : dtype == of.f64  ? CAME_DTYPE_F64
               : dtype == of.i8   ? CAME_DTYPE_I8
               : dtype == of.u8   ? CAME_DTYPE_U8
                                  : CAME_DTYPE_DEFAULT;
  int64_t offset = 0;
  if (of.memory_bytes(handle, &seen.bytes) != 0 || of.memory_offset(handle, &offset) != 0) return false;
  seen.bytes -= offset * element_bytes(seen.dtype);
  return true;
}

bool is_empty(const Seen& t) { return std::find(t.shape, t.shape + t.ndim, 0) != t.shape + t.ndim; }

/// Row-major; a dimension of one element has any stride.
bool is_dense(const Seen& t) {
  if (t.strides == nullptr) return true;
  int64_t stride = 1;
  for (int64_t d = t.ndim - 1; d >= 0; --d) {
    if (t.shape[d] != 1 && t.strides[d] != stride) return is_empty(t);
    stride *= t.shape[d];
  }
  return true;
}

bool fits(const Seen& t, const came_tensor& wanted) {
  if (t.ndim != wanted.ndim || t.dtype != wanted.dtype || t.device != wanted.device ||
      t.device_index != wanted.device_index) {
    return false;
  }
  int64_t elements = 1;
  for (int32_t d = 0; d < wanted.ndim; ++d) {
    if (t.shape[d] != wanted.shape[d]) return false;
    elements *= wanted.shape[d];
  }
  // Memory that was given back, in part or whole, is shorter than the shape says.
  if (elements > 0 && elements * element_bytes(t.dtype) > t.bytes) return false;
  return is_dense(t);
}

/// What came_plan_step would refuse beside what does not fit.
bool is_addressable(const Seen& t) {
  if (t.data == nullptr) return is_empty(t);
  return reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(element_bytes(t.dtype)) == 0;
}

/// Points a tensor at an object; where the object keeps its shape, or null if it does not fit.
const void* point(came_tensor& tensor, void* object, const came_framework& f, int64_t& untold) {
  static constexpr int64_t kNoShape = 0;
  Seen seen;
  const bool by_handle = f.handles != nullptr && has_handle(*f.handles, object);
  if (!(by_handle ? look(*f.handles, object, tensor, seen) : look(f.lend, object, seen))) return nullptr;
  if (!fits(seen, tensor) || !is_addressable(seen)) return nullptr;
  if (seen.bytes == kUntold) ++untold;
  tensor.data = seen.data;
  return seen.shape != nullptr ? seen.shape : &kNoShape;
}

}  // namespace

int64_t came_tensors_borrow(came_tensor* tensors, int64_t count, void* list, came_list_item item, const void* none,
                            came_dlpack_lend lend) {
  for (int64_t k = 0; k < count; ++k) {
    void* object = item(list, static_cast<intptr_t>(k));
    Seen seen;
    if (object == nullptr || object == none || !look(lend, object, seen) || !fits(seen, tensors[k])) return k;
    tensors[k].data = seen.data;
  }
  return count;
}

int64_t came_tensors_hold(const came_handles* handles, void* list, came_list_item item, const came_tensor* tensors,
                          int64_t count) {
  if (handles->struct_size != sizeof(came_handles)) return -1;
  for (int64_t k = 0; k < count; ++k) {
    void* object = item(list, static_cast<intptr_t>(k));
    Seen seen;
    if (object == nullptr || !has_handle(*handles, object) || !look(*handles, object, tensors[k], seen)) return k;
    if (seen.data != tensors[k].data || !fits(seen, tensors[k])) return k;
  }
  return count;
}

int64_t came_parameters_borrow(const came_framework* framework, void* list, void* kept, came_borrowed* borrowed) {
  const came_framework& f = *framework;
  came_borrowed& b = *borrowed;
  if (f.struct_size != sizeof(came_framework) || b.struct_size != sizeof(came_borrowed)) return -1;
  if (f.handles != nullptr && f.handles->struct_size != sizeof(came_handles)) return -1;
  b.missing = b.replaced = b.untold = 0;
  for (int64_t k = 0; k < b.count; ++k) {
    void* param = f.item(list, static_cast<intptr_t>(k));
    const void* shape = param != nullptr ? point(b.params[k], param, f, b.untold) : nullptr;
    if (shape == nullptr) return k;
    if (b.shapes[k] != shape) {
      b.shapes[k] = shape;
      ++b.replaced;
    }
    void* grad = f.get(f.gradient, param, nullptr);
    if (grad == nullptr || f.put(kept, static_cast<intptr_t>(k), grad) != 0) return k;
    b.active[k] = grad != f.none ? 1 : 0;
    if (grad == f.none) {
      b.grads[k].data = nullptr;
      ++b.missing;
    } else if (point(b.grads[k], grad, f, b.untold) == nullptr) {
      return k;
    }
  }
  return b.count;
}

int32_t came_list_holds(void* list, came_list_item item, const void* const* objects, int64_t count) {
  for (int64_t k = 0; k < count; ++k) {
    if (item(list, static_cast<intptr_t>(k)) != objects[k]) return 0;
  }
  return 1;
}

int32_t came_dict_holds(void* dict, came_dict_next next, const void* const* objects, int64_t count) {
  intptr_t position = 0;
  for (int64_t k = 0; k < count; ++k) {
    void* key = nullptr;
    void* value = nullptr;
    if (next(dict, &position, &key, &value) == 0 || value != objects[k]) return 0;
  }
  return 1;
}
