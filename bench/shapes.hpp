// Parameter shapes of real models, for benchmarks and memory tables.
#pragma once

#include <cstdint>
#include <vector>

namespace came::bench {

using Shapes = std::vector<std::vector<int64_t>>;

/// BERT-Large with its masked-LM and next-sentence heads, tied embeddings counted once: 398 tensors, 336.2 M
/// parameters.
inline Shapes bert_large() {
  constexpr int64_t kHidden = 1024;
  constexpr int64_t kInner = 4096;
  constexpr int64_t kVocabulary = 30522;
  Shapes shapes{{kVocabulary, kHidden}, {512, kHidden}, {2, kHidden}, {kHidden}, {kHidden}};
  const auto add = [&](const Shapes& more) { shapes.insert(shapes.end(), more.begin(), more.end()); };
  for (int layer = 0; layer < 24; ++layer) {
    for (int projection = 0; projection < 4; ++projection) add({{kHidden, kHidden}, {kHidden}});
    add({{kHidden}, {kHidden}, {kInner, kHidden}, {kInner}, {kHidden, kInner}, {kHidden}, {kHidden}, {kHidden}});
  }
  add({{kHidden, kHidden}, {kHidden}});                                       // pooler
  add({{kVocabulary}, {kHidden, kHidden}, {kHidden}, {kHidden}, {kHidden}});  // masked-LM head
  add({{2, kHidden}, {2}});                                                   // next-sentence head
  return shapes;
}

/// The convolutions of a U-Net of 64 to 512 channels, with 1x1 projections and biases.
inline Shapes unet() {
  Shapes shapes{{64, 4, 3, 3}, {64}};
  const auto block = [&](int64_t in, int64_t out) {
    for (const auto& shape : Shapes{{out, in, 3, 3}, {out}, {out, out, 3, 3}, {out}, {out, in, 1, 1}, {out}}) {
      shapes.push_back(shape);
    }
  };
  for (const int64_t c : {64, 128, 256}) block(c, 2 * c);
  block(512, 512);
  for (const int64_t c : {256, 128, 64}) block(4 * c, c);
  shapes.push_back({4, 64, 3, 3});
  shapes.push_back({4});
  return shapes;
}

}  // namespace came::bench
