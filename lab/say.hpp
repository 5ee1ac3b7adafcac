// What the program says beside its results.
#pragma once

#include <cstdio>
#include <string>

namespace lab {

/// Writes to stderr.  Where nobody can read it, on a closed terminal or a full disk, work goes on.
inline void say(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace lab
