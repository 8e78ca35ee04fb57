// Staging of operands, around the work that a transform enqueues.
#include "fft/cuda/device_transform.hpp"

#include <ballast/error.hpp>

#include "cuda/device_staging.hpp"

namespace ballast::fft::cuda {

std::unique_ptr<run::pending> device_transform::enqueue(const void* in, void* out, const call& how) const {
  if (!device_->accessible(in) || !device_->accessible(out))
    throw invalid_argument_error("expected in and out in device memory, got a host pointer");
  return start(static_cast<const unsigned char*>(in), static_cast<unsigned char*>(out), how);
}

void device_transform::run(const void* in, void* out, const call& how) const {
  ballast::cuda::device_staging staging(device_, how.stream);
  const void* source = nullptr;
  void* target = nullptr;
  if (how.in_place) {
    source = target = staging.update(out, bytes_of(shape_.input), bytes_of(shape_.output));
  } else {
    const side& s = shape_.output;
    const bool gaps = s.extent != s.length[0] * s.length[1] * s.length[2] * shape_.batch;
    source = staging.read(in, bytes_of(shape_.input));
    target = staging.write(out, bytes_of(s), gaps);
  }
  start(static_cast<const unsigned char*>(source), static_cast<unsigned char*>(target), how)->collect(how.seen);
  if (!how.seen.uncorrectable()) staging.commit();
}

}  // namespace ballast::fft::cuda
