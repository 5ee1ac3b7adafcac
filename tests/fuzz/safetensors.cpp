// What must hold of any bytes given to the parser of safetensors files: it refuses them with an Error, or every tensor
// lies inside them, apart from the others, and writing what was read gives a file that reads the same.
#include "storage/safetensors.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "check.hpp"
#include "error.hpp"

namespace came_fuzz {
namespace {

/// Whether two hold the same, wherever it lies.
bool same_contents(const lab::Safetensors& a, const lab::Safetensors& b) {
  if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
  for (const lab::StoredTensor& tensor : a.tensors) {
    const lab::StoredTensor* other = b.find(tensor.name);
    if (other == nullptr || other->dtype != tensor.dtype || other->shape != tensor.shape) return false;
    if (!std::equal(tensor.data.begin(), tensor.data.end(), other->data.begin(), other->data.end())) return false;
  }
  return true;
}

}  // namespace

bool check_safetensors(Input file) {
  lab::Safetensors contents;
  try {
    contents = within_bounds(file.size(), [&] { return lab::parse_safetensors(file); });
  } catch (const lab::Error& error) {
    require_message(error.what());
    return false;
  }
  const std::less_equal<> before;  // a total order, also between what is not one array
  const std::byte* at = file.data();
  for (const lab::StoredTensor& tensor : contents.tensors) {
    require(before(at, tensor.data.data()), "a tensor overlaps the header or another one");
    at = tensor.data.data() + tensor.data.size();
    require(before(at, file.data() + file.size()), "a tensor lies outside the file");
  }
  const lab::SafetensorsLayout layout = lab::layout_safetensors(contents.tensors, contents.metadata);
  const auto head = std::as_bytes(std::span(layout.head));
  std::vector<std::byte> written(head.begin(), head.end());
  for (const lab::StoredTensor& tensor : layout.tensors) {
    written.insert(written.end(), tensor.data.begin(), tensor.data.end());
  }
  require(same_contents(contents, lab::parse_safetensors(written)), "what was written reads otherwise");
  return true;
}

}  // namespace came_fuzz
