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
}  // namespace came::test
