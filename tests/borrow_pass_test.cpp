// came_parameters_borrow: parameters and gradients in one pass; and lists and dictionaries that are compared.
#include "borrow.hpp"

namespace came::test {
namespace {

struct Parameter : Object {
  Object* grad = nullptr;
};

int put(void* list, intptr_t index, void* object) {
  (*static_cast<std::vector<Object*>*>(list))[static_cast<size_t>(index)] = static_cast<Object*>(object);
  return 0;
}

void* gradient_of(void* /*attribute*/, void* object, void* /*type*/) { return static_cast<Parameter*>(object)->grad; }

struct BorrowPass : testing::Test {
  Parameter objects[3];
  Object gradients[3];
  Object none;
  std::vector<Object*> list{&objects[0], &objects[1], &objects[2]};
  std::vector<Object*> kept{nullptr, nullptr, nullptr};
  int64_t shape[2] = {2, 3};
  came_tensor params[3];
  came_tensor grads[3];
  uint8_t active[3] = {};
  came_framework framework = framework_of_objects();
  came_borrowed borrowed = CAME_BORROWED_INIT;

  BorrowPass() {
    for (int k = 0; k < 3; ++k) {
      params[k] = grads[k] = came_tensor_make(nullptr, CAME_DTYPE_F32, shape, 2);
      objects[k].grad = &gradients[k];
    }
    framework.put = put;
    framework.get = gradient_of;
    framework.none = &none;
    borrowed.count = 3;
    borrowed.params = params;
    borrowed.grads = grads;
    borrowed.active = active;
  }
  int64_t borrow() { return came_parameters_borrow(&framework, &list, &kept, &borrowed); }
};

TEST_F(BorrowPass, PointsAtParametersAndKeepsTheirGradients) {
  EXPECT_EQ(borrow(), 3);
  EXPECT_EQ(borrowed.missing, 0);
  for (int k = 0; k < 3; ++k) {
    EXPECT_EQ(params[k].data, objects[k].values);
    EXPECT_EQ(grads[k].data, gradients[k].values);
    EXPECT_EQ(kept[static_cast<size_t>(k)], &gradients[k]);
    EXPECT_EQ(active[k], 1);
  }
}

TEST_F(BorrowPass, CountsMissingGradients) {
  objects[1].grad = &none;
  grads[1].data = &none;
  EXPECT_EQ(borrow(), 3);
  EXPECT_EQ(borrowed.missing, 1);
  EXPECT_EQ(active[1], 0);
  EXPECT_EQ(grads[1].data, nullptr);
  EXPECT_EQ(kept[1], &none);
}

TEST_F(BorrowPass, NoticesMemoryThatIsShort) {
  EXPECT_EQ(borrow(), 3);
  objects[2].bytes = 23;
  EXPECT_EQ(borrow(), 2);
  gradients[1].begin += 4;
  EXPECT_EQ(borrow(), 1);
  EXPECT_EQ(objects[1].handed_out, 0);
}

TEST_F(BorrowPass, StopsAtWhatDoesNotFit) {
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
    for (const int32_t device : {2, 9}) expect_stop(*o, [&](Object& x) { x.lent.device_type = device; });
    expect_stop(*o, [](Object& x) { x.lent.strides = x.lent.shape; });
    expect_stop(*o, [](Object& x) { x.lent.shape = x.lent.strides; });
    expect_stop(*o, [](Object& x) { x.lent.data = nullptr; });
    expect_stop(*o, [](Object& x) { x.lent.byte_offset = 2; });
  }
  objects[1].grad = nullptr;  // an error of the language
  EXPECT_EQ(borrow(), 1);
}

TEST_F(BorrowPass, TypesAndDevicesAreToldApart) {
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
        o->begin = reinterpret_cast<char*>(o->lent.data);
        o->bytes = 6 * bits / 8;
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
    EXPECT_EQ(borrow(), 2);
  }
}

TEST_F(BorrowPass, StructsOfAnotherSizeAreRefused) {
  framework.struct_size -= 8;
  EXPECT_EQ(borrow(), -1);
  framework.struct_size += 8;
  borrowed.struct_size += 8;
  EXPECT_EQ(borrow(), -1);
}

TEST_F(BorrowPass, ListsAreComparedByIdentity) {
  const void* same[3] = {&objects[0], &objects[1], &objects[2]};
  EXPECT_EQ(came_list_holds(&list, item, same, 3), 1);
  same[2] = &objects[1];
  EXPECT_EQ(came_list_holds(&list, item, same, 3), 0);
  EXPECT_EQ(came_list_holds(&list, item, same, 2), 1);
}

TEST_F(BorrowPass, DictionariesAreComparedByIdentity) {
  const auto next = [](void* dict, intptr_t* position, void** key, void** value) {
    auto& values = *static_cast<std::vector<int>*>(dict);
    if (*position >= static_cast<intptr_t>(values.size())) return 0;
    *key = nullptr;
    *value = &values[static_cast<size_t>((*position)++)];
    return 1;
  };
  std::vector<int> values[2] = {{1, 1}, {1}};
  std::vector<std::vector<int>*> dicts{&values[0], &values[1]};
  const auto at = [](void* list_of, intptr_t index) -> void* {
    return (*static_cast<std::vector<std::vector<int>*>*>(list_of))[static_cast<size_t>(index)];
  };
  const void* same[3] = {&values[0][0], &values[0][1], &values[1][0]};
  int64_t counts[2] = {2, 1};
  const auto held = [&] { return came_dicts_hold(&dicts, at, next, same, counts, 2); };
  EXPECT_EQ(held(), 2);
  counts[1] = 2;  // one is missing
  EXPECT_EQ(held(), 1);
  counts[1] = 0;  // there is one more
  EXPECT_EQ(held(), 1);
  counts[1] = 1;
  same[2] = &values[0][0];
  EXPECT_EQ(held(), 1);
  same[1] = &values[0][0];
  EXPECT_EQ(held(), 0);
}

}  // namespace
}  // namespace came::test
