// Configs to and from transformers' config.json.  Ids of special tokens are those of the lab's tokenizer.  A file that
// asks for what our models do not do is refused: its weights would load and mean something else.
#include "models/huggingface.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "data/tokenizer.hpp"
#include "error.hpp"

namespace lab {
namespace {

using nlohmann::json;

json bert_fields(const ModelConfig& c) {
  return {{"architectures", {c.next_sentence ? "BertForPreTraining" : "BertForMaskedLM"}},
          {"vocab_size", c.vocabulary},
          {"max_position_embeddings", c.positions},
          {"num_hidden_layers", c.layers},
          {"hidden_size", c.width},
          {"num_attention_heads", c.heads},
          {"intermediate_size", c.inner},
          {"hidden_dropout_prob", c.dropout},
          {"attention_probs_dropout_prob", c.dropout},
          {"hidden_act", "gelu"},
          {"type_vocab_size", 2},
          {"layer_norm_eps", 1e-12},
          {"initializer_range", 0.02},
          {"pad_token_id", kPad}};
}

json gpt2_fields(const ModelConfig& c) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"vocab_size", c.vocabulary},
          {"n_positions", c.positions},
          {"n_layer", c.layers},
          {"n_embd", c.width},
          {"n_head", c.heads},
          {"n_inner", c.inner},
          {"embd_pdrop", c.dropout},
          {"attn_pdrop", c.dropout},
          {"resid_pdrop", c.dropout},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", 1e-5},
          {"initializer_range", 0.02},
          {"bos_token_id", kEnd},
          {"eos_token_id", kEnd}};
}

json t5_fields(const ModelConfig& c) {
  return {{"architectures", {"T5ForConditionalGeneration"}},
          {"vocab_size", c.vocabulary},
          {"n_positions", c.positions},
          {"num_layers", c.layers},
          {"num_decoder_layers", c.layers},
          {"d_model", c.width},
          {"num_heads", c.heads},
          {"d_kv", c.head_width},
          {"d_ff", c.inner},
          {"dropout_rate", c.dropout},
          {"feed_forward_proj", "relu"},
          {"relative_attention_num_buckets", 32},
          {"relative_attention_max_distance", 128},
          {"layer_norm_epsilon", 1e-6},
          {"initializer_factor", 1.0},
          {"is_encoder_decoder", true},
          {"decoder_start_token_id", kPad},
          {"eos_token_id", kEnd},
          {"pad_token_id", kPad}};
}

// transformers has no such class.
json mlp_fields(const ModelConfig& c) {
  return {{"architectures", json::array()},
          {"vocab_size", c.vocabulary},
          {"context", c.positions},
          {"embedding_size", c.width},
          {"hidden_size", c.inner}};
}

// Reads fields and names them where they do not fit.
class Reader {
 public:
  explicit Reader(const json& fields) : fields_(fields) {
    if (!fields.is_object()) fail("config.json: it is no object, expected one with the field model_type");
  }

  [[nodiscard]] std::string text(const char* name) const {
    const json& value = field(name);
    if (!value.is_string()) fail("config.json: {} is {}, expected text", name, value.dump());
    return value.get<std::string>();
  }

  [[nodiscard]] int64_t size(const char* name) const {
    const json& value = field(name);
    if (!value.is_number_integer() || value.get<int64_t>() <= 0) {
      fail("config.json: {} is {}, expected a positive integer", name, value.dump());
    }
    return value.get<int64_t>();
  }

  /// `otherwise` where the field is absent or null.
  [[nodiscard]] int64_t size(const char* name, int64_t otherwise) const { return has(name) ? size(name) : otherwise; }

  /// The one share that all `names` have; transformers' default is 0.1.
  [[nodiscard]] double dropout(std::initializer_list<const char*> names) const {
    std::set<double> shares;
    for (const char* name : names) {
      if (has(name) && !field(name).is_number()) {
        fail("config.json: {} is {}, expected a number", name, field(name).dump());
      }
      shares.insert(has(name) ? field(name).get<double>() : 0.1);
    }
    if (shares.size() == 1) return *shares.begin();
    fail("config.json: {} are {}, expected one and the same share", fmt::join(names, ", "), fmt::join(shares, ", "));
  }

  /// Refuses fields with other values than these; absent ones have them.
  void must_be(const json& all) const {
    for (const auto& [name, expected] : all.items()) {
      if (has(name.c_str()) && fields_.at(name) != expected) {
        fail("config.json: {} is {}, expected {}: such a model is not supported", name, fields_.at(name).dump(),
             expected.dump());
      }
    }
  }

