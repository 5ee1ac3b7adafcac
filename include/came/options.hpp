// Options of the optimizers.  Fields and their meaning: came_options in came.h.
//
//   came::Options options = came::Options::came();
//   options.lr = 3e-4;
//   options.set("momentum_dtype", "int8");
#pragma once

#include <string>
#include <vector>

#include "came/error.hpp"
#include "came/tensor.hpp"

namespace came {

/// Which optimizer; the same values as came_algorithm.
enum class Algorithm : came_algorithm {
  came = CAME_ALGORITHM_CAME,            ///< CAME.
  adafactor = CAME_ALGORITHM_ADAFACTOR,  ///< Adafactor.
  adam = CAME_ALGORITHM_ADAM,            ///< Adam with L2 weight decay.
  adamw = CAME_ALGORITHM_ADAMW,          ///< Adam with decoupled weight decay.
  lamb = CAME_ALGORITHM_LAMB,            ///< LAMB.
  sm3 = CAME_ALGORITHM_SM3,              ///< SM3-II.
};

/// How a tensor of three or more dimensions is seen as matrices; the same values as came_view.
enum class View : came_view {
  automatic = CAME_VIEW_AUTO,     ///< The one of the two with fewer state elements.
  fold = CAME_VIEW_FOLD,          ///< One matrix [dim0, all the rest].
  last_two = CAME_VIEW_LAST_TWO,  ///< A batch of matrices over the last two dimensions.
};

/// Options of one parameter group.
struct Options : came_options {
  /// The defaults of an optimizer.
  explicit Options(Algorithm which) : came_options(CAME_OPTIONS_INIT) {
    check(came_options_init(this, static_cast<came_algorithm>(which)));
  }
  /// The defaults of the optimizer with this one word, such as "came".
  explicit Options(const std::string& word) : came_options(CAME_OPTIONS_INIT) {
    came_algorithm which = 0;
    check(came_algorithm_find(word.c_str(), &which));
    check(came_options_init(this, which));
  }
  /// Defaults of CAME.
  static Options came() { return Options(Algorithm::came); }
  /// Defaults of Adafactor.
  static Options adafactor() { return Options(Algorithm::adafactor); }
  /// Defaults of Adam.
  static Options adam() { return Options(Algorithm::adam); }
  /// Defaults of AdamW.
  static Options adamw() { return Options(Algorithm::adamw); }
  /// Defaults of LAMB.
  static Options lamb() { return Options(Algorithm::lamb); }
  /// Defaults of SM3.
  static Options sm3() { return Options(Algorithm::sm3); }

  /// Sets an option by its field name from text; returns *this.
  Options& set(const std::string& name, const std::string& value) {
    check(came_options_set(this, name.c_str(), value.c_str()));
    return *this;
  }
  /// Throws unless every option is in its range and known to the optimizer.
  void validate() const { check(came_options_validate(this)); }
  /// The one word of the optimizer.
  [[nodiscard]] std::string word() const {
    const char* name = came_algorithm_name(algorithm);
    return name != nullptr ? name : "";
  }
};

/// The words of all optimizers, in the order of their numbers.
inline std::vector<std::string> algorithm_words() {
  std::vector<std::string> words;
  while (const char* word = came_algorithm_name(static_cast<came_algorithm>(words.size()))) words.emplace_back(word);
  return words;
}

// Arrays of Options are passed to the C interface as they are.
static_assert(sizeof(Options) == sizeof(came_options));

}  // namespace came
