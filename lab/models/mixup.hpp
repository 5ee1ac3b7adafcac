// Mixup (Zhang et al. 2018) for tokens: what is mixed are embeddings, and of targets the losses.
#pragma once

#include <functional>

#include "data/batch.hpp"
#include "models/model.hpp"

namespace lab {

/// The batch whose sequence b is `partner[b]`; `partner` is a permutation.
[[nodiscard]] Batch reordered(const Batch& batch, const at::Tensor& partner);

/// lambda * x + (1 - lambda) * the partners' x; x is [B, ...].  x itself without a mix.  Throws an Error where the mix
/// does not fit.
[[nodiscard]] at::Tensor mixed(const at::Tensor& x, const Mix* mix);

/// lambda * loss(batch) + (1 - lambda) * loss(partners'); a term of weight 0 is not computed.  `correct` counts the
/// sequences' own targets, or the partners' where lambda is 0.  `mixed` has seen the mix before.
[[nodiscard]] Loss mixed_loss(const Batch& batch, const Mix* mix, const std::function<Loss(const Batch&)>& loss);

}  // namespace lab
