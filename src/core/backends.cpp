// Which backend answers to which number.
#include "core/backend.hpp"
#include "core/message.hpp"

namespace came::core {

void prepare(Plan& plan) {
  if (plan.backend->make_tables != nullptr) plan.tables = plan.backend->make_tables(plan);
}

const Backend& find_backend(came_backend backend) {
  switch (backend) {
    case CAME_BACKEND_AUTO:
      return host_backend();
    case CAME_BACKEND_CPU:
      return cpu_backend();
    case CAME_BACKEND_REFERENCE:
      return reference_backend();
    case CAME_BACKEND_CUDA:
      return cuda_backend();
    default:
      invalid("backend: ", backend, " given, expected 0 (auto), 1 (reference), 2 (cuda) or 3 (cpu)");
  }
}

}  // namespace came::core
