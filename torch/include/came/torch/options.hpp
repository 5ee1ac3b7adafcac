// What the options of every optimizer share: values of came_options, which of them were given, archives.
//
// A param group keeps what its options were given; the rest comes from the defaults of the optimizer:
//
//   came::torch::CAME optimizer({{weights}, {biases, std::make_unique<CAMEOptions>(CAMEOptions().weight_decay(0))}},
//                               CAMEOptions(1e-3).weight_decay(0.01));
#pragma once

#include <torch/optim/optimizer.h>
#include <came/options.hpp>
#include <memory>
#include <string>

namespace came::torch {

/// Options of one param group, of whichever optimizer.
class Options : public ::torch::optim::OptimizerOptions {
 public:
  /// The same for the core.
  [[nodiscard]] const came::Options& core() const { return values_; }
  /// Sets an option by its name in came_options from text, as came_options_set does.
  void set(const std::string& name, const std::string& value);
  /// Throws unless every option is in its range.
  void validate() const { values_.validate(); }
  /// Takes from `defaults` what was not given here.
  void inherit(const Options& defaults);

  /// Reads all values; throws, and changes none, unless they are those of the same optimizer.
  void serialize(::torch::serialize::InputArchive& archive) override;
  /// Writes all values by their names in came_options.
  void serialize(::torch::serialize::OutputArchive& archive) const override;
  /// The learning rate, for schedulers.
  [[nodiscard]] double get_lr() const override { return values_.lr; }
  /// Sets the learning rate, for schedulers.
  void set_lr(double lr) override { give(&came_options::lr, lr); }

  /// Whether optimizer and all values are the same.
  friend bool operator==(const Options& a, const Options& b) { return same(a.values_, b.values_); }
  /// The same for what the core knows.
  static bool same(const came_options& a, const came_options& b);

 protected:
  explicit Options(Algorithm which) : values_(which) {}

  template <class T>
  void give(T came_options::*field, T value) {
    values_.*field = value;
    given_ |= bit_of(&(values_.*field));
  }
  /// What clone() does to the copy it hands out.
  void note_clone() {
    replaced_ = replaced_ || defaults_;
    defaults_ = false;
  }

 private:
  friend class Optimizer;

  [[nodiscard]] uint64_t bit_of(const void* field) const {
    const auto offset = static_cast<const char*>(field) - reinterpret_cast<const char*>(&values_);
    return uint64_t{1} << (offset / 4);
  }
  static_assert(sizeof(came_options) <= size_t{64} * 4, "one bit per field, which are four bytes at least");

  came::Options values_;
  uint64_t given_ = 0;     // fields that were set
  bool defaults_ = false;  // those of an optimizer
  // libtorch 2.12 and later clone the defaults in place of options whose class they do not know, and say nothing: such
  // a clone is refused by the next step.  Optimizer::add_param_group keeps options, but is not virtual in libtorch.
  bool replaced_ = false;
};

/// Declares an option of the class `Derived` by its name in came_options: a setter that returns *this, a getter.
#define CAME_TORCH_ARG(T, name)                                                        \
  Derived& name(T value) {                                                             \
    this->give(&came_options::name, static_cast<decltype(came_options::name)>(value)); \
    return static_cast<Derived&>(*this);                                               \
  }                                                                                    \
  [[nodiscard]] T name() const { return static_cast<T>(this->core().name); }

/// Options that every optimizer has, as members of its own class.
template <class Self, Algorithm which>
class OptionsOf : public Options {
 public:
  /// The class whose setters return *this.
  using Derived = Self;

  /// The optimizer's defaults.
  OptionsOf() : Options(which) {}
  /// The optimizer's defaults with this learning rate.
  OptionsOf(double lr) : Options(which) { this->lr(lr); }

  CAME_TORCH_ARG(double, lr);                 ///< Learning rate.
  CAME_TORCH_ARG(double, weight_decay);       ///< Decoupled decay; Adam: L2 term.
  CAME_TORCH_ARG(double, max_grad_norm);      ///< Clips by the norm over all parameters; 0: off.
  CAME_TORCH_ARG(uint64_t, seed);             ///< Key of stochastic rounding.
  CAME_TORCH_ARG(DType, momentum_dtype);      ///< Storage of the momentum: automatic, f64, f32, bf16, i8 or i4.
  CAME_TORCH_ARG(bool, cautious);             ///< Drops update elements whose sign is not the gradient's.
  CAME_TORCH_ARG(bool, stochastic_rounding);  ///< Rounds bf16 and f16 parameters and bf16 momentum so.
  CAME_TORCH_ARG(bool, maximize);             ///< Ascends.

  /// A copy.
  [[nodiscard]] std::unique_ptr<OptimizerOptions> clone() const override {
    auto copy = std::make_unique<Self>(static_cast<const Self&>(*this));
    static_cast<OptionsOf&>(*copy).note_clone();
    return copy;
  }
};

}  // namespace came::torch