  [[nodiscard]] bool has(const char* name) const { return fields_.contains(name) && !fields_.at(name).is_null(); }

  [[nodiscard]] bool has_architecture(const char* name) const {
    if (!has("architectures")) return false;
    const json& all = field("architectures");
    return all.is_array() && std::find(all.begin(), all.end(), json(name)) != all.end();
  }

 private:
  [[nodiscard]] const json& field(const char* name) const {
    if (!fields_.contains(name)) fail("config.json: {} is missing, expected for this model_type", name);
    return fields_.at(name);
  }

  const json& fields_;
};

ModelConfig read_bert(const Reader& r) {
  r.must_be({{"hidden_act", "gelu"},
             {"type_vocab_size", 2},
             {"layer_norm_eps", 1e-12},
             {"position_embedding_type", "absolute"},
             {"is_decoder", false},
             {"tie_word_embeddings", true},
             {"pad_token_id", kPad}});
  ModelConfig c;
  c.objective = Objective::masked;
  c.positions = r.size("max_position_embeddings");
  c.layers = r.size("num_hidden_layers");
  c.width = r.size("hidden_size");
  c.heads = r.size("num_attention_heads");
  c.head_width = c.width / c.heads;
  c.inner = r.size("intermediate_size");
  c.dropout = r.dropout({"hidden_dropout_prob", "attention_probs_dropout_prob"});
  c.next_sentence = r.has_architecture("BertForPreTraining");
  return c;
}

ModelConfig read_gpt2(const Reader& r) {
  r.must_be({{"activation_function", "gelu_new"},
             {"layer_norm_epsilon", 1e-5},
             {"scale_attn_weights", true},
             {"scale_attn_by_inverse_layer_idx", false},
             {"tie_word_embeddings", true},
             {"add_cross_attention", false}});
  ModelConfig c;
  c.objective = Objective::causal;
  c.positions = r.size("n_positions");
  c.layers = r.size("n_layer");
  c.width = r.size("n_embd");
  c.heads = r.size("n_head");
  c.head_width = c.width / c.heads;
  c.inner = r.size("n_inner", 4 * c.width);
  c.dropout = r.dropout({"embd_pdrop", "attn_pdrop", "resid_pdrop"});
  return c;
}

ModelConfig read_t5(const Reader& r) {
  r.must_be({{"feed_forward_proj", "relu"},
             {"relative_attention_num_buckets", 32},
             {"layer_norm_epsilon", 1e-6},
             {"relative_attention_max_distance", 128},
             {"tie_word_embeddings", true},
             {"scale_decoder_outputs", true}});
  ModelConfig c;
  c.objective = Objective::spans;
  c.positions = r.size("n_positions", 512);
  c.layers = r.size("num_layers");
  r.must_be({{"num_decoder_layers", c.layers}});
  c.width = r.size("d_model");
  c.heads = r.size("num_heads");
  c.head_width = r.size("d_kv");
  c.inner = r.size("d_ff");
  c.dropout = r.dropout({"dropout_rate"});
  return c;
}

ModelConfig read_mlp(const Reader& r) {
  ModelConfig c;
  c.objective = Objective::causal;
  c.positions = r.size("context");
  c.width = r.size("embedding_size");
  c.inner = r.size("hidden_size");
  return c;
}

}  // namespace

json huggingface_of(const ModelConfig& config) {
  json fields = config.family == "bert"   ? bert_fields(config)
                : config.family == "gpt2" ? gpt2_fields(config)
                : config.family == "t5"   ? t5_fields(config)
                                          : mlp_fields(config);
  fields["model_type"] = config.family == "mlp" ? "came-mlp" : config.family;
  fields["tie_word_embeddings"] = config.family != "mlp";
  fields["dtype"] = "float32";
  fields["_name_or_path"] = config.name;
  return fields;
}

ModelConfig model_config_of(const json& huggingface) {
  const Reader reader(huggingface);
  const std::string type = reader.text("model_type");
  ModelConfig config;
  if (type == "bert") {
    config = read_bert(reader);
  } else if (type == "gpt2") {
    config = read_gpt2(reader);
  } else if (type == "t5") {
    config = read_t5(reader);
  } else if (type == "came-mlp") {
    config = read_mlp(reader);
  } else {
    fail("config.json: model_type is '{}', expected bert, gpt2, t5 or came-mlp", type);
  }
  config.family = type == "came-mlp" ? "mlp" : type;
  config.name = reader.has("_name_or_path") ? reader.text("_name_or_path") : config.family;
  config.vocabulary = reader.size("vocab_size");
  return config;
}

}  // namespace lab
