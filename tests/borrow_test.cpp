// came_tensors_borrow, came_parameters_borrow and came_tensors_hold: what fits is pointed at, and everything that does
// not is noticed.
#include <cstring>
#include <utility>
#include <vector>

#include "support.hpp"

namespace {

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

constexpr int kPlain = 1;
constexpr int kOther = 2;
constexpr int kForeign = 3;

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

void* item(void* list, intptr_t index) {
  return (*static_cast<std::vector<Object*>*>(list))[static_cast<size_t>(index)];
}

int lend(void* object, void* tensor) {
  const auto& from = *static_cast<Object*>(object);
  if (from.refuses) return -1;
  std::memcpy(tensor, &from.lent, sizeof(Lent));
  return 0;
}

int unwanted(void* /*object*/, void* /*tensor*/) {
  ADD_FAILURE() << "described as a whole";
  return -1;
}

/// The same objects by properties: what a handle points to begins some bytes after its object.
constexpr int kOffset = 8;
constexpr int32_t kFirstType = 10;  // f64, f32, bf16, f16 from here on

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

int32_t type_of(const Lent& t) {
  if (t.lanes != 1) return 0;
  if (t.code == 4) return kFirstType + 2;
  if (t.bits == 8) return kFirstType + (t.code == 0 ? 4 : 5);
  return kFirstType + (t.bits == 64 ? 0 : t.bits == 32 ? 1 : 3);
}

came_handles handles() {
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

struct Borrow : testing::Test {
  Object objects[3];
  Object none;
  std::vector<Object*> list{&objects[0], &objects[1], &objects[2]};
  int64_t shape[2] = {2, 3};
  came_tensor tensors[3];

  Borrow() {
    for (came_tensor& t : tensors) t = came_tensor_make(nullptr, CAME_DTYPE_F32, shape, 2);
  }
  int64_t borrow() { return came_tensors_borrow(tensors, 3, &list, item, &none, lend); }
};

TEST_F(Borrow, PointsAtTheMemoryOfEveryObject) {
  objects[2].lent.byte_offset = 8;
  EXPECT_EQ(borrow(), 3);
  EXPECT_EQ(tensors[0].data, objects[0].values);
  EXPECT_EQ(tensors[2].data, objects[2].values + 2);
}

TEST_F(Borrow, StopsAtWhatDoesNotFit) {
  const auto expect_stop = [&](auto change) {
    const Object before = objects[1];
    change(objects[1]);
    objects[1].lent.data = objects[1].values;
    objects[1].lent.shape = objects[1].shape;
    objects[1].lent.strides = objects[1].strides;
    EXPECT_EQ(borrow(), 1);
    objects[1] = before;
    objects[1].lent.shape = objects[1].shape;
    objects[1].lent.strides = objects[1].strides;
  };
  expect_stop([](Object& o) { o.refuses = true; });
  expect_stop([](Object& o) { o.shape[1] = 2; });
  expect_stop([](Object& o) { o.lent.ndim = 1; });
  expect_stop([](Object& o) { o.lent.bits = 64; });
  expect_stop([](Object& o) { o.lent.code = 4; });
  expect_stop([](Object& o) { o.lent.lanes = 2; });
  expect_stop([](Object& o) { o.lent.device_type = 2; });
  expect_stop([](Object& o) {
    o.strides[0] = 1;
    o.strides[1] = 2;
  });
}

TEST_F(Borrow, StopsAtNone) {
  list[2] = &none;
  EXPECT_EQ(borrow(), 2);
}

TEST_F(Borrow, DevicesHaveNumbers) {
  for (int k = 0; k < 3; ++k) {
    tensors[k].device = CAME_DEVICE_CUDA;
    tensors[k].device_index = 1;
    objects[k].lent.device_type = 2;
    objects[k].lent.device_id = 1;
  }
  EXPECT_EQ(borrow(), 3);
  objects[0].lent.device_id = 0;
  EXPECT_EQ(borrow(), 0);
}

TEST_F(Borrow, StridesOfSingleElementsDoNotMatter) {
  int64_t row[2] = {1, 3};
  for (int k = 0; k < 3; ++k) {
    tensors[k].shape = row;
    objects[k].shape[0] = 1;
    objects[k].strides[0] = 77;
  }
  EXPECT_EQ(borrow(), 3);
}

/// Tensors that a table describes, each with a handle.
struct Hold : testing::Test {
  Object objects[3];
  std::vector<Object*> list{&objects[0], &objects[1], &objects[2]};
  int64_t shape[2] = {2, 3};
  came_tensor tensors[3];
  came_handles of = handles();

  Hold() {
    for (int k = 0; k < 3; ++k) tensors[k] = came_tensor_make(objects[k].values, CAME_DTYPE_F32, shape, 2);
  }
  int64_t held() { return came_tensors_hold(&of, &list, item, tensors, 3); }
};

TEST_F(Hold, NoticesEverythingThatIsAnother) {
  EXPECT_EQ(held(), 3);
  const auto expect_stop = [&](auto change) {
    const Lent before = objects[1].lent;
    change(objects[1]);
    EXPECT_EQ(held(), 1);
    objects[1].lent = before;
    objects[1].type = &kPlain;
    objects[1].refuses = false;
    objects[1].layout = 5;
    objects[1].memory_bytes = 24;
    objects[1].memory_offset = 0;
    EXPECT_EQ(held(), 3);
  };
  expect_stop([](Object& o) { o.type = &kForeign; });
  expect_stop([](Object& o) { o.refuses = true; });
  expect_stop([](Object& o) { o.layout = 6; });
  expect_stop([](Object& o) { o.lent.byte_offset = 4; });
  expect_stop([](Object& o) { o.lent.data = nullptr; });
  expect_stop([](Object& o) { o.lent.ndim = 1; });
  expect_stop([](Object& o) { o.lent.bits = 64; });
  expect_stop([](Object& o) { o.lent.strides = o.lent.shape; });
  expect_stop([](Object& o) { o.lent.shape = o.lent.strides; });
  expect_stop([](Object& o) { o.memory_bytes = 0; });
  expect_stop([](Object& o) { o.memory_bytes = 23; });
  expect_stop([](Object& o) { o.memory_offset = 1; });
}

TEST_F(Hold, KnowsCodes) {
  for (const auto& [dtype, code] : {std::pair{CAME_DTYPE_I8, 0}, std::pair{CAME_DTYPE_U8, 1}}) {
    tensors[2].dtype = dtype;
    objects[2].lent.bits = 8;
    objects[2].lent.code = static_cast<uint8_t>(code);
    objects[2].memory_bytes = 6;
    EXPECT_EQ(held(), 3);
    objects[2].memory_bytes = 5;
    EXPECT_EQ(held(), 2);
  }
}

TEST_F(Hold, RefusesAStructOfAnotherSize) {
  of.struct_size -= 8;
  EXPECT_EQ(held(), -1);
}

struct Parameter : Object {
  Object* grad = nullptr;
};

int put(void* list, intptr_t index, void* object) {
  (*static_cast<std::vector<Object*>*>(list))[static_cast<size_t>(index)] = static_cast<Object*>(object);
  return 0;
}

void* gradient_of(void* /*attribute*/, void* object, void* /*type*/) { return static_cast<Parameter*>(object)->grad; }

/// Tensors described as a whole, or by properties.
struct BorrowPass : testing::TestWithParam<bool> {
  Parameter objects[3];
  Object gradients[3];
  Object none;
  std::vector<Object*> list{&objects[0], &objects[1], &objects[2]};
  std::vector<Object*> kept{nullptr, nullptr, nullptr};
  int64_t shape[2] = {2, 3};
  came_tensor params[3];
  came_tensor grads[3];
  uint8_t active[3] = {};
  const void* shapes[3] = {};
  came_handles by_properties = handles();
  came_framework framework = CAME_FRAMEWORK_INIT;
  came_borrowed borrowed = CAME_BORROWED_INIT;

  BorrowPass() {
    for (int k = 0; k < 3; ++k) {
      params[k] = grads[k] = came_tensor_make(nullptr, CAME_DTYPE_F32, shape, 2);
      objects[k].grad = &gradients[k];
    }
    framework.item = item;
    framework.put = put;
    framework.get = gradient_of;
    framework.none = &none;
    framework.lend = GetParam() ? unwanted : lend;
    framework.handles = GetParam() ? &by_properties : nullptr;
    borrowed.count = 3;
    borrowed.params = params;
    borrowed.grads = grads;
    borrowed.active = active;
    borrowed.shapes = shapes;
  }
  int64_t borrow() { return came_parameters_borrow(&framework, &list, &kept, &borrowed); }
};

TEST_P(BorrowPass, PointsAtParametersAndKeepsTheirGradients) {
  EXPECT_EQ(borrow(), 3);
  EXPECT_EQ(borrowed.missing, 0);
  for (int k = 0; k < 3; ++k) {
    EXPECT_EQ(params[k].data, objects[k].values);
    EXPECT_EQ(grads[k].data, gradients[k].values);
    EXPECT_EQ(kept[static_cast<size_t>(k)], &gradients[k]);
    EXPECT_EQ(active[k], 1);
  }
}

TEST_P(BorrowPass, CountsMissingGradients) {
  objects[1].grad = &none;
  grads[1].data = &none;
  EXPECT_EQ(borrow(), 3);
  EXPECT_EQ(borrowed.missing, 1);
  EXPECT_EQ(active[1], 0);
  EXPECT_EQ(grads[1].data, nullptr);
  EXPECT_EQ(kept[1], &none);
}

TEST_P(BorrowPass, NoticesMemoryThatIsShort) {
  EXPECT_EQ(borrow(), 3);
  EXPECT_EQ(borrowed.untold, GetParam() ? 0 : 6);
  objects[2].memory_bytes = 23;
  EXPECT_EQ(borrow(), GetParam() ? 2 : 3);
  objects[2].memory_bytes = 24;
  gradients[1].memory_offset = 1;
  EXPECT_EQ(borrow(), GetParam() ? 1 : 3);
}

TEST_P(BorrowPass, TellsThatATensorIsAnother) {
  EXPECT_EQ(borrow(), 3);
  EXPECT_EQ(borrowed.replaced, 3);
  EXPECT_EQ(borrow(), 3);
  EXPECT_EQ(borrowed.replaced, 0);
  Object other;
  objects[2].lent = other.lent;
  EXPECT_EQ(borrow(), 3);
  EXPECT_EQ(borrowed.replaced, 1);
}

TEST_P(BorrowPass, StopsAtWhatDoesNotFit) {
  const auto expect_stop = [&](Object& o, auto change) {
    const Lent before = o.lent;
    change(o);
    EXPECT_EQ(borrow(), 1);
    o.lent = before;
    o.refuses = false;
    EXPECT_EQ(borrow(), 3);
  };
  for (Object* o : {static_cast<Object*>(&objects[1]), &gradients[1]}) {
    expect_stop(*o, [](Object& x) { x.refuses = true; });
    expect_stop(*o, [](Object& x) { x.lent.ndim = 1; });
    expect_stop(*o, [](Object& x) { x.lent.bits = 16; });
    expect_stop(*o, [](Object& x) { x.lent.code = 4; });
    expect_stop(*o, [](Object& x) { x.lent.lanes = 2; });
    for (const int32_t device : {2, 9}) {  // which another address goes with
      expect_stop(*o, [&](Object& x) {
        x.lent.device_type = device;
        x.lent.byte_offset = 4;
      });
    }
    expect_stop(*o, [](Object& x) { x.lent.strides = x.lent.shape; });
    expect_stop(*o, [](Object& x) { x.lent.shape = x.lent.strides; });
    expect_stop(*o, [](Object& x) { x.lent.data = nullptr; });
    expect_stop(*o, [](Object& x) { x.lent.byte_offset = 2; });
  }
  objects[1].grad = nullptr;  // an error of the language
  EXPECT_EQ(borrow(), 1);
}

TEST_P(BorrowPass, TypesAndDevicesAreToldApart) {
  const auto set = [&](came_dtype dtype, uint8_t code, uint8_t bits, came_device device, int32_t index) {
    for (int k = 0; k < 3; ++k) {
      for (came_tensor* t : {&params[k], &grads[k]}) {
        t->dtype = dtype;
        t->device = device;
        t->device_index = index;
      }
      for (Object* o : {static_cast<Object*>(&objects[k]), &gradients[k]}) {
        o->lent.code = code;
        o->lent.bits = bits;
        o->memory_bytes = 6 * bits / 8;
        o->lent.device_type = device == CAME_DEVICE_CUDA ? 2 : 1;
        o->lent.device_id = index;
      }
    }
  };
  const struct {
    came_dtype dtype;
    uint8_t code, bits;
  } types[] = {{CAME_DTYPE_F64, 2, 64}, {CAME_DTYPE_F32, 2, 32}, {CAME_DTYPE_BF16, 4, 16}, {CAME_DTYPE_F16, 2, 16}};
  for (const auto& type : types) {
    set(type.dtype, type.code, type.bits, CAME_DEVICE_CUDA, 1);
    EXPECT_EQ(borrow(), 3);
    gradients[2].lent.device_id = 0;
    gradients[2].lent.byte_offset = 8;
    EXPECT_EQ(borrow(), 2);
    gradients[2].lent.byte_offset = 0;
  }
}

TEST_P(BorrowPass, OnlyObjectsOfCertainTypesHaveHandles) {
  objects[0].type = &kOther;
  EXPECT_EQ(borrow(), 3);
  framework.lend = [](void* object, void* /*tensor*/) {
    EXPECT_EQ(static_cast<Object*>(object)->type, &kForeign);
    return -1;
  };
  if (!GetParam()) return;
  EXPECT_EQ(borrow(), 3);
  gradients[2].type = &kForeign;
  EXPECT_EQ(borrow(), 2);
  objects[1].type = &kForeign;
  EXPECT_EQ(borrow(), 1);
}

TEST_P(BorrowPass, StructsOfAnotherSizeAreRefused) {
  framework.struct_size -= 8;
  EXPECT_EQ(borrow(), -1);
  framework.struct_size += 8;
  borrowed.struct_size += 8;
  EXPECT_EQ(borrow(), -1);
  borrowed.struct_size -= 8;
  by_properties.struct_size += 8;
  EXPECT_EQ(borrow(), GetParam() ? -1 : 3);
}

TEST_P(BorrowPass, ListsAreComparedByIdentity) {
  const void* same[3] = {&objects[0], &objects[1], &objects[2]};
  EXPECT_EQ(came_list_holds(&list, item, same, 3), 1);
  same[2] = &objects[1];
  EXPECT_EQ(came_list_holds(&list, item, same, 3), 0);
  EXPECT_EQ(came_list_holds(&list, item, same, 2), 1);
}

TEST_P(BorrowPass, DictionariesAreComparedByIdentity) {
  const auto next = [](void* dict, intptr_t* position, void** key, void** value) {
    auto& values = *static_cast<std::vector<int>*>(dict);
    if (*position >= static_cast<intptr_t>(values.size())) return 0;
    *key = nullptr;
    *value = &values[static_cast<size_t>((*position)++)];
    return 1;
  };
  std::vector<int> values{1, 1, 1};
  const void* same[4] = {&values[0], &values[1], &values[2], &values[0]};
  EXPECT_EQ(came_dict_holds(&values, next, same, 3), 1);
  EXPECT_EQ(came_dict_holds(&values, next, same, 2), 1);
  EXPECT_EQ(came_dict_holds(&values, next, same, 4), 0);
  same[1] = &values[2];
  EXPECT_EQ(came_dict_holds(&values, next, same, 3), 0);
}

INSTANTIATE_TEST_SUITE_P(Described, BorrowPass, testing::Bool(),
                         [](const auto& of) { return of.param ? "by_properties" : "as_a_whole"; });

}  // namespace
