// Options: defaults, validation, and setting by name.  One table names every option, its range and its users.
#pragma once

#include <string>

#include "came/options.hpp"

namespace came::core {

/// Throws unless `algorithm` is one.
Algorithm checked_algorithm(came_algorithm algorithm);

/// The defaults of an optimizer.
came_options default_options(Algorithm algorithm);

/// Throws unless every option is in range and known to the optimizer; `what` names the group in the message.
void validate_options(const came_options& options, const std::string& what);

/// Sets the option `name` from text.
void set_option(came_options& options, const std::string& name, const std::string& value);

}  // namespace came::core
