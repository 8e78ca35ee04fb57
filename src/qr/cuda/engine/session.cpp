// Streams of a call, results on their way to the host, launches, strikes.
// Layer: backend "cuda" of QR. See session.hpp.
#include "qr/cuda/engine/session.hpp"

#include <algorithm>
#include <exception>
#include <type_traits>

#include "qr/cuda/kernels/batch_kernels.hpp"

namespace ballast::qr::cuda {

template <class S>
session<S>::session(const context& run)
    : run_(run),
      device_(ballast::cuda::current_device()),
      tables_(tables_of<S>(run.device, device_, inject::armed_sites(run.injector) != 0)),
      stream_set_(tables_.stream_sets, [&] { return std::make_unique<stream_set>(device_); }) {
  run_.seen.runs_on(device_->about().name);
  // Earlier work of the caller's stream comes first.
  stream_set& mine = *stream_set_.get();
  if (run_.how.stream != mine.main.get()) {
    device_->record(*mine.main_reached, run_.how.stream);
    device_->wait(*mine.main_reached, main());
  }
  faults_ = ballast::cuda::fault_list(device_, run_.injector, main());
}

template <class S>
const ballast::cuda::kernel& session<S>::kernel_of(work what) const {
  return *tables_.kernels->works[static_cast<std::size_t>(what)];
}

template <class S>
session<S>::~session() {
  settle();
  try {
    device_->synchronize(main());
  } catch (const std::exception&) {
    stream_set_.spoil();  // the call that met the failure has reported it
  }
}

template <class S>
void session<S>::mark(stream from) {
  device_->record(from == update_stream() ? *stream_set_.get()->updates_marked : *stream_set_.get()->checks_marked, from);
}

template <class S>
void session<S>::join_mark(stream from) {
  device_->wait(from == update_stream() ? *stream_set_.get()->updates_marked : *stream_set_.get()->checks_marked, main());
}

template <class S>
void session<S>::settle() noexcept {
  try {
    join(update_stream());
    join(check_stream());
    for (int slot = 0; slot <= k_send_slots; ++slot) {
      if (sent_[slot]) (void)await(slot);
    }
  } catch (const std::exception&) {
    return;  // the device is lost, and with it what was to be waited for
  }
}

template <class S>
ballast::cuda::stream session<S>::main() const {
  return stream_set_.get()->main.get();
}

template <class S>
ballast::cuda::stream session<S>::update_stream() const {
  return stream_set_.get()->updates.get();
}

template <class S>
ballast::cuda::stream session<S>::check_stream() const {
  return stream_set_.get()->checks.get();
}

template <class S>
ballast::cuda::blas& session<S>::blas(stream on) const {
  return on == main()            ? *stream_set_.get()->main_blas
         : on == update_stream() ? *stream_set_.get()->updates_blas
                                 : *stream_set_.get()->checks_blas;
}

template <class S>
ballast::cuda::stream_event& session<S>::reached(stream by) const {
  return by == main()            ? *stream_set_.get()->main_reached
         : by == update_stream() ? *stream_set_.get()->updates_reached
                                 : *stream_set_.get()->checks_reached;
}

template <class S>
void session<S>::follow(stream to, stream from) {
  device_->record(reached(from), from);
  device_->wait(reached(from), to);
}

template <class S>
void session<S>::put_off(deferred work) {
  put_off_ = std::move(work);
}

template <class S>
void session<S>::catch_up() {
  if (const deferred work = std::exchange(put_off_, {})) work();
}

template <class S>
void session<S>::wait() {
  catch_up();
  device_->synchronize(main());
  const auto todo = std::exchange(pending_, {});
  for (const auto& each : todo) each();
  landed_ = 0;
  more_.clear();
}

template <class S>
void session<S>::send(int slot, const void* from, std::int64_t bytes, stream on) {
  const ballast::cuda::stream to = stream_set_.get()->send_streams[slot].get();
  follow(to, on);
  device_->copy(static_cast<std::byte*>(stream_set_.get()->pinned.data()) + k_pinned + slot * k_send_slot_bytes, from, bytes, to);
  sent_[slot] = true;
}

template <class S>
void session<S>::bring(void* there, const void* from, std::int64_t bytes, stream on) {
  const ballast::cuda::stream to = stream_set_.get()->send_streams[k_send_slots].get();
  follow(to, on);
  device_->copy(there, from, bytes, to);
  sent_[k_send_slots] = true;
}

template <class S>
const void* session<S>::await(int slot) {
  device_->synchronize(stream_set_.get()->send_streams[slot].get());
  sent_[slot] = false;
  return static_cast<const std::byte*>(stream_set_.get()->pinned.data()) + k_pinned + slot * k_send_slot_bytes;
}

template <class S>
void* session<S>::landing(std::int64_t bytes) {
  const std::int64_t padded = (bytes + 63) / 64 * 64;
  if (landed_ + padded <= k_pinned) {
    void* const made = static_cast<std::byte*>(stream_set_.get()->pinned.data()) + landed_;
    landed_ += padded;
    return made;
  }
  more_.emplace_back(bytes);
  return more_.back().data();
}

template <class S>
auto session<S>::plan_panel(std::int64_t rows, int width) const -> panel_plan {
  panel_plan made;
  for (int t = 0; t < k_cluster_count; ++t) {
    if (tables_.kernels->panels[t] != nullptr && rows > choices().team_rows[t]) made.cluster = t;
  }
  const auto [blocks, threads] = k_clusters[made.cluster];
  // Slabs end at a line of memory.
  const std::int64_t each = (rows + blocks - 1) / blocks;
  made.slab = (each + 15) / 16 * 16;
  const std::int64_t bytes = panel_front<S>(blocks, threads) + (width + 2) * made.slab * static_cast<std::int64_t>(sizeof(S));
  made.resident = bytes <= panel_shared_bytes(made.cluster, device_->about());
  return made;
}

template <class S>
bool session<S>::uses_cholesky_qr(std::int64_t rows, std::int64_t width) const {
  if (k_reals<S> * width > widest_panel(device_->about()) || rows < 2 * width) return false;
  return (width > k_inner && rows >= choices().tall_rows) ||
         !plan_panel(rows, static_cast<int>(std::min<std::int64_t>(width, k_inner))).resident;
}

template <class S>
template <class T>
void session<S>::scan(scan_arguments<T> given, std::int64_t columns, stream on) const {
  const std::int64_t wanted = columns > 0 ? choices().scan_blocks / columns : 1;
  given.chunks = std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, given.rows / choices().scan_rows));
  buffer memory;
  if (given.chunks > 1) {
    const std::int64_t sums = columns * given.chunks * static_cast<std::int64_t>(sizeof(double));
    const std::int64_t counters = columns * static_cast<std::int64_t>(sizeof(std::uint32_t));
    memory = {device_, sums + counters, on};
    given.partial = static_cast<double*>(memory.data());
    given.arrived = reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(memory.data()) + sums);
    device_->zero(given.arrived, counters, on);
  }
  launch(std::is_same_v<T, S> ? work::scan : work::scan_double, columns * given.chunks, given, on);
}

