// came_tensors_hold and came_storages_hold: everything that is another is noticed, and nothing else.
#include "borrow.hpp"

#include <utility>

namespace came::test {
namespace {

/// Tensors that a table describes.
struct Hold : testing::Test {
  Object objects[3];
  std::vector<Object*> list{&objects[0], &objects[1], &objects[2]};
  int64_t shape[2] = {2, 3};
  came_tensor tensors[3];
  came_framework framework = framework_of_objects();

  Hold() {
    for (int k = 0; k < 3; ++k) tensors[k] = came_tensor_make(objects[k].values, CAME_DTYPE_F32, shape, 2);
  }
  ~Hold() override {
    for (const Object& o : objects) EXPECT_EQ(o.handed_out, 0);
  }
  int64_t held() { return came_tensors_hold(&framework, &list, tensors, 3); }

  template <class Change>
  void expect_stop(const Change& change) {
    const Object before = objects[1];
    change(objects[1]);
    EXPECT_EQ(held(), 1);
    const int handed_out = objects[1].handed_out;
    objects[1] = before;
    objects[1].handed_out = handed_out;
    EXPECT_EQ(held(), 3);
  }
};

TEST_F(Hold, NoticesEverythingThatIsAnother) {
  EXPECT_EQ(held(), 3);
  expect_stop([](Object& o) { o.refuses = true; });
  expect_stop([](Object& o) { o.shape[1] = 2; });
  expect_stop([](Object& o) { o.lent.ndim = 1; });
  expect_stop([](Object& o) { o.lent.bits = 64; });
  expect_stop([](Object& o) { o.lent.bits = 8; });
  expect_stop([](Object& o) { o.lent.code = 4; });
  expect_stop([](Object& o) { o.lent.lanes = 2; });
  expect_stop([](Object& o) { o.lent.device_type = 2; });
  expect_stop([](Object& o) { o.lent.byte_offset = 4; });
  expect_stop([](Object& o) { o.lent.data = nullptr; });
  expect_stop([](Object& o) {
    o.strides[0] = 1;
    o.strides[1] = 2;
  });
}

TEST_F(Hold, NoticesMemoryThatIsShort) {
  expect_stop([](Object& o) { o.bytes = 23; });
  expect_stop([](Object& o) { o.bytes = -1; });
  expect_stop([](Object& o) { o.begin -= 1; });
  expect_stop([](Object& o) { o.begin += 4; });
  expect_stop([](Object& o) { o.begin = nullptr; });
  expect_stop([](Object& o) { o.has_storage = false; });
  objects[1].begin -= 8;
  objects[1].bytes = 32;
  EXPECT_EQ(held(), 3);
}

TEST_F(Hold, AsksNoStorageWhereThereIsNoFunctionForIt) {
  framework.storage = nullptr;
  objects[1].bytes = 0;
  EXPECT_EQ(held(), 3);
}

TEST_F(Hold, EmptyTensorsNeedNoMemory) {
  for (int k = 0; k < 3; ++k) {
    objects[k].shape[0] = shape[0] = 0;
    objects[k].lent.data = tensors[k].data = nullptr;
    objects[k].has_storage = false;
  }
  EXPECT_EQ(held(), 3);
}

TEST_F(Hold, DevicesHaveNumbers) {
  for (int k = 0; k < 3; ++k) {
    tensors[k].device = CAME_DEVICE_CUDA;
    tensors[k].device_index = 1;
    objects[k].lent.device_type = 2;
    objects[k].lent.device_id = 1;
  }
  EXPECT_EQ(held(), 3);
  objects[0].lent.device_id = 0;
  EXPECT_EQ(held(), 0);
}

TEST_F(Hold, StridesOfSingleElementsDoNotMatter) {
  shape[0] = 1;
  for (Object& o : objects) {
    o.shape[0] = 1;
    o.strides[0] = 77;
  }
  EXPECT_EQ(held(), 3);
}

TEST_F(Hold, KnowsCodes) {
  for (const auto& [dtype, code] : {std::pair{CAME_DTYPE_I8, 0}, std::pair{CAME_DTYPE_U8, 1}}) {
    tensors[2].dtype = dtype;
    objects[2].lent.bits = 8;
    objects[2].lent.code = static_cast<uint8_t>(code);
    objects[2].bytes = 6;
    EXPECT_EQ(held(), 3);
    objects[2].lent.code = static_cast<uint8_t>(1 - code);
    EXPECT_EQ(held(), 2);
    objects[2].lent.code = static_cast<uint8_t>(code);
    objects[2].bytes = 5;
    EXPECT_EQ(held(), 2);
  }
}

TEST_F(Hold, RefusesAStructOfAnotherSize) {
  framework.struct_size -= 8;
  EXPECT_EQ(held(), -1);
}

TEST_F(Hold, StoragesThatMovedOrWereResizedAreNoticed) {
  void* storages[3] = {&objects[0], &objects[1], &objects[2]};
  const void* begins[3] = {objects[0].begin, objects[1].begin, objects[2].begin};
  const int64_t bytes[3] = {24, 24, 24};
  const auto hold = [&] { return came_storages_hold(&framework, storages, begins, bytes, 3); };
  EXPECT_EQ(hold(), 3);
  objects[2].bytes = 25;
  EXPECT_EQ(hold(), 2);
  objects[1].begin += 1;
  EXPECT_EQ(hold(), 1);
  objects[0].begin = nullptr;
  EXPECT_EQ(hold(), 0);
  framework.struct_size -= 8;
  EXPECT_EQ(hold(), -1);
}

}  // namespace
}  // namespace came::test
