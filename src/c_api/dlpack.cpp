// Addresses of a framework's tensors through DLPack, without DLPack's header: the one struct that is read is part of
// its stable ABI, version 1.
#include <algorithm>
#include <cstddef>

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

came_dtype dtype_of(const DlTensor& t) {
  if (t.lanes != 1) return CAME_DTYPE_DEFAULT;
  if (t.code == kBfloat && t.bits == 16) return CAME_DTYPE_BF16;
  if (t.code != kFloat) return CAME_DTYPE_DEFAULT;
  return t.bits == 32 ? CAME_DTYPE_F32 : t.bits == 64 ? CAME_DTYPE_F64 : t.bits == 16 ? CAME_DTYPE_F16 : 0;
}

bool same_place(const DlTensor& t, const came_tensor& wanted) {
  if (wanted.device == CAME_DEVICE_CPU) return t.device_type == kCpu || t.device_type == kCudaHost;
  return t.device_type == kCuda && t.device_id == wanted.device_index;
}

/// Row-major; a dimension of one element has any stride.
bool is_dense(const DlTensor& t) {
  if (t.strides == nullptr || std::find(t.shape, t.shape + t.ndim, 0) != t.shape + t.ndim) return true;
  int64_t stride = 1;
  for (int32_t d = t.ndim - 1; d >= 0; --d) {
    if (t.shape[d] != 1 && t.strides[d] != stride) return false;
    stride *= t.shape[d];
  }
  return true;
}

bool fits(const DlTensor& t, const came_tensor& wanted) {
  if (t.ndim != wanted.ndim || dtype_of(t) != wanted.dtype || !same_place(t, wanted)) return false;
  for (int32_t d = 0; d < t.ndim; ++d) {
    if (t.shape[d] != wanted.shape[d]) return false;
  }
  return is_dense(t);
}

void* first_element(const DlTensor& t) {
  return t.data == nullptr ? nullptr : static_cast<char*>(t.data) + t.byte_offset;
}

/// What came_plan_step would refuse beside what does not fit.
bool is_addressable(const void* data, const DlTensor& t) {
  if (data == nullptr) return std::find(t.shape, t.shape + t.ndim, 0) != t.shape + t.ndim;
  return (reinterpret_cast<uintptr_t>(data) & (t.bits / 8U - 1U)) == 0;
}

/// Points a tensor at an object; where the object keeps its shape, or null if it does not fit.
const void* point(came_tensor& tensor, void* object, came_dlpack_lend lend) {
  static constexpr int64_t kNoShape = 0;
  DlTensor t{};
  if (lend(object, &t) != 0 || !fits(t, tensor)) return nullptr;
  void* data = first_element(t);
  if (!is_addressable(data, t)) return nullptr;
  tensor.data = data;
  return t.shape != nullptr ? t.shape : &kNoShape;
}

}  // namespace

int64_t came_tensors_borrow(came_tensor* tensors, int64_t count, void* list, came_list_item item, const void* none,
                            came_dlpack_lend lend) {
  for (int64_t k = 0; k < count; ++k) {
    void* object = item(list, static_cast<intptr_t>(k));
    DlTensor t{};
    if (object == nullptr || object == none || lend(object, &t) != 0 || !fits(t, tensors[k])) return k;
    tensors[k].data = first_element(t);
  }
  return count;
}

int64_t came_parameters_borrow(const came_framework* framework, void* list, void* kept, came_borrowed* borrowed) {
  const came_framework& f = *framework;
  came_borrowed& b = *borrowed;
  if (f.struct_size != sizeof(came_framework) || b.struct_size != sizeof(came_borrowed)) return -1;
  b.missing = b.replaced = 0;
  for (int64_t k = 0; k < b.count; ++k) {
    void* param = f.item(list, static_cast<intptr_t>(k));
    const void* shape = param != nullptr ? point(b.params[k], param, f.lend) : nullptr;
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
    } else if (point(b.grads[k], grad, f.lend) == nullptr) {
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
