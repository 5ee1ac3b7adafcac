// What comes by way of shared memory is what a load would have brought: addresses of every storage, on the host.
#include "emulation/emulator.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "cuda/device/ahead.cuh"

namespace came::test {
namespace {

using namespace cuda;

constexpr int kRows = 5;
constexpr int kWidth = 512;
constexpr int kWarpWidth = 128;

/// Every vector of every row, a warp's width at a time, both ways.
template <class Storage>
void expect_the_same(DType dtype) {
  std::vector<uint8_t> bytes(kRows * kWidth * sizeof(float));
  std::vector<float> scales(kRows * kWidth / kMomentumBlock);
  std::mt19937 random(3);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (float& scale : scales) scale = static_cast<float>(random());
  const Place p{reinterpret_cast<char*>(bytes.data()), scales.data(), kWidth, dtype, false, false, 0, 0, kWidth};
  using Raw = typename Storage::template Raw<4>;
  Raw slots[32 * 2];
  int others = 0;
  Raw last{};
  for (int row = 0; row < kRows; ++row) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int v = 0; v < kWidth / kWarpWidth; ++v) {
        for (const bool there : {true, false}) {
          const auto first = static_cast<uint32_t>(row * kWidth + lane * 4);
          const Where<true> direct{first + static_cast<uint32_t>(v * kWarpWidth), there};
          const Where<true> shifted{first, there};
          const Place place = Storage::after(p, v * kWarpWidth);
          const Ahead<Storage, 4, 32, 1, 2> ahead(slots, lane);
          ahead.send(row, 0, place, shifted);
          const Raw came = ahead.take(row, 0, place, shifted);
          const Raw loaded = Storage::template load<4>(p, direct);
          ASSERT_EQ(std::memcmp(&came, &loaded, sizeof(Raw)), 0) << row << ' ' << lane << ' ' << v << ' ' << there;
          others += std::memcmp(&came, &last, sizeof(Raw)) != 0 ? 1 : 0;
          last = came;
        }
      }
    }
  }
  EXPECT_GT(others, kRows * kWidth / 4);  // they are not all alike
}

TEST(EmulatedAhead, BringsWhatALoadWouldHave) {
  expect_the_same<F32>(DType::f32);
  expect_the_same<BF16>(DType::bf16);
  expect_the_same<CodesAs<Known::bits8>>(DType::i8);
  expect_the_same<CodesAs<Known::bits4>>(DType::u8);
  expect_the_same<Codes>(DType::i8);
  expect_the_same<Codes>(DType::u8);
}

}  // namespace
}  // namespace came::test
