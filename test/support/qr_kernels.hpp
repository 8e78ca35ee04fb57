// Runs single kernels of QR on the emulator: copies numbers to its memory and back, and launches kernels.
// Layer: test harness.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/device/device.hpp"
#include "qr/cuda/kernels/kernels.hpp"
#include "simt/emulated_device.hpp"

namespace ballast::qr::subjects {

// S: float or double, the precision of the kernels that cuda::work selects.
template <class S>
class kernels_on_emulator : public testing::Test {
 protected:
  template <class Number>
  ballast::cuda::device_buffer upload(const std::vector<Number>& values) const {
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(Number));
    ballast::cuda::device_buffer made(device, bytes, nullptr);
    device->copy(made.data(), values.data(), bytes, nullptr);
    return made;
  }
  template <class Number>
  std::vector<Number> download(const ballast::cuda::device_buffer& from) const {
    std::vector<Number> made(static_cast<std::size_t>(from.bytes()) / sizeof(Number));
    device->copy(made.data(), from.data(), from.bytes(), nullptr);
    return made;
  }
  void launch(const ballast::cuda::kernel_request& which, std::int64_t blocks, const auto& given) const {
    device->launch(device->load(which), blocks, &given, sizeof given, nullptr);
  }
  void launch(cuda::work which, std::int64_t blocks, const auto& given) const {
    launch(cuda::kernel_names<S>::of(which, device->about()), blocks, given);
  }

  std::shared_ptr<simt::emulated_device> device = std::make_shared<simt::emulated_device>();
};

}  // namespace ballast::qr::subjects
