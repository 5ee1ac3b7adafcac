// What the data side hands to a model: one micro-batch of tokens, whatever the objective.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lab {

/// B sequences.  Everything is int64 and contiguous, made on the CPU; what an objective does not use is undefined.
/// Sequences are packed, so there is no padding and no attention mask.
struct Batch {
  at::Tensor input;          ///< [B, T] tokens; T5: the encoder's.
  at::Tensor segments;       ///< [B, T] 0 or 1: which sentence a token of BERT is in.
  at::Tensor decoder_input;  ///< [B, S] tokens of T5's decoder.
  at::Tensor positions;      ///< [N] where targets are, in the flattened [B * T] (T5: [B * S]), ascending; undefined:
                             ///< everywhere, N = B * T.
  at::Tensor targets;        ///< [N] the tokens to predict there.
  at::Tensor next;           ///< [B] 0: the second sentence follows the first, 1: it is another document's.

  /// How many sequences.
  [[nodiscard]] int64_t sequences() const { return input.size(0); }
  /// How many tokens are to be predicted; known on the host, so that nothing waits for a GPU.
  [[nodiscard]] int64_t predicted() const { return targets.numel(); }
  /// How many tokens the model reads.
  [[nodiscard]] int64_t tokens() const { return input.numel() + (decoder_input.defined() ? decoder_input.numel() : 0); }
  /// The same on another device; copies of pinned memory do not wait.
  [[nodiscard]] Batch to(at::Device device) const;
};

}  // namespace lab
