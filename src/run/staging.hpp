// Operands in device memory for a backend that computes on the host: copied to the host before the work, results copied back after it.
// Layer: run. For drivers whose problem runs on a host backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <type_traits>

#include <ballast/view.hpp>

#include "core/aligned_buffer.hpp"
#include "core/extent.hpp"

namespace ballast::cuda {
class device;
}

namespace ballast::run {

// One object for one call. Operands in host memory are passed through, at no cost but a look at where they lie.
class host_staging {
 public:
  // Copies are ordered on `stream`, a cudaStream_t or CUstream.
  explicit host_staging(void* stream) : stream_(stream) {}

  // The operand where the host can read it: itself, or a copy with the same strides. Waits for the stream where the operand lies in device
  // or managed memory. Throws invalid_argument_error if it lies on another device than the current one, std::bad_alloc.
  template <class T>
  matrix_view<T> read(const matrix_view<T>& operand) {
    return staged(operand, false);
  }
  template <class T>
  matrix_batch_view<T> read(const matrix_batch_view<T>& operand) {
    return staged(operand, false);
  }
  template <class T>
  std::span<T> read(std::span<T> operand) {
    return {static_cast<T*>(stage(operand.data(), static_cast<std::int64_t>(operand.size_bytes()), false)), operand.size()};
  }

  // The same for an operand that the call also writes. commit() copies it back whole: what lies between strided elements comes back as it
  // was.
  template <class T>
  matrix_view<T> write(const matrix_view<T>& operand) {
    static_assert(!std::is_const_v<T>);
    return staged(operand, true);
  }
  template <class T>
  matrix_batch_view<T> write(const matrix_batch_view<T>& operand) {
    static_assert(!std::is_const_v<T>);
    return staged(operand, true);
  }
  template <class T>
  std::span<T> write(std::span<T> operand) {
    static_assert(!std::is_const_v<T>);
    return {static_cast<T*>(stage(operand.data(), static_cast<std::int64_t>(operand.size_bytes()), true)), operand.size()};
  }

  // The same for a result of which the call writes every element: the copy of one without gaps begins with any bits.
  template <class T>
  matrix_view<T> overwrite(const matrix_view<T>& operand) {
    static_assert(!std::is_const_v<T>);
    const auto all = core::extent_of(operand);
    if (all.elements == 0) return operand;
    const std::int64_t down = std::abs(operand.row_stride), along = std::abs(operand.column_stride);
    const bool dense = (along == 1 && down == operand.columns) || (down == 1 && along == operand.rows);
    return core::in_copy(operand, static_cast<T*>(stage(all.first, all.bytes(), true, !dense)));
  }

  // Copies back what was written, in the order of the stream, and waits for it. Not called for a result that is not to be committed.
  void commit();

 private:
  struct copy {
    void* origin;
    std::int64_t bytes;
    bool written;
    core::aligned_buffer<std::byte> memory;
  };

  template <class View>
  View staged(const View& operand, bool written) {
    const auto all = core::extent_of(operand);
    if (all.elements == 0) return operand;
    return core::in_copy(operand, static_cast<decltype(all.first)>(stage(all.first, all.bytes(), written)));
  }

  void* stage(const void* origin, std::int64_t bytes, bool written, bool read = true);

  void* stream_;
  std::shared_ptr<cuda::device> device_;  // once an operand needed it
  core::vector<copy> copies_;
};

}  // namespace ballast::run
