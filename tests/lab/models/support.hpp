// What the tests of the models share: small models of every family and batches for them.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "error.hpp"
#include "models/model.hpp"

namespace lab_test {

using lab::Batch, lab::Loss, lab::Mix, lab::Model, lab::ModelConfig;

inline constexpr int64_t kVocabulary = 59, kLength = 12, kDecoded = 7;

/// The smallest size of each family, with few tokens to know; BERT with both heads.
inline ModelConfig small_config(const std::string& family) {
  ModelConfig config = lab::model_config(family == "mlp" ? "mlp" : family + "-tiny");
  config.vocabulary = kVocabulary;
  config.next_sentence = family == "bert";
  return config;
}

inline const std::vector<std::string>& families() {
  static const std::vector<std::string> all{"bert", "gpt2", "t5", "mlp"};
  return all;
}

inline std::shared_ptr<Model> made(const ModelConfig& config, uint64_t seed = 1) {
  auto model = lab::make_model(config);
  at::manual_seed(seed);
  model->initialize();
  return model;
}

/// Sequences with targets as the family's data has them: everywhere, or a different number in each sequence.
inline Batch some_batch(const std::string& family, int64_t sequences, uint64_t seed = 5) {
  at::manual_seed(seed);
  const auto tokens = [](int64_t rows, int64_t columns) {
    return at::randint(kVocabulary, {rows, columns}, at::kLong);
  };
  Batch batch;
  batch.input = tokens(sequences, kLength);
  if (family == "t5") batch.decoder_input = tokens(sequences, kDecoded);
  const int64_t places = sequences * (family == "t5" ? kDecoded : kLength);
  if (family == "bert") {
    batch.segments = at::randint(2, {sequences, kLength}, at::kLong);
    batch.next = at::randint(2, {sequences}, at::kLong);
    batch.positions = (at::rand({places}) < 0.3).nonzero().flatten();
  }
  batch.targets = tokens(1, batch.positions.defined() ? batch.positions.numel() : places).flatten();
  return batch;
}

/// Sequences begin .. begin + count - 1.
inline Batch piece_of(const Batch& batch, int64_t begin, int64_t count) {
  const auto rows = [&](const at::Tensor& x) { return x.defined() ? x.narrow(0, begin, count) : x; };
  Batch piece{rows(batch.input), rows(batch.segments), rows(batch.decoder_input), {}, {}, rows(batch.next)};
  const int64_t length = (batch.decoder_input.defined() ? batch.decoder_input : batch.input).size(1);
  if (!batch.positions.defined()) {
    piece.targets = batch.targets.narrow(0, begin * length, count * length);
    return piece;
  }
  const at::Tensor here =
      at::logical_and(batch.positions >= begin * length, batch.positions < (begin + count) * length);
  piece.positions = batch.positions.masked_select(here) - begin * length;
  piece.targets = batch.targets.masked_select(here);
  return piece;
}

inline double total(const Loss& loss) {
  return loss.tokens.item<double>() + (loss.next.defined() ? loss.next.item<double>() : 0);
}

/// Gradients of the loss by the parameters' names.
inline std::map<std::string, at::Tensor> gradients(Model& model, const Batch& batch, const Mix* mix = nullptr) {
  model.zero_grad();
  const Loss loss = model.loss(batch, mix);
  (loss.next.defined() ? loss.tokens + loss.next : loss.tokens).backward();
  std::map<std::string, at::Tensor> result;
  for (const auto& item : model.named_parameters()) result[item.key()] = item.value().grad().clone();
  return result;
}

/// Whether two tensors have the same dtype, shape and bits.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

/// |a - b| / |b| in the Euclidean norm.
inline double distance(const at::Tensor& a, const at::Tensor& b) {
  const double norm = b.to(at::kDouble).norm().item<double>();
  return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>() / (norm > 0 ? norm : 1);
}

/// The same for gradients, the largest of all, and whose it is.  A bias of BERT's keys adds the same to all scores of a
/// query: its gradient is 0 but for rounding of what is summed up, whose size the query's bias shows.
inline std::pair<double, std::string> farthest(const std::map<std::string, at::Tensor>& found,
                                               const std::map<std::string, at::Tensor>& expected) {
  std::pair<double, std::string> result;
  for (const auto& [name, gradient] : expected) {
    double far = distance(found.at(name), gradient);
    if (const size_t at = name.find("key.bias"); at != std::string::npos) {
      std::string query = name;
      query.replace(at, 3, "query");
      far *= (gradient.norm() / expected.at(query).norm()).item<double>();
    }
    result = std::max(result, {far, name});
  }
  return result;
}

/// The message of the Error that `act` throws; a failure if it throws none.
template <class Act>
std::string error_of(Act act) {
  try {
    act();
  } catch (const lab::Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no lab::Error was thrown";
  return "";
}

}  // namespace lab_test
