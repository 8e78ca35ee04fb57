// The streams, the loaded kernels and the tuned choices of a device, which all calls share; and the references to them that a plan keeps.
// Layer: backend "cuda" of QR.
#pragma once

#include <array>
#include <atomic>
#include <complex>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <ballast/qr.hpp>

#include "core/idle_pool.hpp"
#include "cuda/device/blas.hpp"
#include "cuda/device/device.hpp"
#include "cuda/memory/shared_state.hpp"
#include "cuda/memory/workspace.hpp"
#include "qr/contract.hpp"
#include "qr/cuda/kernels/batch_kernels.hpp"
#include "qr/cuda/kernels/kernels.hpp"
#include "qr/cuda/kernels/tuning.hpp"

namespace ballast::qr::cuda {

inline constexpr int k_send_slots = 3;
inline constexpr std::int64_t k_pinned = 1 << 20;       // bytes of pinned memory for results
inline constexpr std::int64_t k_send_slot_bytes = 256;  // bytes of each slot of session::send(), after these

// The streams of a call, with a BLAS handle for each. They take long to create.
struct stream_set {
  explicit stream_set(const std::shared_ptr<ballast::cuda::device>& on);
  ballast::cuda::device_stream main, updates, checks;
  ballast::cuda::device_stream
      send_streams[k_send_slots + 1];  // one for each slot, and one for session::bring(): the host waits for one of them
  std::unique_ptr<ballast::cuda::blas> main_blas, updates_blas, checks_blas;
  std::unique_ptr<ballast::cuda::stream_event> main_reached, updates_reached, checks_reached, updates_marked, checks_marked;
  ballast::cuda::pinned_buffer pinned;
};
using stream_set_pool = core::idle_pool<std::unique_ptr<stream_set>>;

// A pool that the calls of a device share. It keeps at most `most` objects.
template <class Pool>
struct shared_pool final : ballast::cuda::shared_state {
  explicit shared_pool(std::size_t most) : pool(most) {}
  std::int64_t device_bytes() const override { return 0; }
  // Returns the pool `name` of the device.
  static std::shared_ptr<Pool> of(const std::shared_ptr<ballast::cuda::device>& on, const char* name, std::size_t most) {
    const auto state = std::static_pointer_cast<shared_pool>(
        ballast::cuda::find_or_make_kept(on, name, [&] { return std::make_shared<shared_pool>(most); }));
    return {state, &state->pool};
  }
  Pool pool;
};

// The loaded kernels for one type of numbers. A device keeps this table, because looking up about fifty kernels by name takes 90 µs.
template <class S>
struct kernel_table final : ballast::cuda::shared_state {
  kernel_table(ballast::cuda::device& on, bool instrumented);
  std::int64_t device_bytes() const override { return 0; }
  std::vector<const ballast::cuda::kernel*> works;  // by the numbers of `work`
  const ballast::cuda::kernel* panels[k_cluster_count] = {};
  const ballast::cuda::kernel* chains[k_chain_cluster_count] = {};
  // The kernels that factor a matrix by one thread block, by policy.
  std::array<const ballast::cuda::kernel*, k_real_policies> small = {};
  launch_choices choices;

  // Returns the kernel that compares the whole matrix with its single group of checksums. Loads it in the first call: one scheme needs it.
  const ballast::cuda::kernel& match(ballast::cuda::device& on) const;

 private:
  mutable std::atomic<const ballast::cuda::kernel*> match_ = nullptr;
};

// The shared resources of calls with numbers of type S.
template <class S>
struct device_tables {
  std::shared_ptr<ballast::cuda::device> on;
  std::shared_ptr<stream_set_pool> stream_sets;
  std::shared_ptr<const kernel_table<S>> kernels;
};

// A plan's references to all of these, so that its second call does not look them up. Thread-safe.
class plan_tables final : public device_state {
 public:
  template <class S>
  device_tables<S> tables(const std::shared_ptr<ballast::cuda::device>& on, bool instrumented);

  // Takes the workspace of a batch operation: `given` unless that is empty, else `bytes` bytes that the plan keeps.
  ballast::cuda::workspace workspace_for(const std::shared_ptr<ballast::cuda::device>& on, operation what, std::int64_t bytes,
                                         std::span<std::byte> given, ballast::cuda::stream order);

  // As shared_pool<Pool>::of(). A plan uses one pool by this function.
  template <class Pool>
  std::shared_ptr<Pool> pool(const std::shared_ptr<ballast::cuda::device>& on, const char* name, std::size_t most) {
    const std::lock_guard lock(mutex_);
    move_to(on);
    if (pool_ == nullptr) pool_ = shared_pool<Pool>::of(on, name, most);
    return std::static_pointer_cast<Pool>(pool_);
  }

  // The kernel of a batch operation by its policy.
  template <class S>
  const ballast::cuda::kernel& batch_kernel_for(const std::shared_ptr<ballast::cuda::device>& on, batch_work what, int which,
                                                bool instrumented);
  // The same for matrices of any number of rows.
  template <class S>
  const ballast::cuda::kernel& tall_kernel_for(const std::shared_ptr<ballast::cuda::device>& on, batch_work what, tall_size size,
                                               bool instrumented);

 private:
  using policy_kernels = std::array<const ballast::cuda::kernel*, k_batch_policies.size()>;
  void move_to(const std::shared_ptr<ballast::cuda::device>& on);

  std::mutex mutex_;
  std::shared_ptr<ballast::cuda::device> on_;  // the device of everything below
  device_tables<float> floats_[2];             // [1]: instrumented
  device_tables<double> doubles_[2];
  device_tables<std::complex<float>> complex_floats_[2];
  device_tables<std::complex<double>> complex_doubles_[2];
  std::shared_ptr<void> pool_;
  std::array<std::shared_ptr<ballast::cuda::workspace_pool>, 4> workspaces_;  // by operation
  // By type of numbers, instrumentation and batch_work.
  std::array<std::array<std::array<policy_kernels, 3>, 2>, 4> batch_kernels_ = {};
  // By precision, instrumentation and batch_work.
  std::array<std::array<std::array<std::array<const ballast::cuda::kernel*, k_tall_sizes>, 2>, 2>, 2> tall_kernels_ = {};
};

// Without a plan, `kept` is null.
template <class S>
device_tables<S> tables_of(device_state* kept, const std::shared_ptr<ballast::cuda::device>& on, bool instrumented);

}  // namespace ballast::qr::cuda
