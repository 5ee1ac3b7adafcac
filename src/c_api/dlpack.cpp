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
  return t.ndim == wanted.ndim && std::equal(t.shape, t.shape + t.ndim, wanted.shape) && dtype_of(t) == wanted.dtype &&
         same_place(t, wanted) && is_dense(t);
}

}  // namespace

int64_t came_tensors_borrow(came_tensor* tensors, int64_t count, void* list, came_list_item item, const void* none,
                            came_dlpack_lend lend) {
  for (int64_t k = 0; k < count; ++k) {
    void* object = item(list, static_cast<intptr_t>(k));
    DlTensor t{};
    if (object == nullptr || object == none || lend(object, &t) != 0 || !fits(t, tensors[k])) return k;
    tensors[k].data = t.data == nullptr ? nullptr : static_cast<char*>(t.data) + t.byte_offset;
  }
  return count;
}
