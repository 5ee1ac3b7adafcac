// The whole C++ interface.  Header-only over the C interface, so it works across compilers and standard libraries.
#pragma once

#include "came/error.hpp"
#include "came/factorization.hpp"
#include "came/optimizer.hpp"
#include "came/options.hpp"
#include "came/plan.hpp"
#include "came/tensor.hpp"
