// came_tensors_borrow: what fits is pointed at, and everything that does not is noticed.
#include <cstring>
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

struct Object {
  float values[6] = {};
  int64_t shape[2] = {2, 3};
  int64_t strides[2] = {3, 1};
  bool refuses = false;
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

struct Dlpack : testing::Test {
  Object objects[3];
  Object none;
  std::vector<Object*> list{&objects[0], &objects[1], &objects[2]};
  int64_t shape[2] = {2, 3};
  came_tensor tensors[3];

  Dlpack() {
    for (came_tensor& t : tensors) t = came_tensor_make(nullptr, CAME_DTYPE_F32, shape, 2);
  }
  int64_t borrow() { return came_tensors_borrow(tensors, 3, &list, item, &none, lend); }
};

TEST_F(Dlpack, PointsAtTheMemoryOfEveryObject) {
  objects[2].lent.byte_offset = 8;
  EXPECT_EQ(borrow(), 3);
  EXPECT_EQ(tensors[0].data, objects[0].values);
  EXPECT_EQ(tensors[2].data, objects[2].values + 2);
}

TEST_F(Dlpack, StopsAtWhatDoesNotFit) {
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

TEST_F(Dlpack, StopsAtNone) {
  list[2] = &none;
  EXPECT_EQ(borrow(), 2);
}

TEST_F(Dlpack, DevicesHaveNumbers) {
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

TEST_F(Dlpack, StridesOfSingleElementsDoNotMatter) {
  int64_t row[2] = {1, 3};
  for (int k = 0; k < 3; ++k) {
    tensors[k].shape = row;
    objects[k].shape[0] = 1;
    objects[k].strides[0] = 77;
  }
  EXPECT_EQ(borrow(), 3);
}

}  // namespace
