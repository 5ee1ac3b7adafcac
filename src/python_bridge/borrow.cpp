// Reads a framework's tensors: DLPack describes them, except the size of their memory, which their storages know.
// DLPack's header is not needed: the one struct that is read belongs to the stable ABI of version 1.
#include <algorithm>
#include <cstddef>

#include "python_bridge/bridge.h"

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
constexpr uint8_t kInt = 0;
constexpr uint8_t kUint = 1;
constexpr uint8_t kFloat = 2;
constexpr uint8_t kBfloat = 4;

came_dtype dtype_of(const DlTensor& t) {
  if (t.lanes != 1) return CAME_DTYPE_DEFAULT;  // none of ours
  if (t.bits == 8) return t.code == kInt ? CAME_DTYPE_I8 : t.code == kUint ? CAME_DTYPE_U8 : CAME_DTYPE_DEFAULT;
  if (t.code == kBfloat && t.bits == 16) return CAME_DTYPE_BF16;
  if (t.code != kFloat) return CAME_DTYPE_DEFAULT;
  return t.bits == 32   ? CAME_DTYPE_F32
         : t.bits == 64 ? CAME_DTYPE_F64
         : t.bits == 16 ? CAME_DTYPE_F16
                        : CAME_DTYPE_DEFAULT;
}

bool is_on(const DlTensor& t, came_device device, int32_t index) {
  if (device == CAME_DEVICE_CPU) return t.device_type == kCpu || t.device_type == kCudaHost;
  return t.device_type == kCuda && t.device_id == index;
}

bool is_empty(const DlTensor& t) { return std::find(t.shape, t.shape + t.ndim, 0) != t.shape + t.ndim; }

/// Row-major; a dimension of one element has any stride.
bool is_dense(const DlTensor& t) {
  if (t.strides == nullptr) return true;
  int64_t stride = 1;
  for (int64_t d = t.ndim - 1; d >= 0; --d) {
    if (t.shape[d] != 1 && t.strides[d] != stride) return is_empty(t);
    stride *= t.shape[d];
  }
  return true;
}

bool fits(const DlTensor& t, const came_tensor& wanted) {
  return t.ndim == wanted.ndim && dtype_of(t) == wanted.dtype && is_on(t, wanted.device, wanted.device_index) &&
         std::equal(t.shape, t.shape + t.ndim, wanted.shape) && is_dense(t);
}

/// Memory of a storage.
struct Span {
  const char* begin = nullptr;
  int64_t bytes = -1;  // an error
};

Span span_of(const came_framework& f, void* storage) {
  void* begin = f.call(f.begin, storage);
  if (begin == nullptr) return {};
  const Span span{static_cast<const char*>(f.address(begin)), f.size(storage)};
  f.release(begin);
  return span;
}

/// Whether so many bytes lie inside a tensor's storage: one that was resized may be shorter than the shape says.
bool is_whole(const came_framework& f, void* object, const char* data, int64_t bytes) {
  if (f.storage == nullptr) return true;
  void* storage = f.call(f.storage, object);
  if (storage == nullptr) return false;
  const Span span = span_of(f, storage);
  f.release(storage);
  const auto first = reinterpret_cast<intptr_t>(data) - reinterpret_cast<intptr_t>(span.begin);
  return first >= 0 && first + bytes <= span.bytes;
}

/// Whether a tensor is as wanted; `data` is its address, null if it has no elements.
bool look(const came_framework& f, void* object, const came_tensor& wanted, char*& data) {
  DlTensor t{};
  if (object == nullptr || f.lend(object, &t) != 0 || !fits(t, wanted)) return false;
  data = t.data == nullptr ? nullptr : static_cast<char*>(t.data) + t.byte_offset;
  if (is_empty(t)) return true;
  int64_t bytes = t.bits / 8;
  // As came_plan_step would refuse it.
  if (data == nullptr || reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) != 0) return false;
  for (int32_t d = 0; d < t.ndim; ++d) bytes *= t.shape[d];
  return is_whole(f, object, data, bytes);
}

bool point(const came_framework& f, void* object, came_tensor& tensor) {
  char* data = nullptr;
  if (!look(f, object, tensor, data)) return false;
  tensor.data = data;
  return true;
}

}  // namespace

int64_t came_tensors_hold(const came_framework* framework, void* list, const came_tensor* tensors, int64_t count) {
  const came_framework& f = *framework;
  if (f.struct_size != sizeof(came_framework)) return -1;
  for (int64_t k = 0; k < count; ++k) {
    char* data = nullptr;
    if (!look(f, f.item(list, static_cast<intptr_t>(k)), tensors[k], data) || data != tensors[k].data) return k;
  }
  return count;
}

int64_t came_storages_hold(const came_framework* framework, void* const* storages, const void* const* begins,
                           const int64_t* bytes, int64_t count) {
  const came_framework& f = *framework;
  if (f.struct_size != sizeof(came_framework)) return -1;
  for (int64_t k = 0; k < count; ++k) {
    const Span span = span_of(f, storages[k]);
    if (span.begin != begins[k] || span.bytes != bytes[k]) return k;
  }
  return count;
}

int64_t came_parameters_borrow(const came_framework* framework, void* list, void* kept, came_borrowed* borrowed) {
  const came_framework& f = *framework;
  came_borrowed& b = *borrowed;
  if (f.struct_size != sizeof(came_framework) || b.struct_size != sizeof(came_borrowed)) return -1;
  b.missing = 0;
  for (int64_t k = 0; k < b.count; ++k) {
    void* param = f.item(list, static_cast<intptr_t>(k));
    if (!point(f, param, b.params[k])) return k;
    void* grad = f.get(f.gradient, param, nullptr);
    if (grad == nullptr || f.put(kept, static_cast<intptr_t>(k), grad) != 0) return k;
    b.active[k] = grad != f.none ? 1 : 0;
    if (grad == f.none) {
      b.grads[k].data = nullptr;
      ++b.missing;
    } else if (!point(f, grad, b.grads[k])) {
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

int64_t came_dicts_hold(void* list, came_list_item item, came_dict_next next, const void* const* objects,
                        const int64_t* counts, int64_t count) {
  for (int64_t k = 0; k < count; ++k) {
    void* dict = item(list, static_cast<intptr_t>(k));
    void* key = nullptr;
    void* value = nullptr;
    intptr_t position = 0;
    int64_t found = 0;
    for (; next(dict, &position, &key, &value) != 0; ++found) {
      if (found == counts[k] || value != objects[found]) return k;
    }
    if (found != counts[k]) return k;
    objects += found;
  }
  return count;
}