template <class S>
void session<S>::launch_panel(int cluster, const panel_arguments<S>& given) const {
  device_->launch(*tables_.kernels->panels[cluster], k_clusters[cluster].blocks, &given, sizeof given, main());
}

template <class S>
void session<S>::launch_chain(const chain_arguments<S>& given, const buffer& parts, stream on) const {
  if (parts.data() != nullptr) {
    const std::int64_t blocks = parts.bytes() / (k_chain_sums * std::int64_t{sizeof(double)}) - 1;
    auto* const of_blocks = static_cast<double*>(parts.data());
    double* const all = of_blocks + blocks * k_chain_sums;
    const std::int64_t groups = (k_reals<S> * given.count + k_inner - 1) / k_inner;
    for (std::int64_t s = 0; s <= groups; ++s) {
      launch(work::tall_chain, blocks, tall_chain_arguments<S>{given, s, all, of_blocks}, on);
      if (s < groups) launch(work::fold, (k_chain_sums + 31) / 32, fold_arguments{of_blocks, blocks, k_chain_sums, all}, on);
    }
    return;
  }
  if (is_complex<S>) return device_->launch(*tables_.kernels->chains[0], k_vectors, &given, sizeof given, on);
  const int which = given.rows > choices().team_rows[1] && tables_.kernels->chains[1] != nullptr ? 1 : 0;
  device_->launch(*tables_.kernels->chains[which], k_chain_clusters[which].blocks, &given, sizeof given, on);
}

// A step of all multiprocessors takes two launches, about as long as the pass of a cluster over 1500 rows. The passes of a cluster over V
// that is not tall take no longer than the products with many columns, beside which they run, and leave them the other multiprocessors.
template <class S>
auto session<S>::chain_parts(std::int64_t rows, std::int64_t count, bool few) const -> buffer {
  constexpr std::int64_t least = 2048, ratio = 8, rows_of_block = 8 * k_tall_chain_threads / 32;
  const std::int64_t reals = k_reals<S> * rows;
  const bool tall = reals >= least && rows >= ratio * count;
  if (!tall && !(few && reals >= 2 * least)) return {};
  const std::int64_t blocks = std::min<std::int64_t>(2 * device_->about().multiprocessors, (reals + rows_of_block - 1) / rows_of_block);
  return allocate_of<double>((blocks + 1) * k_chain_sums);
}

template <class S>
std::uint64_t session<S>::hash(const S* X, std::int64_t ld, std::int64_t rows, std::int64_t columns) {
  const buffer sum = allocate_of<unsigned long long>(1);
  auto* const to = static_cast<unsigned long long*>(sum.data());
  device_->zero(to, sizeof *to, main());
  if (rows > 0) launch(work::hash, columns, hash_arguments<S>{X, ld, rows, false, to});
  std::uint64_t made = 0;
  fetch<unsigned long long>(to, 1, [&made](const unsigned long long* seen) { made = *seen; });
  wait();
  return made != 0 ? made : 1;
}

