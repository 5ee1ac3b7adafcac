// Batches on another device.
#include "data/batch.hpp"

namespace lab {

Batch Batch::to(at::Device device) const {
  const auto moved = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(device, tensor.scalar_type(), /*non_blocking=*/tensor.is_pinned()) : tensor;
  };
  return {moved(input), moved(segments), moved(decoder_input), moved(positions), moved(targets), moved(next)};
}

}  // namespace lab
