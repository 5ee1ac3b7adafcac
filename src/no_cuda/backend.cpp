// Stands in for src/cuda/ in builds without CUDA.
#include "core/backend.hpp"
#include "core/message.hpp"

namespace came::core {

const Backend& cuda_backend() {
  fail(Status::unsupported, "backend: cuda given, but this libcame was built without CUDA; expected auto or reference");
}

}  // namespace came::core
