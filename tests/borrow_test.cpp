// came_tensors_borrow and came_tensors_hold: what fits is pointed at, and everything that does not is noticed.
#include "borrow.hpp"

namespace came::test {
namespace {

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

}  // namespace
}  // namespace came::test
