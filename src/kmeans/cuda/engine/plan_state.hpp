// The state of a plan on its device, from one call to the next: loaded kernels, and the device memory of its calls.
// Layer: backend "cuda" of K-Means, host. An engine without a plan makes one for itself.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "cuda/call/device_call.hpp"
#include "cuda/device/device.hpp"
#include "kmeans/contract.hpp"
#include "kmeans/cuda/policy/choose_policy.hpp"

namespace ballast::kmeans::cuda {

// The numbers of the kernels of a plan. A kind with several variants has as many numbers; those that read the given points have one for
// each width of points: of T, and of 16 bits.
enum kernel_number : int {
  k_ranges_kernel = 0,
  k_find_kernel = k_ranges_kernel + 2,
  k_normalize_kernel = k_find_kernel + 2,
  k_row_stats_kernel = k_normalize_kernel + 2,  // 2 · 2: words per sum
  k_gather_kernel = k_row_stats_kernel + 4,
  k_distances_kernel = k_gather_kernel + 2,
  k_far_kernel = k_distances_kernel + 2,
  k_exact_kernel = k_far_kernel + 2,
  k_settle_kernel = k_exact_kernel + 2,
  k_fold_ranges_kernel = k_settle_kernel + 2,
  k_fold_sums_kernel,
  k_finish_kernel,
  k_keep_kernel,
  k_labelled_kernel,                         // 2: words per sum
  k_seeding_kernel = k_labelled_kernel + 2,  // 2: up to 8 candidates per step; more
  k_cover_kernel = k_seeding_kernel + 2,
  k_draw_kernel,
  k_nearest_kernel,
  k_batch_kernel,  // 2: verified by the host; enqueued
  k_kernel_numbers = k_batch_kernel + 2
};

// The kernels of Lloyd's iterations.
struct pass_kernels {
  pass_policy policy;  // the policy of the pass with sums
  const ballast::cuda::kernel* with_sums = nullptr;
  const ballast::cuda::kernel* labels_only = nullptr;
  const ballast::cuda::kernel* update = nullptr;
  std::int64_t resident[2] = {};  // blocks of either pass that the device runs at the same time
};

// Thread-safe.
class device_state final : public plan_state {
 public:
  using kernel = ballast::cuda::kernel;

  // `fits_bytes`: bytes of device memory, beside the event ring, for fits that are enqueued (batch.hpp); 0: there are none.
  explicit device_state(std::shared_ptr<ballast::cuda::device> on, std::int64_t fits_bytes = 0)
      : device_(std::move(on)), rings_(device_, ballast::cuda::k_ring_bytes), fits_(device_, ballast::cuda::k_ring_bytes + fits_bytes) {}

  const std::shared_ptr<ballast::cuda::device>& on() const noexcept { return device_; }
  const ballast::cuda::workspace_pool& rings() const noexcept { return rings_; }
  const ballast::cuda::workspace_pool& fits() const noexcept { return fits_; }
  std::int64_t workspace_bytes() const override { return fits_.bytes(); }

  // Returns pinned memory of at least `bytes` bytes, which a call gives back when all copies to it are complete.
  ballast::cuda::pinned_buffer take_pinned(std::int64_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty() && idle_.back().bytes() >= bytes) {
        ballast::cuda::pinned_buffer made = std::move(idle_.back());
        idle_.pop_back();
        return made;
      }
    }
    return {device_, bytes};
  }
  void give_pinned(ballast::cuda::pinned_buffer memory) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(memory));
  }

  // Returns a kernel. At its first use it is loaded for make(instrumented), or make() if it has no variant for injection.
  template <class Make>
  const kernel& load(int number, bool instrumented, Make&& make) {
    std::atomic<const kernel*>& known = kernels_[static_cast<std::size_t>(number)][instrumented ? 1 : 0];
    if (const kernel* const found = known.load(std::memory_order_acquire)) return *found;
    const kernel& made = [&]() -> const kernel& {
      if constexpr (std::is_invocable_v<Make, bool>) {
        return device_->load(make(instrumented));
      } else {
        return device_->load(make());
      }
    }();
    known.store(&made, std::memory_order_release);
    return made;
  }

  // Calls make() once for each value of `instrumented`, to load kernels in parallel.
  template <class Make>
  void prepare(bool instrumented, Make&& make) {
    std::atomic<bool>& done = prepared_[instrumented ? 1 : 0];
    if (done.load(std::memory_order_acquire)) return;
    make();
    done.store(true, std::memory_order_release);
  }

  // Returns the kernels of passes, from make() at their first use.
  template <class Make>
  const pass_kernels& passes(int words, bool weighted, bool check, bool instrumented, Make&& make) {
    const std::lock_guard lock(mutex_);
    const std::size_t number =
        8 * (static_cast<std::size_t>(words) - 1) + (check ? 4U : 0U) + (weighted ? 2U : 0U) + (instrumented ? 1U : 0U);
    std::unique_ptr<const pass_kernels>& known = passes_[number];
    if (known == nullptr) known = std::make_unique<const pass_kernels>(make());
    return *known;
  }

 private:
  std::shared_ptr<ballast::cuda::device> device_;
  ballast::cuda::workspace_pool rings_, fits_;
  std::array<std::array<std::atomic<const kernel*>, 2>, k_kernel_numbers> kernels_{};
  std::atomic<bool> prepared_[2] = {};
  std::mutex mutex_;
  std::array<std::unique_ptr<const pass_kernels>, 16> passes_;
  std::vector<ballast::cuda::pinned_buffer> idle_;
};

// Pinned memory of one call.
class pinned_room {
 public:
  pinned_room() = default;
  pinned_room(device_state& home, std::int64_t bytes, ballast::cuda::stream order)
      : home_(&home), order_(order), memory_(home.take_pinned(bytes)) {}
  pinned_room(pinned_room&& other) noexcept { swap(other); }
  pinned_room& operator=(pinned_room&& other) noexcept {
    swap(other);
    return *this;
  }
  ~pinned_room() {
    if (home_ == nullptr) return;
    try {
      home_->on()->synchronize(order_);  // a call that failed may have left copies
      home_->give_pinned(std::move(memory_));
    } catch (...) {  // a device that fails here does not copy any more; the memory is released
    }
  }
  unsigned char* data() const noexcept { return static_cast<unsigned char*>(memory_.data()); }
  std::int64_t bytes() const noexcept { return memory_.bytes(); }

 private:
  void swap(pinned_room& other) noexcept {
    std::swap(home_, other.home_);
    std::swap(order_, other.order_);
    std::swap(memory_, other.memory_);
  }
  device_state* home_ = nullptr;
  ballast::cuda::stream order_ = nullptr;
  ballast::cuda::pinned_buffer memory_;
};

}  // namespace ballast::kmeans::cuda
