// The state of a plan on its device, from one call to the next: loaded kernels, and the device memory of its calls.
// Layer: backend "cuda" of K-Means, host. An engine without a plan makes one for itself.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
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
  k_unit_rows_kernel = k_row_stats_kernel + 4,
  k_gather_kernel = k_unit_rows_kernel + 2,
  k_distances_kernel = k_gather_kernel + 2,
  k_given_distances_kernel = k_distances_kernel + 2,
  k_far_kernel = k_given_distances_kernel + 2,
  k_exact_kernel = k_far_kernel + 2,
  k_settle_kernel = k_exact_kernel + 2,
  k_serve_kernel = k_settle_kernel + 2,
  k_serve_pack_kernel = k_serve_kernel + 2,
  k_fold_ranges_kernel,
  k_fold_sums_kernel,
  k_keep_kernel,
  k_labelled_kernel,                         // 2: words per sum
  k_seeding_kernel = k_labelled_kernel + 2,  // 2: up to 8 candidates per step; more
  k_cover_kernel = k_seeding_kernel + 2,
  k_draw_kernel,
  k_nearest_kernel,
  k_batch_kernel,  // 2: verified by the host; enqueued
  k_sparse_search_kernel = k_batch_kernel + 2,
  k_sparse_sums_kernel,
  k_sparse_convert_kernel,
  k_kernel_numbers
};

// A lane keeps at most one part in so many of a device's memory.
inline constexpr std::int64_t k_kept_share = 64;

// The kernels of Lloyd's iterations.
struct pass_kernels {
  pass_policy policy;    // the policy of the pass with sums
  bool general = false;  // general_pass(), for this call only
  const ballast::cuda::kernel* with_sums = nullptr;
  const ballast::cuda::kernel* labels_only = nullptr;
  const ballast::cuda::kernel* update = nullptr;
  std::optional<pass_policy> first_policy;  // first_pass()
  const ballast::cuda::kernel* first = nullptr;
  std::int64_t resident[3] = {};  // blocks of each pass that the device runs at the same time: with sums, labels only, first
};

// Device memory of a call, which its plan keeps for the next one: memory is lent by size, and goes back when its owner does not need it any
// more. All work of the call is ordered on one stream. Calls at the same time have lanes of their own.
class device_lane {
 public:
  using device_buffer = ballast::cuda::device_buffer;

  // `most`: the bytes that it keeps at most.
  device_lane(std::shared_ptr<ballast::cuda::device> on, std::int64_t most) : device_(std::move(on)), most_(most) {}
  device_lane(const device_lane&) = delete;
  device_lane& operator=(const device_lane&) = delete;
  ~device_lane() { begin(nullptr); }  // the stream of the last call may not exist any more

  // Begins a call.
  void begin(ballast::cuda::stream order) {
    order_ = order;
    for (device_buffer& each : idle_) each.release_on(order);
  }

  device_buffer take(std::int64_t bytes) {
    for (device_buffer& each : idle_) {
      if (each.bytes() != bytes) continue;
      device_buffer made = std::move(each);
      each = std::move(idle_.back());
      idle_.pop_back();
      kept_ -= bytes;
      return made;
    }
    try {
      return {device_, bytes, order_};
    } catch (const std::bad_alloc&) {
      if (idle_.empty()) throw;
      idle_.clear();
      kept_ = 0;
      return {device_, bytes, order_};
    }
  }
  void give(device_buffer memory) noexcept {
    if (kept_ + memory.bytes() > most_) return;
    try {
      const std::int64_t bytes = memory.bytes();
      idle_.push_back(std::move(memory));
      kept_ += bytes;
    } catch (const std::bad_alloc&) {  // it is released
    }
  }

 private:
  std::shared_ptr<ballast::cuda::device> device_;
  ballast::cuda::stream order_ = nullptr;
  std::int64_t most_, kept_ = 0;
  std::vector<device_buffer> idle_;
};

// Device memory of a lane, or without one memory of its own.
class lane_buffer {
 public:
  lane_buffer() = default;
  lane_buffer(device_lane& home, std::int64_t bytes) : home_(&home), memory_(home.take((bytes + 255) / 256 * 256)), bytes_(bytes) {}
  explicit lane_buffer(ballast::cuda::device_buffer own) : memory_(std::move(own)), bytes_(memory_.bytes()) {}
  lane_buffer(lane_buffer&& other) noexcept { swap(other); }
  lane_buffer& operator=(lane_buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~lane_buffer() {
    if (home_ != nullptr && memory_.data() != nullptr) home_->give(std::move(memory_));
  }
  void* data() const noexcept { return memory_.data(); }
  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  void swap(lane_buffer& other) noexcept {
    std::swap(home_, other.home_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
  }
  device_lane* home_ = nullptr;
  ballast::cuda::device_buffer memory_;
  std::int64_t bytes_ = 0;
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
  // The same for lanes.
  std::unique_ptr<device_lane> take_lane() {
    {
      const std::lock_guard lock(mutex_);
      if (!lanes_.empty()) {
        std::unique_ptr<device_lane> made = std::move(lanes_.back());
        lanes_.pop_back();
        return made;
      }
    }
    return std::make_unique<device_lane>(device_, device_->about().memory / k_kept_share);
  }
  void give_lane(std::unique_ptr<device_lane> lane) {
    const std::lock_guard lock(mutex_);
    lanes_.push_back(std::move(lane));
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

  // Returns the kernels of passes: from make() at their first use, and again as long as it returns general ones.
  template <class Make>
  pass_kernels passes(int words, bool weighted, bool check, bool instrumented, Make&& make) {
    const std::lock_guard lock(mutex_);
    const std::size_t number =
        8 * (static_cast<std::size_t>(words) - 1) + (check ? 4U : 0U) + (weighted ? 2U : 0U) + (instrumented ? 1U : 0U);
    std::optional<pass_kernels>& known = passes_[number];
    if (!known || known->general) known = make();
    return *known;
  }

 private:
  std::shared_ptr<ballast::cuda::device> device_;
  ballast::cuda::workspace_pool rings_, fits_;
  std::array<std::array<std::atomic<const kernel*>, 2>, k_kernel_numbers> kernels_{};
  std::atomic<bool> prepared_[2] = {};
  std::mutex mutex_;
  std::array<std::optional<pass_kernels>, 16> passes_;
  std::vector<ballast::cuda::pinned_buffer> idle_;
  std::vector<std::unique_ptr<device_lane>> lanes_;
};

// The lane of one call. Everything that it lends must be back when it ends.
class call_lane {
 public:
  call_lane(device_state& home, ballast::cuda::stream order) : home_(home), order_(order), lane_(home.take_lane()) { lane_->begin(order); }
  call_lane(const call_lane&) = delete;
  call_lane& operator=(const call_lane&) = delete;
  ~call_lane() {
    try {
      home_.on()->synchronize(order_);  // the next call may have another stream
      home_.give_lane(std::move(lane_));
    } catch (...) {  // a device that fails here keeps nothing
    }
  }
  device_lane& operator*() const noexcept { return *lane_; }

 private:
  device_state& home_;
  ballast::cuda::stream order_;
  std::unique_ptr<device_lane> lane_;
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
