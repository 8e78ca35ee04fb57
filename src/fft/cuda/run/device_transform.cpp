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
  if (!device_->accessible(in) || !device_->accessible(out))
    throw invalid_argument_error("expected in and out in device memory, got a host pointer");
  check_aligned("in", in, input_);
  check_aligned("out", out, output_);
  return start(static_cast<const unsigned char*>(in), static_cast<unsigned char*>(out), how);
}

void device_transform::run(const void* in, void* out, const transform_args& how) const {
  if (device_->accessible(in)) check_aligned("in", in, input_);
  if (device_->accessible(out)) check_aligned("out", out, output_);
  ballast::cuda::device_staging staging(device_, how.stream);
  const void* source = nullptr;
  void* target = nullptr;
  if (how.in_place) {
    source = target = staging.update(out, bytes_of(input_), bytes_of(output_));
  } else {
    source = staging.read(in, bytes_of(input_));
    target = staging.write(out, bytes_of(output_), output_.extent != output_elements_);
  }
  start(static_cast<const unsigned char*>(source), static_cast<unsigned char*>(target), how)->collect(how.seen);
  if (!how.seen.uncorrectable()) staging.commit();
}

}  // namespace ballast::fft::cuda
