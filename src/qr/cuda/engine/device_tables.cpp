// Creates and finds the resources that calls share.
// Layer: backend "cuda" of QR. See device_tables.hpp.
#include "qr/cuda/engine/device_tables.hpp"

#include <string>
#include <type_traits>
#include <utility>

#include <ballast/error.hpp>

#include "qr/cuda/kernels/recovery_kernels.hpp"
#include "qr/cuda/kernels/table_kernels.hpp"

namespace ballast::qr::cuda {

namespace {

// Idle stream sets of a device. A call beyond these creates its own streams and destroys them.
constexpr std::size_t k_idle_stream_sets = 4;

}  // namespace

stream_set::stream_set(const std::shared_ptr<ballast::cuda::device>& on)
    : main(on, true),
      updates(on, false),
      checks(on, true),
      send_streams{ballast::cuda::device_stream(on), ballast::cuda::device_stream(on), ballast::cuda::device_stream(on),
                   ballast::cuda::device_stream(on)},
      main_blas(on->make_blas(ballast::cuda::blas_math::full, main.get())),
      updates_blas(on->make_blas(ballast::cuda::blas_math::full, updates.get())),
      checks_blas(on->make_blas(ballast::cuda::blas_math::full, checks.get())),
      main_reached(on->make_event(false)),
      updates_reached(on->make_event(false)),
      checks_reached(on->make_event(false)),
      updates_marked(on->make_event(false)),
      checks_marked(on->make_event(false)),
      pinned(on, k_pinned + k_send_slots * k_send_slot_bytes) {}

template <class S>
kernel_table<S>::kernel_table(ballast::cuda::device& on, bool instrumented)
    : choices(choice_table::active().choices_for(on.about().major, sizeof(real_of<S>) == 8)) {
  const ballast::cuda::capabilities& about = on.about();
  // Together, so that what has to be compiled is compiled side by side; `works` are the first of them.
  const table_kernels all = table_kernels_of<S>(about, instrumented);
  works = on.load_all(all.wanted);
  for (std::size_t which = 0; which < small.size(); ++which) {
    if (all.small[which]) small[which] = works[*all.small[which]];
  }
  works.resize(all.own);
  for (int t = 0; t < k_cluster_count; ++t) {
    if (kernel_names<S>::runs(t, about)) panels[t] = &on.load(kernel_names<S>::panel(t, about));
    // A device may have no group of so many multiprocessors.
    if (panels[t] != nullptr && on.resident_blocks(*panels[t]) < k_clusters[t].blocks) panels[t] = nullptr;
  }
  for (int t = 0; t < k_chain_cluster_count; ++t) {
    if (kernel_names<S>::runs_chain(t, about)) chains[t] = &on.load(kernel_names<S>::chain(t));
  }
}

template <class S>
const ballast::cuda::kernel& kernel_table<S>::match(ballast::cuda::device& on) const {
  const ballast::cuda::kernel* made = match_.load();
  if (made == nullptr) match_ = made = &on.load(recovery_names<S>::match());
  return *made;
}

void plan_tables::move_to(const std::shared_ptr<ballast::cuda::device>& on) {
  if (on_ == on) return;
  for (auto& each : floats_) each = {};
  for (auto& each : doubles_) each = {};
  for (auto& each : complex_floats_) each = {};
  for (auto& each : complex_doubles_) each = {};
  for (auto& each : workspaces_) each = nullptr;
  pool_ = nullptr;
  batch_kernels_ = {};
  tall_kernels_ = {};
  on_ = on;
}

template <class S>
device_tables<S> plan_tables::tables(const std::shared_ptr<ballast::cuda::device>& on, bool instrumented) {
  const auto mine = [&]() -> device_tables<S>& {
    if constexpr (std::is_same_v<S, float>) {
      return floats_[instrumented ? 1 : 0];
    } else if constexpr (std::is_same_v<S, std::complex<float>>) {
      return complex_floats_[instrumented ? 1 : 0];
    } else if constexpr (std::is_same_v<S, std::complex<double>>) {
      return complex_doubles_[instrumented ? 1 : 0];
    } else {
      return doubles_[instrumented ? 1 : 0];
    }
  };
  {
    const std::lock_guard lock(mutex_);
    move_to(on);
    if (mine().kernels != nullptr) return mine();
  }
  // Without the lock: the kernels may have to be compiled.
  device_tables<S> made = tables_of<S>(nullptr, on, instrumented);
  const std::lock_guard lock(mutex_);
  if (on_ == on) mine() = made;
  return made;
}

ballast::cuda::workspace plan_tables::workspace_for(const std::shared_ptr<ballast::cuda::device>& on, operation what, std::int64_t bytes,
                                                    std::span<std::byte> given, ballast::cuda::stream order) {
  std::shared_ptr<ballast::cuda::workspace_pool> pool;
  {
    const std::lock_guard lock(mutex_);
    move_to(on);
    auto& mine = workspaces_[static_cast<std::size_t>(what)];
    // Matrices with other gaps may need another size.
    if (mine == nullptr || mine->bytes() != bytes) mine = std::make_shared<ballast::cuda::workspace_pool>(on, bytes);
    pool = mine;
  }
  return pool->take(given, order);
}

template <class S>
const ballast::cuda::kernel& plan_tables::batch_kernel_for(const std::shared_ptr<ballast::cuda::device>& on, batch_work what, int which,
                                                           bool instrumented) {
  const auto mine = [&]() -> const ballast::cuda::kernel*& {
    constexpr std::size_t type = (sizeof(real_of<S>) == 8 ? 1 : 0) + (is_complex<S> ? 2 : 0);
    return batch_kernels_[type][instrumented ? 1 : 0][static_cast<std::size_t>(what)][static_cast<std::size_t>(which)];
  };
  {
    const std::lock_guard lock(mutex_);
    move_to(on);
    if (mine() != nullptr) return *mine();
  }
  const ballast::cuda::kernel& made = on->load(batch_kernel<S>(what, which, instrumented));
  const std::lock_guard lock(mutex_);
  if (on_ == on) mine() = &made;
  return made;
}

template <class S>
const ballast::cuda::kernel& plan_tables::tall_kernel_for(const std::shared_ptr<ballast::cuda::device>& on, batch_work what, tall_size size,
                                                          bool instrumented) {
  const auto mine = [&]() -> const ballast::cuda::kernel*& {
    return tall_kernels_[sizeof(S) == 8 ? 1 : 0][instrumented ? 1 : 0][what == batch_work::factor ? 0 : 1][static_cast<std::size_t>(size)];
  };
  {
    const std::lock_guard lock(mutex_);
    move_to(on);
    if (mine() != nullptr) return *mine();
  }
  const ballast::cuda::kernel& made = on->load(tall_kernel<S>(what, size, on->about(), instrumented));
  const std::lock_guard lock(mutex_);
  if (on_ == on) mine() = &made;
  return made;
}

template <class S>
device_tables<S> tables_of(device_state* kept, const std::shared_ptr<ballast::cuda::device>& on, bool instrumented) {
  if (kept != nullptr) return static_cast<plan_tables*>(kept)->tables<S>(on, instrumented);
  const std::string name = std::string("qr kernels of ") + (is_complex<S> ? "complex " : "") +
                           (sizeof(real_of<S>) == 4 ? "floats" : "doubles") + (instrumented ? ", struck" : "");
  return {on, shared_pool<stream_set_pool>::of(on, "qr stream sets", k_idle_stream_sets),
          std::static_pointer_cast<const kernel_table<S>>(
              ballast::cuda::find_or_make_kept(on, name, [&] { return std::make_shared<kernel_table<S>>(*on, instrumented); }))};
}

std::unique_ptr<device_state> make_device_state() { return std::make_unique<plan_tables>(); }

#define BALLAST_INSTANTIATE(S)     \
  template struct kernel_table<S>; \
  template device_tables<S> tables_of<S>(device_state*, const std::shared_ptr<ballast::cuda::device>&, bool);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
BALLAST_INSTANTIATE(std::complex<float>)
BALLAST_INSTANTIATE(std::complex<double>)
#undef BALLAST_INSTANTIATE
template const ballast::cuda::kernel& plan_tables::tall_kernel_for<float>(const std::shared_ptr<ballast::cuda::device>&, batch_work,
                                                                          tall_size, bool);
template const ballast::cuda::kernel& plan_tables::tall_kernel_for<double>(const std::shared_ptr<ballast::cuda::device>&, batch_work,
                                                                           tall_size, bool);
#define BALLAST_INSTANTIATE(S)                                                                                                           \
  template const ballast::cuda::kernel& plan_tables::batch_kernel_for<S>(const std::shared_ptr<ballast::cuda::device>&, batch_work, int, \
                                                                         bool);
BALLAST_INSTANTIATE(float)
BALLAST_INSTANTIATE(double)
BALLAST_INSTANTIATE(complex_number<float>)
BALLAST_INSTANTIATE(complex_number<double>)
#undef BALLAST_INSTANTIATE

}  // namespace ballast::qr::cuda
