// What a plan's tables hold: made on the host, with or without a device.
#pragma once

#include <vector>

#include "cuda/resident.hpp"
#include "cuda/tables.hpp"

namespace came::cuda {

struct Content {
  std::vector<TensorTable> tensors;
  std::vector<Route> routes;
  std::vector<Part> tiles;
  std::vector<Part> parts;
  std::vector<Chunk> chunks;
  std::vector<VectorTable> vectors;
  std::vector<VectorTable> unshared;  ///< The same, each of one block; empty where they all are.
  std::vector<Launch> launches[kPhases];
  std::vector<PieceTable> pieces;
  std::vector<Range> norms;  ///< Where squared norms lie in the reduction buffer.
  Residents residents;
  int64_t sets = 0;
};

Content content_of(const core::Plan& plan);

inline bool is_adam(const core::Plan& plan) {
  return plan.algorithm == Algorithm::adam || plan.algorithm == Algorithm::adamw;
}

}  // namespace came::cuda
