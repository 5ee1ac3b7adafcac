// Options, parameters and tensors from a stream.
#include "c_api_input.hpp"

#include <utility>

namespace came_fuzz {

came_options Stream::options(came_algorithm algorithm) {
  came_options o = CAME_OPTIONS_INIT;
  if (one_in(32)) {
    o = raw<came_options>();
    if (one_in(2)) o.struct_size = sizeof(o);
    return o;
  }
  require(came_options_init(&o, algorithm) == CAME_STATUS_OK, came_error_message());
  for (int64_t changes = below(6); changes > 0; --changes) {
    double* const numbers[] = {&o.lr,   &o.beta1,          &o.beta2,        &o.beta3,         &o.eps,        &o.eps1,
                               &o.eps2, &o.clip_threshold, &o.weight_decay, &o.max_grad_norm, &o.beta2_decay};
    int32_t* const flags[] = {&o.bias_correction, &o.confidence_1d, &o.cautious,       &o.stochastic_rounding,
                              &o.maximize,        &o.relative_step, &o.warmup_init,    &o.scale_parameter,
                              &o.lr_in_momentum,  &o.view,          &o.momentum_dtype, &o.second_moment_dtype};
    const auto which = static_cast<size_t>(below(24));
    if (which < 11) *numbers[which] = real(0.25);
    if (which >= 11 && which < 20) *flags[which - 11] = number(static_cast<int32_t>(below(2)));
    if (which == 20) o.view = number(static_cast<int32_t>(below(4)));
    if (which == 21) o.momentum_dtype = number(static_cast<int32_t>(below(10)));
    if (which == 22) o.second_moment_dtype = CAME_DTYPE_I8;
    if (which == 23) o.seed = raw<uint64_t>();
  }
  if (one_in(64)) o.struct_size = byte();
  return o;
}

came_tensor_spec Stream::spec(std::array<int64_t, 192>& sizes, int32_t groups) {
  came_tensor_spec s = CAME_TENSOR_SPEC_INIT;
  s.ndim = number(static_cast<int32_t>(below(4)));
  for (size_t d = 0; d < 64; ++d) {
    const bool used = static_cast<int32_t>(d) < s.ndim;
    sizes[d] = used ? size() : 1;
    sizes[64 + d] = 0;
    sizes[128 + d] = sizes[d];
  }
  s.shape = one_in(64) ? nullptr : sizes.data();
  s.dtype = number(static_cast<int32_t>(1 + below(4)));
  s.grad_dtype = number(static_cast<int32_t>(below(5)));
  s.group = number(static_cast<int32_t>(below(groups)));
  s.id = byte();
  if (one_in(4)) {
    s.reduce_group = number(static_cast<int32_t>(below(3)));
    s.matrix_group = number(static_cast<int32_t>(below(3)));
    s.split_dims = one_in(16) ? raw<uint64_t>() : static_cast<uint64_t>(below(8));
    for (size_t d = 0; d < 4; ++d) {
      if ((s.split_dims >> d & 1U) == 0) continue;
      sizes[64 + d] = one_in(16) ? size() : below(4);
      sizes[128 + d] = one_in(16) ? size() : below(5);
    }
    s.shard_offset = one_in(64) ? nullptr : &sizes[64];
    s.shard_extent = one_in(64) ? nullptr : &sizes[128];
  }
  if (one_in(64)) s.struct_size = byte();
  if (one_in(64)) s.reserved = byte();
  return s;
}

int64_t element_bytes(came_dtype dtype) {
  switch (dtype) {
    case CAME_DTYPE_F32:
      return 4;
    case CAME_DTYPE_BF16:
    case CAME_DTYPE_F16:
      return 2;
    case CAME_DTYPE_I8:
    case CAME_DTYPE_U8:
      return 1;
    default:
      return 8;
  }
}

void fill_tensor(Stream& stream, const Memory& memory, came_dtype dtype) {
  std::array<uint8_t, 16> pattern{};
  const bool any = stream.one_in(4);
  if (any) stream.fill(pattern.data(), pattern.size());
  const uint8_t start = any ? 0 : stream.byte();
  auto* at = static_cast<uint8_t*>(memory.data());
  const auto width = static_cast<size_t>(element_bytes(dtype));
  for (size_t k = 0; k < memory.size(); ++k) at[k] = any ? pattern[k % pattern.size()] : 0;
  if (any) return;
  for (size_t k = 0; k + width <= memory.size(); k += width) {
    // Of one in each format, a few bits of the mantissa and the sign: from -2 to 2.
    const auto bits = static_cast<uint8_t>(start * 37 + k * 11);
    const double value = (1 + (bits & 63) / 64.0) * ((bits & 64) != 0 ? -1 : 1);
    const auto narrow = static_cast<float>(value);
    uint32_t word = 0;
    std::memcpy(&word, &narrow, sizeof(word));
    const auto upper = static_cast<uint16_t>(word >> 16U);
    const auto half = static_cast<uint16_t>((word >> 16U & 0x8000U) | 0x3C00U | (word >> 13U & 0x3FFU));
    switch (dtype) {
      case CAME_DTYPE_F64:
        std::memcpy(at + k, &value, sizeof(value));
        break;
      case CAME_DTYPE_F32:
        std::memcpy(at + k, &narrow, sizeof(narrow));
        break;
      case CAME_DTYPE_BF16:
        std::memcpy(at + k, &upper, sizeof(upper));
        break;
      case CAME_DTYPE_F16:
        std::memcpy(at + k, &half, sizeof(half));
        break;
      default:
        at[k] = bits;
    }
  }
}

void spoil(Stream& stream, came_tensor& tensor) {
  static const std::array<int64_t, 64> kOnes = [] {
    std::array<int64_t, 64> ones{};
    ones.fill(1);
    return ones;
  }();
  if (!stream.one_in(24)) return;
  switch (stream.below(8)) {
    case 0:
      tensor.data = nullptr;
      break;
    case 1:
      tensor.ndim = stream.number(64);
      tensor.shape = kOnes.data();
      break;
    case 2:
      // Another type is refused everywhere; a wider one than the memory was made for must be.
      tensor.dtype = stream.number(9);
      break;
    case 3:
      // No element begins there, unless it is one byte wide, and then the last one would lie outside.
      if (element_bytes(tensor.dtype) > 1 && tensor.data != nullptr) tensor.data = static_cast<char*>(tensor.data) + 1;
      break;
    case 4:
      tensor.struct_size = stream.byte();
      break;
    case 5:
      tensor.device_index = stream.number(1);
      break;
    case 6:
      tensor.device = stream.number(1);
      break;
    default:
      tensor.reserved = stream.number(1);
  }
}

bool answered(came_status status) {
  if (status == CAME_STATUS_OK) return true;
  require(status >= CAME_STATUS_INVALID_ARGUMENT && status <= CAME_STATUS_ABI_MISMATCH,
          std::string(came_status_name(status)) + ": " + came_error_message());
  require(came_error_message()[0] != '\0', "a refusal without a message");
  return false;
}

}  // namespace came_fuzz
