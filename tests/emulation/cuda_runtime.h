// The same under its other name.
#pragma once

#include "cuda_runtime_api.h"