template <class S>
void session<S>::form_v(const reflectors<S>& h, S* V, stream on, bool checked, const cholesky_qr_state* state) const {
  launch(work::form_v, slabs(h.rows) * h.width, form_v_arguments<S>{h.V, h.ldv, h.rows, h.width, V, checked, state}, on);
}

template <class S>
void session<S>::make_t(const matrix_view<const S>& V, std::int64_t width, const S* tau, S* T) const {
  const std::int64_t panels = (V.columns + width - 1) / width, numbers = core::checked_product(panels, width * width);
  const int tiles = wide_tiles(static_cast<int>(width));
  const std::int64_t blocks = panels * (tiles * (tiles + 1) / 2);
  // Two blocks for each multiprocessor, if that leaves each of them chunk_rows rows.
  const std::int64_t chunks = std::clamp<std::int64_t>((2 * device_->about().multiprocessors + blocks - 1) / blocks, 1,
                                                       std::max<std::int64_t>(1, V.rows / choices().chunk_rows));
  using wide = wide_of<S>;
  const buffer gram = allocate_of<wide>(numbers);
  const buffer parts = chunks > 1 ? allocate_of<wide>(core::checked_product(chunks, numbers)) : buffer();
  wide_arguments<S> all{.V = V.data,
                        .ldv = V.column_stride,
                        .rows = V.rows,
                        .count = V.columns,
                        .width = static_cast<int>(width),
                        .tau = tau,
                        .G = static_cast<wide*>(chunks > 1 ? parts.data() : gram.data()),
                        .chunks = static_cast<int>(chunks),
                        .T = T,
                        .half = 0};
  launch(work::wide_gram, blocks * chunks, all);
  all.G = static_cast<wide*>(gram.data());
  const std::int64_t doubles = k_reals<S> * numbers;
  if (chunks > 1)
    launch(work::fold, (doubles + 31) / 32,
           fold_arguments{static_cast<const double*>(parts.data()), chunks, doubles, static_cast<double*>(gram.data())});
  constexpr std::int64_t warps = k_threads / 32;
  launch(work::wide_parts, (panels * ((width + k_inner - 1) / k_inner) + warps - 1) / warps, all);
  for (all.half = k_inner; all.half < all.width; all.half *= 2)
    launch(work::wide_join, panels * wide_pairs(all.width, all.half) * (all.half / k_wide_strip), all);
}

template <class S>
bool session<S>::factor_small(const matrix_view<S>& A, S* tau) const {
  const int which = batch_policy_for(batch_work::factor, A.rows, A.columns, device_->about());
  const ballast::cuda::kernel* const kernel =
      is_complex<S> || which < 0 ? nullptr : tables_.kernels->small[static_cast<std::size_t>(which)];
  if (kernel == nullptr) return false;
  const batch_factor_arguments<S> given{.A = {A.data, A.row_stride, A.column_stride, 0},
                                        .tau = tau,
                                        .count = 1,
                                        .m = static_cast<int>(A.rows),
                                        .n = static_cast<int>(A.columns),
                                        .repeats = -1};
  device_->launch(*kernel, 1, &given, sizeof given, main());
  return true;
}

template <class S>
template <class T>
void session<S>::strike_armed(inject::site where, const inject::position& here, T* data, std::int64_t count, stream on) const {
  const strike_arguments<real_of<T>> given{reals(data),
                                           k_reals<T> * count,
                                           here.interval,
                                           here.intervals,
                                           static_cast<std::int32_t>(here.step),
                                           static_cast<std::int32_t>(here.steps),
                                           static_cast<std::int32_t>(where)};
  ballast::cuda::launch(*device_, device_->load(kernel_names<real_of<T>>::strike()), 1, given, faults_, on);
}

template class session<float>;
template class session<double>;
template class session<std::complex<float>>;
template class session<std::complex<double>>;
#define BALLAST_INSTANTIATE(S, T)                                                \
  template void session<S>::scan(scan_arguments<T>, std::int64_t, stream) const; \
  template void session<S>::strike_armed(inject::site, const inject::position&, T*, std::int64_t, stream) const;
BALLAST_INSTANTIATE(float, float)
BALLAST_INSTANTIATE(float, double)
BALLAST_INSTANTIATE(double, double)
BALLAST_INSTANTIATE(std::complex<float>, std::complex<float>)
BALLAST_INSTANTIATE(std::complex<float>, std::complex<double>)
BALLAST_INSTANTIATE(std::complex<double>, std::complex<double>)
#undef BALLAST_INSTANTIATE
template void session<std::complex<float>>::strike_armed(inject::site, const inject::position&, double*, std::int64_t, stream) const;
template void session<std::complex<double>>::strike_armed(inject::site, const inject::position&, double*, std::int64_t, stream) const;

}  // namespace ballast::qr::cuda
