// The common part of all transforms of the cuda backend: it copies operands in host memory to the device and back.
// Layer: backend "cuda".
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "cuda/device/device.hpp"
#include "fft/contract.hpp"

namespace ballast::fft::cuda {

class device_transform : public transform {
 public:
  void run(const void* in, void* out, const transform_args& how) const final;
  std::unique_ptr<run::pending> enqueue(const void* in, void* out, const transform_args& how) const final;

 protected:
  // output_elements: how many of the output's elements the transform writes. Sides of a split problem count as real: they are parts.
  device_transform(std::shared_ptr<ballast::cuda::device> on, const array_side& input, const array_side& output,
                   std::int64_t output_elements, precision type)
      : device_(std::move(on)), input_(input), output_(output), output_elements_(output_elements), type_(type) {}

  // Enqueues the work on operands in device memory, given by their lowest elements.
  virtual std::unique_ptr<run::pending> start(const unsigned char* in, unsigned char* out, const transform_args& how) const = 0;

  void check_aligned(const char* name, const void* operand, const array_side& s) const;
  std::int64_t width_of(const array_side& s) const { return (type_ == precision::f32 ? 4 : 8) * (s.real ? 1 : 2); }
  std::int64_t bytes_of(const array_side& s) const { return s.extent * width_of(s); }

  std::shared_ptr<ballast::cuda::device> device_;
  array_side input_, output_;

 private:
  std::int64_t output_elements_;
  precision type_;
};

}  // namespace ballast::fft::cuda
