// Operands in host memory for kernels: copied to the device before the work, results copied back after it.
// Layer: foundation. The counterpart of run::host_staging, for drivers whose problem runs on a CUDA backend.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "cuda/device/device.hpp"

namespace ballast::cuda {

// One object for one call. Operands that the device can access are passed through. Copies are ordered on the stream; sizes are in bytes,
// from the first to the last element. All throw std::bad_alloc.
class device_staging {
 public:
  device_staging(std::shared_ptr<device> on, stream order) : device_(std::move(on)), stream_(order) {}

  // An operand that the call reads.
  const void* read(const void* operand, std::int64_t bytes);

  // An operand that the call writes. `partly`: some bytes stay as they are (between strided elements, say), so the copy starts with them.
  void* write(void* operand, std::int64_t bytes, bool partly = false);

  // An operand that the call reads and writes: `read` bytes are there before, `written` after.
  void* update(void* operand, std::int64_t read, std::int64_t written);

  // Copies back what was written and waits for it. Not called for a result that is not to be committed.
  void commit();

 private:
  struct copy {
    void* origin;
    std::int64_t written;
    device_buffer memory;
  };
  void* stage(void* operand, std::int64_t room, std::int64_t read, std::int64_t written);

  std::shared_ptr<device> device_;
  stream stream_;
  std::deque<copy> copies_;
};

}  // namespace ballast::cuda
