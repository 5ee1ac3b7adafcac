// What a plan keeps on its device, and how much of the workspace its steps take.
#include "cuda/tables.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>

#include "core/message.hpp"
#include "cuda/begin.hpp"
#include "cuda/content.hpp"
#include "cuda/kernels.hpp"

namespace came::cuda {
namespace {

template <class T>
int64_t bytes_of(const std::vector<T>& list) {
  return static_cast<int64_t>((list.size() * sizeof(T) + 255) / 256 * 256);
}

int64_t words(int64_t bytes) { return (bytes + 7) / 8; }

/// Bytes of the pieces with which blocks begin, and a few more.
constexpr int64_t kFirstPieces = 8192;

}  // namespace

void check(int error, const char* what) {
  if (error == cudaSuccess) return;
  const auto code = static_cast<cudaError_t>(error);
  if (code == cudaErrorMemoryAllocation) core::fail(Status::out_of_memory, what, ": the device ran out of memory");
  core::fail(Status::device, what, ": ", cudaGetErrorString(code), " (", cudaGetErrorName(code), ")");
}

OnDevice::OnDevice(int device) : device_(device) {
  check(cudaGetDevice(&before_), "cudaGetDevice");
  if (before_ != device_)
    check(cudaSetDevice(device_), ("device_index: " + std::to_string(device_) + " given").c_str());
}

OnDevice::~OnDevice() {
  if (before_ != device_) cudaSetDevice(before_);
}

Room room_of(const core::Plan& plan) {
  const auto tensors = static_cast<int64_t>(plan.tensors.size());
  int64_t sets = 0;
  for (const core::Tensor& t : plan.tensors) sets += t.local_sets();
  Room room{};
  room.scalars = 0;
  room.words = room.scalars + words(tensors * static_cast<int64_t>(sizeof(Scalars)));
  // Options of the step, pointers, then rates and counters where those lie on the host.
  const auto groups = static_cast<int64_t>(plan.groups.size());
  room.arrivals = room.words + groups * kOptionsWords + plan.state_count + 3 * tensors + groups + 2;
  room.agreements = room.arrivals + words((sets + tensors) * static_cast<int64_t>(sizeof(unsigned)));
  room.sheets = room.agreements + tensors + kMostPointers;  // some are read that a tensor does not have
  const size_t sheet = plan.algorithm == Algorithm::came ? sizeof(Sheet) : is_adam(plan) ? sizeof(MomentsSheet) : 0;
  room.sums = room.sheets + words(tensors * static_cast<int64_t>(sheet));
  room.turns = room.sums + (plan.algorithm == Algorithm::came ? kMostSharing : 0);
  return room;
}

int64_t room_for_pieces(const core::Plan& plan, int64_t floats) {
  const int64_t needed = words(floats * static_cast<int64_t>(sizeof(float))) + 1;  // from a multiple of 16 bytes on
  // Before the matrix scalars lies what other tensors' tiles left: by then nobody reads it.
  return needed <= plan.matrix_scalars_offset ? 0 : needed;
}

int64_t room_in_all(const core::Plan& plan) {
  const Residents residents = content_of(plan).residents;
  return room_of(plan).turns + words(residents.turns() * static_cast<int64_t>(sizeof(unsigned))) +
         room_for_pieces(plan, residents.floats());
}

int64_t table_bytes(const core::Plan& plan) {
  const Content c = content_of(plan);
  return bytes_of(c.tensors) + bytes_of(plan.groups) + bytes_of(c.tiles) + bytes_of(c.parts) + bytes_of(c.chunks) +
         bytes_of(c.vectors) + bytes_of(c.pieces) + bytes_of(c.norms) + bytes_of(c.unshared);
}

Tables::Tables(const core::Plan& plan) : room(room_of(plan)), device_(plan.device_index) {
  for (const core::Tensor& t : plan.tensors) states_of.push_back(static_cast<uint8_t>(t.states.size()));
  int count = 0;
  check(cudaGetDeviceCount(&count), "no CUDA device");
  if (device_ >= count) {
    core::invalid("device_index: ", device_, " given, expected 0 to ", count - 1, ": the CUDA devices there are");
  }
  const OnDevice here(device_);
  const Content c = content_of(plan);
  overlap = launches_overlap();
  std::copy(c.launches, c.launches + kPhases, launches);
  routes = c.routes;
  for (const Route& route : routes) ++tensors_of[static_cast<int>(route.variant)][static_cast<int>(route.way)];
  set_count = c.sets;
  vector_count = static_cast<int64_t>(c.vectors.size());
  norm_count = static_cast<int64_t>(c.norms.size());
  unshared_count = static_cast<int64_t>(c.unshared.size());
  vectors_beside = overlap && c.residents.area > 0;
  vectors_together = unshared_count > 0 && has_cooperative_launches() && vectors_fit(vector_count);
  if (c.residents.area > 0) {
    Residents found = c.residents;
    found.side_by_side = fits_the_chip();
    residents = std::make_unique<const Residents>(found);
  }
  check(cudaMalloc(&memory_, static_cast<size_t>(std::max<int64_t>(1, table_bytes(plan)))), "tables of a plan");
  auto* to = static_cast<char*>(memory_);
  const auto copy = [&](const auto& list) {
    using T = typename std::decay_t<decltype(list)>::value_type;
    auto* at = reinterpret_cast<T*>(to);
    if (!list.empty()) {
      check(cudaMemcpy(at, list.data(), list.size() * sizeof(T), cudaMemcpyHostToDevice), "tables of a plan");
    }
    to += bytes_of(list);
    return at;
  };
  try {
    tensors = copy(c.tensors);
    groups = copy(plan.groups);
    tiles = copy(c.tiles);
    parts = copy(c.parts);
    chunks = copy(c.chunks);
    vectors = copy(c.vectors);
    pieces = copy(c.pieces);
    norms = copy(c.norms);
    unshared = copy(c.unshared);
    soon_bytes = bytes_of(c.vectors) + std::min(bytes_of(c.pieces), kFirstPieces);
  } catch (...) {
    cudaFree(memory_);
    throw;
  }
}

Tables::~Tables() {
  int before = 0;
  if (cudaGetDevice(&before) != cudaSuccess || cudaSetDevice(device_) != cudaSuccess) return;
  cudaFree(memory_);
  cudaSetDevice(before);
}

}  // namespace came::cuda
