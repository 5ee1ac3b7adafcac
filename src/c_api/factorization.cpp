// Equations 2 and 3 of the paper in the C interface.
#include "core/factorization.hpp"

#include "c_api/handle.hpp"

using namespace came::c_api;
namespace core = came::core;

extern "C" {

came_status came_nmf_rank1(const came_tensor* v, const came_tensor* w, const came_tensor* h) {
  return guarded([&] {
    checked_struct(v, "v");
    checked_struct(w, "w");
    checked_struct(h, "h");
    core::nmf_rank1(*v, *w, *h);
  });
}

came_status came_confidence_update(const came_tensor* m, const came_tensor* u, double eps, const came_tensor* out) {
  return guarded([&] {
    checked_struct(m, "m");
    checked_struct(u, "u");
    checked_struct(out, "out");
    core::confidence_update(*m, *u, eps, *out);
  });
}

}  // extern "C"
