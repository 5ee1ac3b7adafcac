// Sequences and targets of partners, without waiting for the device they are on.
#include "models/mixup.hpp"

#include <ATen/ATen.h>

#include "error.hpp"

namespace lab {
namespace {

bool is_none(const Mix* mix) { return mix == nullptr || mix->lambda == 1; }

void check(const Mix& mix, int64_t sequences) {
  if (!(mix.lambda >= 0 && mix.lambda <= 1)) fail("mix: lambda is {}, expected a number from 0 to 1", mix.lambda);
  if (!mix.partner.defined() || mix.partner.dim() != 1 || mix.partner.size(0) != sequences) {
    fail("mix: partner has {} elements, expected one for each of {} sequences",
         mix.partner.defined() ? mix.partner.numel() : 0, sequences);
  }
}

at::Tensor rows(const at::Tensor& x, const at::Tensor& index) { return x.defined() ? x.index_select(0, index) : x; }

}  // namespace

Batch reordered(const Batch& batch, const at::Tensor& partner) {
  const int64_t sequences = batch.sequences();
  const int64_t length = (batch.decoder_input.defined() ? batch.decoder_input : batch.input).size(1);
  Batch result;
  result.input = rows(batch.input, partner);
  result.segments = rows(batch.segments, partner);
  result.decoder_input = rows(batch.decoder_input, partner);
  result.next = rows(batch.next, partner);
  if (!batch.positions.defined()) {
    result.targets = rows(batch.targets.view({sequences, length}), partner).flatten();
    return result;
  }
  // Sequences differ in how many targets they have, so that the targets stay in their order and the positions move:
  // what was in sequence partner[b] is in b.
  const at::Tensor place = at::empty_like(partner).scatter_(0, partner, at::arange(sequences, partner.options()));
  const at::Tensor sequence = batch.positions.div(length, "floor");
  result.positions = place.index_select(0, sequence) * length + (batch.positions - sequence * length);
  result.targets = batch.targets;
  return result;
}

at::Tensor mixed(const at::Tensor& x, const Mix* mix) {
  if (is_none(mix)) return x;
  check(*mix, x.size(0));
  return at::lerp(x.index_select(0, mix->partner), x, mix->lambda);
}

Loss mixed_loss(const Batch& batch, const Mix* mix, const std::function<Loss(const Batch&)>& loss) {
  if (is_none(mix)) return loss(batch);
  const Loss partners = loss(reordered(batch, mix->partner));
  if (mix->lambda == 0) return partners;
  const Loss own = loss(batch);
  const auto total = [&](const at::Tensor& mine, const at::Tensor& theirs) {
    return mine.defined() ? mix->lambda * mine + (1 - mix->lambda) * theirs : mine;
  };
  return {total(own.tokens, partners.tokens), total(own.next, partners.next), own.correct};
}

}  // namespace lab
