// Moves panels between device and host, takes their checkpoints, and keeps the copy of the input.
// Layer: backend "cuda" of QR. See hybrid.hpp.
#include "qr/cuda/engine/hybrid.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <type_traits>
#include <utility>

#include "abft/seal.hpp"
#include "core/at.hpp"
#if defined(BALLAST_HAS_CPU)
#include "core/blas.hpp"
#endif
#include "core/parallel.hpp"
#include "qr/arithmetic/random.hpp"
#include "qr/checks/checkpoint_repair.hpp"
#include "qr/checks/slabs.hpp"
#include "qr/host/strike.hpp"
#include "qr/sites.hpp"

namespace ballast::qr::cuda {

using core::at;

host_side::host_side(const std::shared_ptr<ballast::cuda::device>& on)
    : copies(on, false), panel_read(on->make_event(false)), first_copied(on->make_event(false)), all_copied(on->make_event(false)) {}

namespace {

// A device keeps one: it may hold as much pinned memory as the largest matrix so far needed.
using host_side_pool = core::idle_pool<std::unique_ptr<host_side>>;
std::shared_ptr<host_side_pool> host_sides(device_state* kept, const std::shared_ptr<ballast::cuda::device>& on) {
  constexpr const char* name = "qr host side";
  if (kept != nullptr) return static_cast<plan_tables*>(kept)->pool<host_side_pool>(on, name, 1);
  return shared_pool<host_side_pool>::of(on, name, 1);
}

template <class S>
const kernels<S>& panel_kernels() {
#if defined(BALLAST_HAS_CPU)
  return cpu_kernels<S>();
#else
  return reference_kernels<S>();
#endif
}

// BLAS runs on the calling thread as long as the result is alive.
std::shared_ptr<const void> quiet_blas() {
#if defined(BALLAST_HAS_CPU)
  return std::allocate_shared<const core::single_threaded_blas>(core::pooled_allocator<char>());
#else
  return nullptr;
#endif
}

void at_least(const std::shared_ptr<ballast::cuda::device>& on, ballast::cuda::pinned_buffer& memory, index bytes) {
  if (memory.bytes() >= bytes) return;
  memory = {};  // freed before the new allocation: there may not be room for both
  memory = ballast::cuda::pinned_buffer(on, bytes);
}

// Returns the sum of abft::value_hash over the components of columns of `rows` numbers, as the device computes it.
template <class S>
std::uint64_t hash_of(int threads, const S* X, index rows, index columns) {
  core::vector<std::uint64_t> sums(at(columns));
  const index each = k_reals<S> * rows;
  core::parallel_for(threads, columns, [&](index j, int) {
    std::uint64_t sum = 0;
    for (index i = j * each; i < (j + 1) * each; ++i) sum += abft::value_hash(reals(X)[i], static_cast<std::uint64_t>(i));
    sums[at(j)] = sum;
  });
  std::uint64_t all = 0;
  for (const std::uint64_t each : sums) all += each;
  return all;
}

}  // namespace

template <class S>
hybrid_factorizer<S>::hybrid_factorizer(session<S>& on, const layout& shape, const matrix_view<S>& A, S* tau,
                                        const matrix_view<const S>& source)
    : base(on, shape, A, tau, source),
      kernels_(panel_kernels<S>()),
      lent_host_(host_sides(on.run().device, on.device()), [&] { return std::make_unique<host_side>(on.device()); }),
      host_(lent_host_.get().get()),
      quiet_(quiet_blas()),
      V1_(shape.panel_width * shape.panel_width),
      checkpoints_(at(shape.panels)) {
  const index w = shape.panel_width;
  at_least(on.device(), host_->panel, core::checked_product(w, shape.m + w + 1) * static_cast<index>(sizeof(S)));
}

template <class S>
hybrid_factorizer<S>::~hybrid_factorizer() {
  try {
    // The pinned memory goes to another call: no copy may still read or write it.
    this->on_.settle();
    this->on_.device()->synchronize(this->on_.main());
    this->on_.device()->synchronize(host_->copies.get());
  } catch (const std::exception&) {
    lent_host_.spoil();  // the call that met the failure has reported it
  }
}

template <class S>
S* hybrid_factorizer<S>::panel() const {
  return static_cast<S*>(host_->panel.data());
}
template <class S>
S* hybrid_factorizer<S>::T_here() const {
  return panel() + this->shape_.m * this->nb();
}
template <class S>
S* hybrid_factorizer<S>::tau_here() const {
  return T_here() + this->nb() * this->nb();
}

// --------------------------------------------------------------------------------------------------------- the copy of the input

// The copy begins when the first panel has been read, so that the host can start on that panel, and runs while the host factors it.
template <class S>
void hybrid_factorizer<S>::keep_source() {
  if (this->source_.data == nullptr) copy_ = copy::wanted;
}

template <class S>
void hybrid_factorizer<S>::copy_source(ballast::cuda::stream on, index first, index width) {
  const index m = this->shape_.m, lda = this->lda_, size = static_cast<index>(sizeof(S));
  this->on_.device()->copy_columns(static_cast<S*>(host_->source.data()) + first * m, m * size, this->A_ + first * lda, lda * size,
                                   m * size, width, on);
}

template <class S>
void hybrid_factorizer<S>::start_copy() {
  const index m = this->shape_.m, n = this->shape_.n, first = this->shape_[0].width;
  ballast::cuda::device& device = *this->on_.device();
  at_least(this->on_.device(), host_->source, core::checked_product(m, n) * static_cast<index>(sizeof(S)));
  device.record(*host_->panel_read, this->on_.main());
  device.wait(*host_->panel_read, host_->copies.get());
  copy_source(host_->copies.get(), 0, first);
  device.record(*host_->first_copied, host_->copies.get());
  copy_source(host_->copies.get(), first, n - first);
  device.record(*host_->all_copied, host_->copies.get());
  // The device reads pinned memory directly.
  this->source_ = column_major<const S>(static_cast<const S*>(host_->source.data()), m, n);
  copy_ = copy::under_way;
}

// Orders the main stream after the copy: later work may change any column, and read the copy.
template <class S>
void hybrid_factorizer<S>::finish_copy() {
  if (copy_ != copy::under_way) return;
  this->on_.device()->wait(*host_->all_copied, this->on_.main());
  copy_ = copy::done;
}

template <class S>
void hybrid_factorizer<S>::scale(const int* shifts) {
  finish_copy();
  if (this->source_.data == nullptr) {
    // Copied at once: after scaling, A no longer holds the input.
    this->on_.join(this->on_.update_stream());
    at_least(this->on_.device(), host_->source, core::checked_product(this->shape_.m, this->shape_.n) * static_cast<index>(sizeof(S)));
    copy_source(this->on_.main(), 0, this->shape_.n);
    this->source_ = column_major<const S>(static_cast<const S*>(host_->source.data()), this->shape_.m, this->shape_.n);
    copy_ = copy::done;
  }
  base::scale(shifts);
}

template <class S>
void hybrid_factorizer<S>::restart() {
  finish_copy();
  base::restart();
}

template <class S>
void hybrid_factorizer<S>::give_back() {
  finish_copy();
  base::give_back();
}

template <class S>
void hybrid_factorizer<S>::reload(index b) {
  finish_copy();
  base::reload(b);
}

template <class S>
void hybrid_factorizer<S>::advance(index k, index first, core::function_ref<void()> ahead) {
  finish_copy();
  base::advance(k, first, ahead);
}

// ---------------------------------------------------------------------------------------------------------------------- panels

// Copies panel k, T and tau from the device.
template <class S>
void hybrid_factorizer<S>::bring(index k) {
  const layout::block& b = this->shape_[k];
  const index rows = this->shape_.m - b.first, size = static_cast<index>(sizeof(S));
  this->on_.device()->copy_columns(panel(), rows * size, this->A_ + b.first + b.first * this->lda_, this->lda_ * size, rows * size, b.width,
                                   this->on_.main());
  this->on_.copy(T_here(), this->T(k), b.width * b.width * size);
  this->on_.copy(tau_here(), this->tau_ + b.first, b.width * size);
  this->on_.device()->synchronize(this->on_.main());
  held_ = k;
}

// Copies the panel, T and tau to the device; the host does not wait.
template <class S>
void hybrid_factorizer<S>::send(index k) {
  const layout::block& b = this->shape_[k];
  const index rows = this->shape_.m - b.first, size = static_cast<index>(sizeof(S));
  // The first panel is the first to be overwritten.
  if (copy_ == copy::under_way) this->on_.device()->wait(*host_->first_copied, this->on_.main());
  S* const there = this->A_ + b.first + b.first * this->lda_;
  this->on_.device()->copy_columns(there, this->lda_ * size, panel(), rows * size, rows * size, b.width, this->on_.main());
  this->on_.copy(this->T(k), T_here(), b.width * b.width * size);
  this->on_.copy(this->tau_ + b.first, tau_here(), b.width * size);
  held_ = k;
  for (index j = 0; j < b.width && this->on_.armed(site::transfer); ++j) {
    const inject::position here{b.first + j, this->shape_.steps, 1, 3};
    this->on_.strike(site::transfer, here, there + j * this->lda_, rows);
    this->on_.strike(site::transfer, {here.interval, here.intervals, 2, 3}, this->T(k) + j * b.width, j + 1);
  }
}

template <class S>
void hybrid_factorizer<S>::factor_panel(index k, bool finite) {
  const layout::block& b = this->shape_[k];
  const index m = this->shape_.m, rows = m - b.first, w = b.width, size = static_cast<index>(sizeof(S));
  S* const X = panel();
  ballast::cuda::device& device = *this->on_.device();
  device.copy_columns(X, rows * size, this->A_ + b.first + b.first * this->lda_, this->lda_ * size, rows * size, w, this->on_.main());
  if (copy_ == copy::wanted) start_copy();
  this->on_.catch_up();
  device.synchronize(this->on_.main());
  inject::active_injector& injector = this->on_.run().injector;
  if constexpr (inject::active_injector::enabled) {
    for (index j = 0; j < w; ++j) {
      host::strike(injector, site::transfer, {b.first + j, this->shape_.steps, 0, 3}, X + j * rows, rows);
      host::strike(injector, site::panel, {b.first + j, this->shape_.steps, 0, 1}, X + j * rows, rows);
    }
  }
  kernels_.factor_panel(rows, w, X, rows, tau_here(), T_here(), this->on_.run().threads, finite, true);
  if constexpr (inject::active_injector::enabled) {
    for (index j = 0; j < w; ++j) {
      host::strike(injector, site::reflector, {b.first + j, std::min(m - 1, this->shape_.n), 0, 3}, X + j + 1 + j * rows, rows - j - 1);
      host::strike(injector, site::tau, {b.first + j, this->shape_.steps, 0, 1}, tau_here() + j, 1);
      host::strike(injector, site::t, {b.first + j, this->shape_.steps, 0, 2}, T_here() + j * w, j + 1);
    }
  }
  send(k);
  this->forget_v(k);
}

template <class S>
block_reflector<S> hybrid_factorizer<S>::reflector_of(index k, const S* panel, index ld, const S* T) {
  const layout::block& b = this->shape_[k];
  copy_triangle(b.width, panel, ld, V1_.data());
  return {this->shape_.m - b.first, b.width, V1_.data(), panel + b.width, ld, T};
}

template <class S>
auto hybrid_factorizer<S>::seal_of(index k) const -> seal {
  const layout::block& b = this->shape_[k];
  const int threads = this->on_.run().threads;
  return {hash_of(threads, panel(), this->shape_.m - b.first, b.width), hash_of(1, T_here(), b.width, b.width),
          hash_of(1, tau_here(), b.width, 1)};
}

// The device's checks see the data that it has received. While they run, and the panel is on its way, the host computes the checkpoint of V
// as it was sent, and the hashes that the received data must have.
template <class S>
void hybrid_factorizer<S>::measure_panel(index k, panel_sums* seen) {
  const layout::block& b = this->shape_[k];
  const index rows = this->shape_.m - b.first;
  if (held_ != k) bring(k);  // the panel was not factored by the host
  base::measure_panel(k, seen);
  auto* const received = reinterpret_cast<unsigned long long*>(this->numbers(received_, 3));
  this->on_.device()->zero(received, 3 * static_cast<index>(sizeof *received), this->on_.main());
  this->hash(this->A_ + b.first + b.first * this->lda_, this->lda_, rows, b.width, false, received);
  this->hash(this->T(k), b.width, b.width, b.width, false, received + 1);
  this->hash(this->tau_ + b.first, b.width, b.width, 1, false, received + 2);
  this->on_.template fetch<unsigned long long>(received, 3, [this, seen](const unsigned long long* made) {
    const bool same = seal{made[0], made[1], made[2]} == sent_;
    seen->sent = same ? 0 : std::numeric_limits<double>::quiet_NaN();
  });
  take_checkpoint(k);
  sent_ = seal_of(k);
}

template <class S>
void hybrid_factorizer<S>::take_checkpoint(index k) {
  if (row_weights_.empty()) {
    row_weights_.resize(at(k_reals<S> * this->shape_.m));
    for (std::size_t i = 0; i < row_weights_.size(); ++i) row_weights_[i] = abft::random_weight(k_weight_seed, k_checkpoint_stream, i);
  }
  const index first = this->shape_[k].first;
  checkpoint_of(kernels_, this->on_.run().threads, reflector_of(k, panel(), this->shape_.m - first, T_here()),
                row_weights_.data() + k_reals<S> * first, checkpoints_[at(k)]);
}

// Copies the panel to the host, where the same sums in the same order agree to the bit with those from before it was sent.
template <class S>
bool hybrid_factorizer<S>::repair_v(index k, index* column) {
  const layout::block& b = this->shape_[k];
  const index m = this->shape_.m;
  core::vector<S> V = this->read_block(k);
  core::vector<double> now;
  checkpoint_of(kernels_, this->on_.run().threads, reflector_of(k, V.data() + b.first, m, nullptr),
                row_weights_.data() + k_reals<S> * b.first, now);
  checkpoint_repair<S> repair(m, row_weights_.data());
  for (index l = 0; l < b.width; ++l) {
    if (!repair.column(V.data() + l * m, b.first + l, checkpoints_[at(k)].data() + l, now.data() + l, b.width, column)) return false;
  }
  this->write_block(k, V);
  return true;
}

template <class S>
void hybrid_factorizer<S>::recover_column(index j) {
  held_ = -1;
  base::recover_column(j);
}

template class hybrid_factorizer<float>;
template class hybrid_factorizer<double>;
template class hybrid_factorizer<std::complex<float>>;
template class hybrid_factorizer<std::complex<double>>;

}  // namespace ballast::qr::cuda
