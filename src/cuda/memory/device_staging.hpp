// Copies operands in host memory to the device before the work, and the results back after it.
// Layer: foundation. The counterpart of run::host_staging, for drivers whose problem runs on a CUDA backend.
#pragma once

#include <cstdint>
#include <memory>

#include <ballast/view.hpp>

#include "core/extent.hpp"
#include "core/memory.hpp"
#include "cuda/device/device.hpp"

namespace ballast::cuda {

// Stages the operands of one call. Operands that the device can access are used directly. Copies are ordered on the stream; sizes are in
// bytes, from the first to the last element. All functions throw std::bad_alloc.
class device_staging {
 public:
  device_staging(std::shared_ptr<device> on, stream order) : device_(std::move(on)), stream_(order) {}

  // Stages an operand that the call reads.
  const void* read(const void* operand, std::int64_t bytes);

  // Stages an operand that the call writes. `partly`: the call leaves some bytes unchanged, for example between strided elements, so the
  // operand is also copied to the device first.
  void* write(void* operand, std::int64_t bytes, bool partly = false);

  // Stages an operand that the call reads and writes: `read` bytes of input, `written` bytes of output.
  void* update(void* operand, std::int64_t read, std::int64_t written);

  // The same for operands with strides: the view on the device. A written operand keeps the gaps between its elements.
  template <class T>
  matrix_view<const T> read(const matrix_view<const T>& operand) {
    const core::extent<const T> all = core::extent_of(operand);
    return all.elements == 0 ? operand : core::in_copy(operand, static_cast<const T*>(read(all.first, all.bytes())));
  }
  template <class T>
  matrix_batch_view<const T> read(const matrix_batch_view<const T>& operand) {
    const core::extent<const T> all = core::extent_of(operand);
    return all.elements == 0 ? operand : core::in_copy(operand, static_cast<const T*>(read(all.first, all.bytes())));
  }
  template <class T>
  matrix_view<T> write(const matrix_view<T>& operand) {
    const core::extent<T> all = core::extent_of(operand);
    return all.elements == 0 ? operand : core::in_copy(operand, static_cast<T*>(write(all.first, all.bytes(), true)));
  }
  template <class T>
  matrix_batch_view<T> write(const matrix_batch_view<T>& operand) {
    const core::extent<T> all = core::extent_of(operand);
    return all.elements == 0 ? operand : core::in_copy(operand, static_cast<T*>(write(all.first, all.bytes(), true)));
  }

  // Copies the written operands back and waits for the copies. Do not call it for a result that must not be committed.
  void commit();

 private:
  struct copy {
    void* origin;
    std::int64_t written;
    device_buffer memory;
  };
  void* stage(void* operand, std::int64_t bytes, std::int64_t read, std::int64_t written);

  std::shared_ptr<device> device_;
  stream stream_;
  core::vector<copy> copies_;
};

}  // namespace ballast::cuda
