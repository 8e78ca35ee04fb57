// Stages operands before and after the work that a transform enqueues.
#include "fft/cuda/run/device_transform.hpp"

#include <cstdint>
#include <string>

#include <ballast/error.hpp>

#include "cuda/memory/device_staging.hpp"

namespace ballast::fft::cuda {

// If a kernel reads an element from an address that is no multiple of its size, the CUDA context of the application is lost.
void device_transform::check_aligned(const char* name, const void* operand, const array_side& s) const {
  const std::int64_t width = width_of(s);
  const auto beyond = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(operand) % static_cast<std::uintptr_t>(width));
  if (beyond != 0)
    throw invalid_argument_error(std::string(name) + ": expected device memory at a multiple of " + std::to_string(width) +
                                 " bytes, an element's size, got an address " + std::to_string(beyond) + " bytes behind one");
}

std::unique_ptr<run::pending> device_transform::enqueue(const void* in, void* out, const transform_args& how) const {
  const auto check = [&](const char* name, const void* operand, const array_side& side) {
    if (!device_->accessible(operand)) throw invalid_argument_error("expected in and out in device memory, got a host pointer");
    check_aligned(name, operand, side);
  };
  check("in", in, input_);
  check("out", out, output_);
  if (how.in_imaginary != nullptr) check("in", how.in_imaginary, input_);
  if (how.out_imaginary != nullptr) check("out", how.out_imaginary, output_);
  return start(static_cast<const unsigned char*>(in), static_cast<unsigned char*>(out), how);
}

void device_transform::run(const void* in, void* out, const transform_args& how) const {
  ballast::cuda::device_staging staging(device_, how.stream);
  transform_args args = how;
  const auto apart = [&](const void* real, const void* imaginary, const array_side& side) {
    if (imaginary == nullptr || device_->accessible(real)) return;
    const auto first = reinterpret_cast<std::uintptr_t>(real), second = reinterpret_cast<std::uintptr_t>(imaginary);
    if ((first < second ? second - first : first - second) < static_cast<std::uintptr_t>(bytes_of(side)))
      throw unsupported_error("expected real and imaginary parts in host memory that do not lie in each other's gaps");
  };
  apart(in, how.in_imaginary, input_);
  apart(out, how.out_imaginary, output_);
  const auto stage = [&](const void*& source, void*& target) {
    if (source != nullptr && device_->accessible(source)) check_aligned("in", source, input_);
    if (target != nullptr && device_->accessible(target)) check_aligned("out", target, output_);
    if (how.in_place) {
      source = target = staging.update(target, bytes_of(input_), bytes_of(output_));
      return;
    }
    if (source != nullptr) source = staging.read(source, bytes_of(input_));
    if (target != nullptr) target = staging.write(target, bytes_of(output_), output_.extent != output_elements_);
  };
  stage(in, out);
  if (how.in_imaginary != nullptr || how.out_imaginary != nullptr) stage(args.in_imaginary, args.out_imaginary);
  start(static_cast<const unsigned char*>(in), static_cast<unsigned char*>(out), args)->collect(how.seen);
  if (!how.seen.uncorrectable()) staging.commit();
}

}  // namespace ballast::fft::cuda
