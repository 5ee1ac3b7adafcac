// Leaving with a status of one's own, through all destructors.
#pragma once

namespace lab {

/// Thrown when all has been said: main returns the status.
struct Exit {
  int status = 0;
};

}  // namespace lab
