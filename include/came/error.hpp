// Errors of the C++ interface: a status and a message that names the argument, what was given, what was expected.
#pragma once

#if __cplusplus < 202002L
#error "the C++ interface of came needs C++20; came.h serves C and older C++"
#endif

#include <stdexcept>
#include <string>

#include "came/came.h"

namespace came {

/// Why a call failed; the same values as came_status.
enum class Status : came_status {
  ok = CAME_STATUS_OK,                              ///< Done.
  invalid_argument = CAME_STATUS_INVALID_ARGUMENT,  ///< An argument, option or tensor is not as expected.
  unsupported = CAME_STATUS_UNSUPPORTED,            ///< This build or backend cannot do it.
  abi_mismatch = CAME_STATUS_ABI_MISMATCH,          ///< A struct_size the library does not know.
  out_of_memory = CAME_STATUS_OUT_OF_MEMORY,        ///< The host ran out of memory.
  internal = CAME_STATUS_INTERNAL,                  ///< A defect of the library.
  device = CAME_STATUS_DEVICE,                      ///< The device or its driver refused.
};

/// What every function of the C++ interface throws.
class Error : public std::runtime_error {
 public:
  /// An error with this status and message.
  Error(Status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  /// Why the call failed.
  [[nodiscard]] Status status() const noexcept { return status_; }

 private:
  Status status_;
};

/// Throws Error if a call of the C interface failed.
inline void check(came_status status) {
  if (status != CAME_STATUS_OK) throw Error(static_cast<Status>(status), came_error_message());
}

}  // namespace came
