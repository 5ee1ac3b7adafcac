// Parameter shapes of real models: the one list behind memory tables and benchmarks, in Python too (came_memory
// --shapes).
#pragma once

#include <cstdint>
#include <vector>

namespace came::bench {

using Shapes = std::vector<std::vector<int64_t>>;

struct Model {
  const char* name;
  Shapes shapes;
};

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

/// GPT-2 small, tied embeddings counted once, matrices [in, out] as its authors store them: 148 tensors, 124.4 M
/// parameters.
inline Shapes gpt2_small() {
  constexpr int64_t kWidth = 768;
  Shapes shapes{{50257, kWidth}, {1024, kWidth}};
  const auto add = [&](const Shapes& more) { shapes.insert(shapes.end(), more.begin(), more.end()); };
  for (int layer = 0; layer < 12; ++layer) {
    add({{kWidth}, {kWidth}, {kWidth, 3 * kWidth}, {3 * kWidth}, {kWidth, kWidth}, {kWidth}});      // attention
    add({{kWidth}, {kWidth}, {kWidth, 4 * kWidth}, {4 * kWidth}, {4 * kWidth, kWidth}, {kWidth}});  // feed-forward
  }
  add({{kWidth}, {kWidth}});
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

/// Many tensors that each fit a cache: what a step costs per tensor, not per element.
inline Shapes small() { return Shapes(1000, {64, 64}); }

inline std::vector<Model> models() {
  return {{"bert_large", bert_large()}, {"gpt2_small", gpt2_small()}, {"unet", unet()}, {"small", small()}};
}

}  // namespace came::bench
