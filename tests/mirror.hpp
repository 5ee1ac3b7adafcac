// Copies of host buffers on a device: what a Trial on a device runs on.
//
// Buffers lie in one allocation, so that one copy moves them all, with at least kGuard bytes of 0xff before, between
// and behind them.  These are NaNs in every type: reading one spoils a result, and writing one is found on download.
// The workspace begins as 0xff, too, so that nobody can rest on its being zero.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "device.hpp"

namespace came::test {

/// Where copies lie on the device.
enum class Placement {
  aligned,  ///< At multiples of 256 bytes, as an allocator would have them.
  odd,      ///< At odd multiples of the element's size.
  mixed,    ///< Some there, some at multiples of 256 bytes.
  apart,    ///< Each in an allocation of its own: tools that watch over allocations see every byte beyond.
};

class Mirror {
 public:
  explicit Mirror(Placement placement) : placement_(placement) {}
  ~Mirror() {
    for (void* memory : owned_) device::release(memory);
  }
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  /// Adds a host buffer; its copy has an address once all are placed.
  void add(void* host, int64_t bytes, int64_t element_size) {
    const auto number = static_cast<int64_t>(pieces_.size());
    int64_t begin = (end_ + kGuard + kAlignment - 1) / kAlignment * kAlignment;
    const bool odd = placement_ == Placement::odd || (placement_ == Placement::mixed && number % 11 == 3);
    if (odd) begin += (2 * (number % 4) + 1) * element_size;
    pieces_.push_back({static_cast<char*>(host), bytes, begin, nullptr});
    end_ = begin + bytes;
  }
  /// Allocates everything, and a workspace and room for scalars, which are not copied with the rest.
  void place(int64_t workspace_bytes, int64_t scalar_bytes) {
    const bool apart = placement_ == Placement::apart;
    const int64_t workspace = (end_ + kGuard + kAlignment - 1) / kAlignment * kAlignment;
    staging_.assign(static_cast<size_t>(apart ? 0 : workspace), kFill);
    if (apart) {
      for (Piece& piece : pieces_) piece.device = own(piece.bytes);
      workspace_ = own(workspace_bytes);
    } else {
      arena_ = own(workspace + workspace_bytes + kGuard);
      for (Piece& piece : pieces_) piece.device = arena_ + piece.begin;
      workspace_ = arena_ + workspace;
      behind_ = workspace_ + workspace_bytes;
      device::fill(behind_, kFill, kGuard);
    }
    device::fill(workspace_, kFill, workspace_bytes);
    scalars_ = own(scalar_bytes);
  }

  void upload() {
    if (arena_ == nullptr) {
      for (const Piece& piece : pieces_) device::upload(piece.device, piece.host, piece.bytes);
      return;
    }
    for (const Piece& piece : pieces_) copy(staging_.data() + piece.begin, piece.host, piece.bytes);
    device::upload(arena_, staging_.data(), static_cast<int64_t>(staging_.size()));
  }
  void download() {
    if (arena_ == nullptr) {
      for (const Piece& piece : pieces_) device::download(piece.host, piece.device, piece.bytes);
      return;
    }
    device::download(staging_.data(), arena_, static_cast<int64_t>(staging_.size()));
    char behind[kGuard];
    device::download(behind, behind_, kGuard);
    EXPECT_TRUE(untouched(behind, behind + kGuard)) << "written behind the workspace";
    int64_t next = 0;
    for (const Piece& piece : pieces_) {
      EXPECT_TRUE(untouched(staging_.data() + next, staging_.data() + piece.begin))
          << "written before buffer " << &piece - pieces_.data() << " of " << pieces_.size();
      copy(piece.host, staging_.data() + piece.begin, piece.bytes);
      next = piece.begin + piece.bytes;
    }
    EXPECT_TRUE(untouched(staging_.data() + next, staging_.data() + staging_.size())) << "written before the workspace";
  }
  /// Copies one buffer alone.
  void upload(const void* host) {
    for (const Piece& piece : pieces_) {
      if (piece.host == host) device::upload(piece.device, piece.host, piece.bytes);
    }
  }

  /// The copy of a host buffer; what is no buffer of this mirror is given back as it is.  `hint` is its likely number.
  [[nodiscard]] void* find(void* host, size_t hint) const {
    if (host == nullptr) return nullptr;
    if (hint < pieces_.size() && pieces_[hint].host == host) return pieces_[hint].device;
    const auto same = [&](const Piece& piece) { return piece.host == host; };
    const auto piece = std::find_if(pieces_.begin(), pieces_.end(), same);
    return piece == pieces_.end() ? host : piece->device;
  }
  [[nodiscard]] char* workspace() const { return workspace_; }
  [[nodiscard]] char* scalars() const { return scalars_; }
  /// The allocation with all buffers but the workspace; not where they lie apart.
  [[nodiscard]] const char* arena() const { return arena_; }
  [[nodiscard]] int64_t arena_bytes() const { return static_cast<int64_t>(staging_.size()); }

 private:
  static constexpr int64_t kGuard = 256;
  static constexpr int64_t kAlignment = 256;
  static constexpr char kFill = '\xff';

  struct Piece {
    char* host;
    int64_t bytes;
    int64_t begin;  ///< In the arena.
    char* device;
  };

  static bool untouched(const char* begin, const char* end) {
    return std::all_of(begin, end, [](char byte) { return byte == kFill; });
  }
  static void copy(char* to, const char* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  char* own(int64_t bytes) {
    owned_.push_back(device::allocate(bytes));
    return static_cast<char*>(owned_.back());
  }

  Placement placement_;
  std::vector<Piece> pieces_;
  int64_t end_ = 0;
  std::vector<char> staging_;
  std::vector<void*> owned_;
  char* arena_ = nullptr;
  char* workspace_ = nullptr;
  char* behind_ = nullptr;
  char* scalars_ = nullptr;
};

}  // namespace came::test
