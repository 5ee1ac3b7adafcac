// How messages and came_plan_reduction name a phase.
#include "core/phase.hpp"

namespace came::core {

const char* phase_name(PhaseKind kind) {
  switch (kind) {
    case PhaseKind::norm:
      return "norm";
    case PhaseKind::moments:
      return "moments";
    case PhaseKind::statistics:
      return "statistics";
    case PhaseKind::rms:
      return "rms";
    case PhaseKind::momentum:
      return "momentum";
    case PhaseKind::cover:
      return "cover";
    case PhaseKind::agreement:
      return "agreement";
    case PhaseKind::apply:
      return "apply";
  }
  return "";
}

}  // namespace came::core
