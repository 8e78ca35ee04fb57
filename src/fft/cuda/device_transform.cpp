// Staging of operands.
#include "fft/cuda/device_transform.hpp"

#include <algorithm>

#include <ballast/error.hpp>

namespace ballast::fft::cuda {

using ballast::cuda::device_buffer;

device_transform::device_transform(const geometry& shape, precision type)
    : device_(ballast::cuda::current_device()), shape_(shape), type_(type) {}

std::unique_ptr<run::pending> device_transform::enqueue(const void* in, void* out, const call& how) const {
  if (!device_->accessible(in) || !device_->accessible(out))
    throw invalid_argument_error("expected in and out in device memory, got a host pointer");
  return start(static_cast<const unsigned char*>(in), static_cast<unsigned char*>(out), how);
}

void device_transform::run(const void* in, void* out, const call& how) const {
  ballast::cuda::device& device = *device_;
  // Host arrays are staged whole.
  const bool out_is_here = device.accessible(out);
  device_buffer staged_in, staged_out;
  const auto* source = static_cast<const unsigned char*>(in);
  auto* target = static_cast<unsigned char*>(out);
  if (!device.accessible(in)) {
    staged_in = device_buffer(device_, std::max(bytes_of(shape_.input), how.in_place ? bytes_of(shape_.output) : 0), how.stream);
    device.copy(staged_in.data(), in, bytes_of(shape_.input), how.stream);
    source = static_cast<const unsigned char*>(staged_in.data());
  }
  if (!out_is_here && how.in_place) {
    target = static_cast<unsigned char*>(staged_in.data());
  } else if (!out_is_here) {
    staged_out = device_buffer(device_, bytes_of(shape_.output), how.stream);
    target = static_cast<unsigned char*>(staged_out.data());
    // What lies between strided elements comes back as it was.
    const side& s = shape_.output;
    if (s.extent != s.length[0] * s.length[1] * s.length[2] * shape_.batch) device.copy(target, out, bytes_of(s), how.stream);
  }
  start(source, target, how)->collect(how.seen);
  if (!out_is_here && !how.seen.uncorrectable()) {
    device.copy(out, target, bytes_of(shape_.output), how.stream);
    device.synchronize(how.stream);
  }
}

unsigned char* device_transform::workspace_of(const call& how, std::int64_t bytes) const {
  if (how.workspace.empty()) return nullptr;
  if (static_cast<std::int64_t>(how.workspace.size()) < bytes)
    throw invalid_argument_error("workspace: expected at least " + std::to_string(bytes) + " bytes, got " +
                                 std::to_string(how.workspace.size()));
  auto* const memory = reinterpret_cast<unsigned char*>(how.workspace.data());
  if (!device_->accessible(memory)) throw invalid_argument_error("workspace: expected device memory, got a host pointer");
  return memory;
}

}  // namespace ballast::fft::cuda
