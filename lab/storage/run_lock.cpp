// RUN/.lock, locked with flock(2) and holding the process that did.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "error.hpp"
#include "storage/checkpoint.hpp"

namespace lab {
namespace {

std::filesystem::path lock_path(const std::filesystem::path& run) {
  make_folders(run);
  return run / ".lock";
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& run) : run_(run), file_(lock_path(run), O_RDWR | O_CREAT) {
  if (::flock(file_.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) fail("{}: cannot lock this folder: {}", run.string(), std::strerror(errno));
    std::array<std::byte, 64> holder{};
    const size_t size = file_.read(holder);
    const std::string pid(reinterpret_cast<const char*>(holder.data()), size);
    fail("{}: process {} is writing this run: stop it, or choose another folder", run.string(),
         pid.empty() ? "another one" : pid);
  }
  file_.truncate(0);
  file_.append(fmt::format("{}", ::getpid()), 0);
}

}  // namespace lab
