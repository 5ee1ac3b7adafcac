// The phases of all optimizers.
#pragma once

namespace came::core {

/// What a phase does.  Which ones an optimizer has: src/core/optimizers/.
enum class PhaseKind {
  norm,        ///< Squared norm of the gradient, for max_grad_norm.
  moments,     ///< Adam, LAMB: both moments; LAMB: norms.
  statistics,  ///< CAME, Adafactor: row and column statistics of the squared gradient.
  rms,         ///< CAME, Adafactor, where a matrix is split both ways: RMS of the update.
  momentum,    ///< CAME, Adafactor: momentum; CAME: row and column statistics of the instability.
  cover,       ///< SM3: maxima over rows and columns.
  agreement,   ///< SM3, cautious: how many elements agree with the gradient.
  apply,       ///< Writes the parameters.
};

const char* phase_name(PhaseKind kind);

}  // namespace came::core
