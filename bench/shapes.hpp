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

/// GPT-2, tied embeddings counted once, matrices [in, out] as its authors store them.
inline Shapes gpt2(int64_t width, int layers) {
  Shapes shapes{{50257, width}, {1024, width}};
  const auto add = [&](const Shapes& more) { shapes.insert(shapes.end(), more.begin(), more.end()); };
  for (int layer = 0; layer < layers; ++layer) {
    add({{width}, {width}, {width, 3 * width}, {3 * width}, {width, width}, {width}});      // attention
    add({{width}, {width}, {width, 4 * width}, {4 * width}, {4 * width, width}, {width}});  // feed-forward
  }
  add({{width}, {width}});
  return shapes;
}

/// 148 tensors, 124.4 M parameters.
inline Shapes gpt2_small() { return gpt2(768, 12); }

/// 292 tensors, 354.8 M parameters.
inline Shapes gpt2_medium() { return gpt2(1024, 24); }

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

/// Llama, embedding and output apart.  Heads of keys and values may be fewer than those of queries.
inline Shapes llama(int64_t hidden, int64_t inner, int64_t keys, int layers) {
  constexpr int64_t kVocabulary = 32000;
  Shapes shapes{{kVocabulary, hidden}};
  const auto add = [&](const Shapes& more) { shapes.insert(shapes.end(), more.begin(), more.end()); };
  for (int layer = 0; layer < layers; ++layer) {
    add({{hidden, hidden}, {keys, hidden}, {keys, hidden}, {hidden, hidden}});  // attention
    add({{inner, hidden}, {inner, hidden}, {hidden, inner}});                   // gate, up, down
    add({{hidden}, {hidden}});                                                  // norms
  }
  add({{hidden}, {kVocabulary, hidden}});
  return shapes;
}

/// 291 tensors, 6.74 G parameters.
inline Shapes llama_7b() { return llama(4096, 11008, 4096, 32); }

/// Llama 2 70B, 8 heads of keys and values: 723 tensors, 68.98 G parameters.
inline Shapes llama_70b() { return llama(8192, 28672, 8 * 128, 80); }

inline std::vector<Model> models() {
  return {{"bert_large", bert_large()}, {"gpt2_small", gpt2_small()}, {"gpt2_medium", gpt2_medium()}, {"unet", unet()},
          {"small", small()},           {"llama_7b", llama_7b()},     {"llama_70b", llama_70b()}};
}

}  // namespace came::bench
