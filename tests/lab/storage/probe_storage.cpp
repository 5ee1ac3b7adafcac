// What the Python tests ask of the storage: copies of safetensors files, event files.
//   came_lab_probe_storage copy FROM TO            reads a safetensors file and writes it again
//   came_lab_probe_storage list FILE               one line for each tensor: name, dtype, shape, CRC-32C of the data
//   came_lab_probe_storage events FOLDER FIRST LAST [restart]   scalars of these steps; the value is step / 4
#include <fmt/ranges.h>

#include <cstdlib>
#include <iostream>

#include "error.hpp"
#include "storage/crc32c.hpp"
#include "storage/event_file.hpp"
#include "storage/safetensors.hpp"

namespace {

void copy(const char* from, const char* to) {
  const lab::SafetensorsFile file(from);
  lab::write_safetensors(to, file.contents().tensors, file.contents().metadata);
}

void list(const char* path) {
  const lab::SafetensorsFile file(path);
  for (const lab::StoredTensor& tensor : file.contents().tensors) {
    std::cout << fmt::format("{} {} [{}] {:08x}\n", tensor.name, tensor.dtype, fmt::join(tensor.shape, ","),
                             lab::crc32c(tensor.data));
  }
  for (const auto& [key, value] : file.contents().metadata) std::cout << fmt::format("{}={}\n", key, value);
}

void events(const char* folder, int64_t first, int64_t last, bool restart) {
  lab::EventFile file(folder, restart ? std::optional(first) : std::nullopt);
  if (!restart) file.text(0, "config", "*model* = gpt2");
  for (int64_t step = first; step <= last; ++step) {
    const std::pair<std::string, double> values[]{{"loss/train", static_cast<double>(step) / 4},
                                                  {"lr", restart ? 2e-4 : 1e-4}};
    file.scalars(step, values);
  }
  file.scalar(last, "loss/valid", 0.5);
}

}  // namespace

int main(int count, char** words) {
  const std::string command = count > 1 ? words[1] : "";
  try {
    if (command == "copy" && count == 4) {
      copy(words[2], words[3]);
    } else if (command == "list" && count == 3) {
      list(words[2]);
    } else if (command == "events" && (count == 5 || count == 6)) {
      events(words[2], std::atoll(words[3]), std::atoll(words[4]), count == 6);
    } else {
      lab::fail("unknown command {}", command);
    }
  } catch (const lab::Error& error) {
    std::cerr << "probe: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
