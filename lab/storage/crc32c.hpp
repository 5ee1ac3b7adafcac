// CRC-32C (Castagnoli): the checksum of checkpoints and event files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lab {

/// The checksum of bytes that follow others whose checksum is `before`.
[[nodiscard]] uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

namespace detail {

/// The same by tables, whatever the processor has.
[[nodiscard]] uint32_t crc32c_tables(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace detail
}  // namespace lab
