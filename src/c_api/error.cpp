// Status and message of the C interface.
#include <cstdio>
#include <new>

#include "c_api/handle.hpp"

namespace came::c_api {
namespace {

// A fixed buffer: reporting that memory ran out must not need memory.
thread_local char message[2048] = "";

came_status remember(Status status, const char* text) noexcept {
  std::snprintf(message, sizeof message, "%s", text);
  return static_cast<came_status>(status);
}

}  // namespace

came_status report() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return remember(error.status(), error.what());
  } catch (const std::bad_alloc&) {
    return remember(Status::out_of_memory, "out of memory");
  } catch (const std::exception& error) {
    return remember(Status::internal, error.what());
  } catch (...) {
    return remember(Status::internal, "unknown exception");
  }
}

}  // namespace came::c_api

extern "C" {

const char* came_error_message(void) { return came::c_api::message; }

const char* came_status_name(came_status status) {
  switch (status) {
    case CAME_STATUS_OK:
      return "ok";
    case CAME_STATUS_INVALID_ARGUMENT:
      return "invalid argument";
    case CAME_STATUS_UNSUPPORTED:
      return "unsupported";
    case CAME_STATUS_ABI_MISMATCH:
      return "ABI mismatch";
    case CAME_STATUS_OUT_OF_MEMORY:
      return "out of memory";
    case CAME_STATUS_INTERNAL:
      return "internal error";
    case CAME_STATUS_DEVICE:
      return "device error";
    default:
      return "unknown status";
  }
}

int32_t came_abi_version(void) { return CAME_ABI_VERSION; }

const char* came_version(void) { return CAME_VERSION_STRING; }

}  // extern "C"
