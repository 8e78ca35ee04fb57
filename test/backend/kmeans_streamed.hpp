// Devices with little memory, through which the points of a call pass in pieces.
// Layer: backend tests.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include <gtest/gtest.h>

#include <ballast/kmeans.hpp>

#include "cuda/call/event_log.hpp"
#include "kmeans/cuda/engine/point_stream.hpp"
#include "simt/emulated_device.hpp"
#include "support/devices.hpp"

namespace ballast::kmeans {

inline ballast::cuda::capabilities with_memory(std::int64_t bytes) {
  auto made = simt::emulated_capabilities();
  made.memory = bytes;
  return made;
}

// Counts what comes from the host, and changes one element of one copy.
class observed_device final : public test::forwarding_device {
 public:
  using forwarding_device::forwarding_device;
  std::int64_t available = -1;    // the memory that it reports as available; −1: the memory that is
  std::int64_t large_copies = 0;  // copies of more than `least` bytes to the device
  std::int64_t least = 1000 * 8;
  std::int64_t struck_copy = -1;  // its number
  bool every = false;             // and all after it
  std::int64_t struck_byte = 0;

  std::int64_t available_memory() override { return available < 0 ? forwarding_device::available_memory() : available; }
  void copy(void* to, const void* from, std::int64_t bytes, ballast::cuda::stream on) override {
    forwarding_device::copy(to, from, bytes, on);
    if (bytes <= least || !accessible(to) || accessible(from)) return;
    if (large_copies == struck_copy || (every && large_copies > struck_copy && struck_copy >= 0))
      static_cast<unsigned char*>(to)[struck_byte] ^= 0x10;
    ++large_copies;
  }
};

// Returns as much memory as there can be where only so much stays on the device.
template <class T>
std::int64_t memory_for(cuda::kept_points wanted, matrix_view<const T> points, bool weighted, std::int64_t k,
                        const half_points& half = {}) {
  simt::emulated_device any;
  const cuda::kept_points_problem needs = cuda::needs_of(points, points.rows, weighted, k, any, half);
  std::int64_t low = 0, high = std::int64_t{1} << 30;  // `high` is enough for more
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    bool more = false;
    try {
      more = cuda::choose_kept_points(needs, middle).kept < wanted;
    } catch (const std::bad_alloc&) {
    }
    (more ? high : low) = middle;
  }
  EXPECT_EQ(cuda::choose_kept_points(needs, low).kept, wanted);
  return low + ballast::cuda::k_ring_bytes;  // the call takes its ring first
}

}  // namespace ballast::kmeans
