// Deleting a folder with all that is in it.
//
// Not by std::filesystem::remove_all: libtorch shows its users the one that it was built with, which is found before
// that of the standard library and crashes where the two are of different versions.
#pragma once

#include <ftw.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace lab {

/// Deletes it; no error where there is none.  Links are deleted, not followed.
inline std::error_code remove_folder(const std::filesystem::path& folder) {
  constexpr int kOpenFolders = 16;
  const auto remove = [](const char* path, const struct stat*, int, FTW*) { return std::remove(path); };
  if (nftw(folder.c_str(), remove, kOpenFolders, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return {};
  return {errno, std::generic_category()};
}

}  // namespace lab
