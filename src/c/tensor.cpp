// Checks of tensors.
// Layer: interface.
#include "c/tensor.hpp"

#include <limits>

#include <ballast/error.hpp>
#include <ballast/info.hpp>

#include "core/format.hpp"

namespace ballast::c {

namespace {

[[noreturn]] void refuse(named as, const std::string& what) {
  throw invalid_argument_error(as.problem.empty() ? fmt::format("{}: {}", as.name, what)
                                                  : fmt::format("{}: {}: {}", as.problem, as.name, what));
}

std::string_view name_of(element type) {
  constexpr std::string_view names[] = {"int32", "float32", "float64", "complex64", "complex128", "int64", "float16", "bfloat16"};
  return names[static_cast<std::size_t>(type)];
}

element type_of(const DLDataType& type, named as) {
  const auto is = [&](int code, int bits) { return type.lanes == 1 && type.code == code && type.bits == bits; };
  if (is(BALLAST_DLPACK_FLOAT, 32)) return element::f32;
  if (is(BALLAST_DLPACK_FLOAT, 64)) return element::f64;
  if (is(BALLAST_DLPACK_COMPLEX, 64)) return element::c64;
  if (is(BALLAST_DLPACK_COMPLEX, 128)) return element::c128;
  if (is(BALLAST_DLPACK_INT, 32)) return element::i32;
  if (is(BALLAST_DLPACK_INT, 64)) return element::i64;
  if (is(BALLAST_DLPACK_FLOAT, 16)) return element::f16;
  if (is(BALLAST_DLPACK_BFLOAT, 16)) return element::bf16;
  refuse(as, fmt::format("expected elements of float32, float64, complex64, complex128, float16, bfloat16, int32 or int64, got DLPack's "
                         "type code {}, {} bits, {} lanes",
                         static_cast<int>(type.code), static_cast<int>(type.bits), type.lanes));
}

std::string_view name_of_device(int type) {
  switch (type) {
    case BALLAST_DLPACK_CPU: return "the host";
    case BALLAST_DLPACK_CUDA: return "a CUDA device";
    case BALLAST_DLPACK_CUDA_HOST: return "page-locked host memory";
    case BALLAST_DLPACK_CUDA_MANAGED: return "CUDA managed memory";
    default: return "another device";
  }
}

}  // namespace

tensor::tensor(const DLTensor* given, named as) : as(as), given_(given) {
  if (given == nullptr) refuse(as, "expected a tensor, got null");
  if (given->ndim < 0 || given->ndim > k_most_axes) refuse(as, fmt::format("expected 0 to {} axes, got {}", k_most_axes, given->ndim));
  axes = given->ndim;
  if (axes > 0 && given->shape == nullptr) refuse(as, fmt::format("expected a shape of {} lengths, got null", axes));
  type = type_of(given->dtype, as);
  device = static_cast<std::int32_t>(given->device.device_type);
  for (int axis = 0; axis < axes; ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    length[at] = given->shape[axis];
    if (length[at] < 0) refuse(as, fmt::format("expected lengths of 0 or more, got {} of axis {}", length[at], axis));
    empty = empty || length[at] == 0;
  }
  std::int64_t next = 1;
  for (int axis = axes; axis-- > 0;) {
    const auto at = static_cast<std::size_t>(axis);
    stride[at] = given->strides != nullptr ? given->strides[axis] : next;
    if (given->strides == nullptr && !empty && __builtin_mul_overflow(next, length[at], &next))
      refuse(as, fmt::format("expected less than 2^63 elements, got {}", lengths_of(*this)));
  }
}

void tensor::expect(element wanted) const {
  if (type != wanted) refuse(as, fmt::format("expected elements of {}, got {}", name_of(wanted), name_of(type)));
}

void tensor::expect_axes(int wanted) const {
  if (axes != wanted)
    refuse(as, fmt::format("expected {} {}, got {} ({})", wanted, wanted == 1 ? "axis" : "axes", axes, lengths_of(*this)));
}

const tensor& tensor::expect_elements() const {
  if (empty) refuse(as, fmt::format("expected elements, got none ({})", lengths_of(*this)));
  return *this;
}

void* tensor::address(const execution& where) const {
  const bool of_host = device == BALLAST_DLPACK_CPU || device == BALLAST_DLPACK_CUDA_HOST;
  const bool of_cuda = device == BALLAST_DLPACK_CUDA || device == BALLAST_DLPACK_CUDA_MANAGED;
  if (!of_host && !of_cuda)
    throw unsupported_error(fmt::format("{}: {}: expected memory of the host or of a CUDA device, got that of DLPack's device type {}",
                                        as.problem, as.name, device));
  if (given_->data == nullptr) {
    if (!empty) refuse(as, fmt::format("expected the address of {} elements, got null", lengths_of(*this)));
    return nullptr;
  }
  void* const first = static_cast<unsigned char*>(given_->data) + given_->byte_offset;
  const std::uintptr_t part = type == element::f64 || type == element::c128 || type == element::i64 ? sizeof(double)
                              : type == element::f16 || type == element::bf16                       ? sizeof(std::uint16_t)
                                                                                                    : sizeof(float);
  if (reinterpret_cast<std::uintptr_t>(first) % part != 0)
    refuse(as, fmt::format("expected an address at a multiple of {} bytes, got another one", part));
  if (!of_cuda || empty) return first;
  const std::int32_t number = given_->device.device_id;
  if (device == BALLAST_DLPACK_CUDA && where.device >= 0 && number != where.device)
    refuse(as, fmt::format("expected memory of the plan's device {}, got that of device {}", where.device, number));
  const residence found = residence_of(first);
  if (found == residence::host)
    refuse(as,
           fmt::format("expected {}, as the tensor says, got memory that no CUDA driver in this process knows", name_of_device(device)));
  return first;
}

std::int64_t elements_without_gaps(const tensor& of) {
  if (of.empty) return 0;
  std::int64_t count = 1;
  for (int axis = of.axes; axis-- > 0;) {
    const auto at = static_cast<std::size_t>(axis);
    if (of.length[at] > 1 && of.stride[at] != count)
      refuse(of.as, fmt::format("expected elements without gaps, a stride of {} in axis {}, got {}", count, axis, of.stride[at]));
    if (__builtin_mul_overflow(count, of.length[at], &count))
      refuse(of.as, fmt::format("expected less than 2^63 elements, got {}", lengths_of(of)));
  }
  return count;
}

std::string lengths_of(const tensor& of) {
  if (of.axes == 0) return "a scalar";
  std::string made;
  for (int axis = 0; axis < of.axes; ++axis) made += fmt::format("{}{}", axis == 0 ? "" : " × ", of.length[static_cast<std::size_t>(axis)]);
  return made;
}

}  // namespace ballast::c
