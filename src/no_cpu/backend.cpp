// Stands in for src/cpu/ in builds without it.
#include "core/backend.hpp"
#include "core/message.hpp"

namespace came::core {

const Backend& cpu_backend() {
  fail(Status::unsupported, "backend: cpu given, but this libcame was built without it; expected auto or reference");
}

const Backend& host_backend() { return reference_backend(); }

}  // namespace came::core
