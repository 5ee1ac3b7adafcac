// Options in archives, their inheritance and comparison: all by one table of the fields of came_options.
#include "came/torch/options.hpp"

#include <torch/serialize/archive.h>

#include <array>
#include <string>
#include <variant>

namespace came::torch {
namespace {

using Member = std::variant<double came_options::*, uint64_t came_options::*, int32_t came_options::*>;

struct Field {
  const char* name;
  Member member;
};

// Every field but struct_size and algorithm.
constexpr std::array<Field, 24> kFields{{
    {"lr", &came_options::lr},
    {"beta1", &came_options::beta1},
    {"beta2", &came_options::beta2},
    {"beta3", &came_options::beta3},
    {"eps", &came_options::eps},
    {"eps1", &came_options::eps1},
    {"eps2", &came_options::eps2},
    {"clip_threshold", &came_options::clip_threshold},
    {"weight_decay", &came_options::weight_decay},
    {"max_grad_norm", &came_options::max_grad_norm},
    {"beta2_decay", &came_options::beta2_decay},
    {"seed", &came_options::seed},
    {"view", &came_options::view},
    {"momentum_dtype", &came_options::momentum_dtype},
    {"second_moment_dtype", &came_options::second_moment_dtype},
    {"bias_correction", &came_options::bias_correction},
    {"confidence_1d", &came_options::confidence_1d},
    {"cautious", &came_options::cautious},
    {"stochastic_rounding", &came_options::stochastic_rounding},
    {"maximize", &came_options::maximize},
    {"relative_step", &came_options::relative_step},
    {"warmup_init", &came_options::warmup_init},
    {"scale_parameter", &came_options::scale_parameter},
    {"lr_in_momentum", &came_options::lr_in_momentum},
}};
static_assert(sizeof(came_options) == 8 + 11 * sizeof(double) + sizeof(uint64_t) + 12 * sizeof(int32_t),
              "a new field of came_options belongs into kFields");

// Calls visit(name, pointer to member) for every field.
template <class Visit>
void for_each_field(Visit visit) {
  for (const Field& field : kFields) {
    std::visit([&](auto member) { visit(field.name, member); }, field.member);
  }
}

// Archives know signed integers only; seeds keep their bits.
c10::IValue to_archive(double value) { return {value}; }
c10::IValue to_archive(uint64_t value) { return {static_cast<int64_t>(value)}; }
c10::IValue to_archive(int32_t value) { return {static_cast<int64_t>(value)}; }

template <class T>
T from_archive(const std::string& name, const c10::IValue& value) {
  const bool fits = std::is_same_v<T, double> ? value.isDouble() : value.isInt();
  if (!fits) {
    throw Error(Status::invalid_argument, "archive: option " + name + " is " + value.tagKind() + ", expected " +
                                              (std::is_same_v<T, double> ? "Double" : "Int"));
  }
  if constexpr (std::is_same_v<T, double>) return value.toDouble();
  return static_cast<T>(value.toInt());
}

}  // namespace

void Options::set(const std::string& name, const std::string& value) {
  values_.set(name, value);
  for_each_field([&](const char* field, auto member) {
    if (name == field) given_ |= bit_of(&(values_.*member));
  });
}

void Options::inherit(const Options& defaults) {
  for_each_field([&](const char*, auto member) {
    if ((given_ & bit_of(&(values_.*member))) == 0) values_.*member = defaults.values_.*member;
  });
}

bool Options::same(const came_options& a, const came_options& b) {
  bool equal = a.algorithm == b.algorithm;
  for_each_field([&](const char*, auto member) { equal = equal && a.*member == b.*member; });
  return equal;
}

void Options::serialize(::torch::serialize::OutputArchive& archive) const {
  archive.write("algorithm", c10::IValue(values_.word()));
  for_each_field([&](const char* name, auto member) { archive.write(name, to_archive(values_.*member)); });
}

void Options::serialize(::torch::serialize::InputArchive& archive) {
  c10::IValue word;
  if (!archive.try_read("algorithm", word) || !word.isString()) {
    throw Error(Status::invalid_argument,
                "archive: no options of came's optimizers, expected those of " + values_.word());
  }
  if (word.toStringRef() != values_.word()) {
    throw Error(Status::invalid_argument,
                "archive: options of " + word.toStringRef() + ", expected those of " + values_.word());
  }
  came::Options read = values_;
  for_each_field([&](const char* name, auto member) {
    using T = std::remove_reference_t<decltype(read.*member)>;
    c10::IValue value;
    if (!archive.try_read(name, value)) {
      throw Error(Status::invalid_argument,
                  std::string("archive: no option ") + name + ", expected all of " + values_.word() + "'s");
    }
    read.*member = from_archive<T>(name, value);
  });
  read.validate();
  values_ = read;
  given_ = ~uint64_t{0};
  replaced_ = false;
}

}  // namespace came::torch
