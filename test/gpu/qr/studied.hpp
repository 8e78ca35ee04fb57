// The scheme hybrid with its protection taken apart: a factorizer that leaves out parts of it, writes a fault to device memory at a given
// place, or waits for each of its operations and measures it. The driver and everything else are the library's.
// Layer: gpu-check, over backend "cuda" of QR.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include <ballast/report.hpp>

#include "qr/cuda/engine/hybrid.hpp"
#include "qr/driver/factorization.hpp"
#include "stages.hpp"

namespace ballast::gpu_check::factors {

using index = std::int64_t;

// The paper's sources of overhead, in its order.
enum source : std::size_t { duplicate, generate, carry, checkpoint, check_r, check_q, recover_q, recover_r, source_count };
inline constexpr std::array<const char*, source_count> k_source_names = {"the input is copied to the host",
                                                                         "checksums are generated",
                                                                         "two checksum columns are updated",
                                                                         "Q is checkpointed by the host",
                                                                         "R and A' are verified",
                                                                         "Q is verified",
                                                                         "two elements of a column of Q are placed",
                                                                         "a column of R or A' is recovered"};

// One call.
struct study {
  enum class fault { none, in_a, in_q };
  protection level = protection::correct;
  bool q = true;                   // Q is protected, too; false: no check, no hash and no checkpoint of V, T and tau
  bool checkpoints = true;         // the host takes checkpoints
  bool plain = false;              // recovery applies one rotation after the other
  fault struck = fault::none;      // in_a: an element of A' before a panel. in_q: two elements of a column of V at the end
  double* milliseconds = nullptr;  // added up by source; null: do not wait
};

// The place of a fault: as in the paper if the matrix is large enough.
struct struck_positions {
  index panel, column, first, second;
  explicit struck_positions(const qr::layout& shape)
      : panel(std::min<index>(30, shape.panels / 2)),
        column(std::min<index>(311, shape.steps / 3)),
        first(shape.m > 1000 ? 611 : column + (shape.m - column) / 3),
        second(shape.m > 1000 ? 728 : column + (shape.m - column) / 2) {}
};

template <class S>
class studied_factorizer final : public qr::cuda::hybrid_factorizer<S> {
 public:
  studied_factorizer(const study& wanted, qr::cuda::session<S>& on, const qr::layout& shape, const matrix_view<S>& A, S* tau,
                     const matrix_view<const S>& source)
      : base(on, shape, A, tau, source), wanted_(wanted), positions_(shape) {
    if (wanted_.milliseconds == nullptr) return;
    begin_ = on.device()->make_event(true);
    end_ = on.device()->make_event(true);
  }

  void encode(const double* weights, bool keep, double* squares) override {
    timed(source::generate, [&] { base::encode(weights, keep, squares); });
  }
  void begin_panel(index k) override {
    base::begin_panel(k);
    if (wanted_.struck != study::fault::in_a || k != positions_.panel || struck_) return;
    const index first = this->shape_[k].first, column = first + (this->shape_[k].width > 1 ? 1 : 0);
    put(first, column, S(1000));
  }
  void measure_panel(index k, qr::panel_sums* seen) override {
    if (!wanted_.q) {
      *seen = {};
      waits_ = false;
      return;
    }
    if (!timing()) return base::measure_panel(k, seen);
    quiet();
    clock_ = {};
    base::measure_panel(k, seen);
  }
  // Without checks of a panel the driver waits for nothing after it.
  void wait() override {
    if (std::exchange(waits_, true)) base::wait();
  }
  void accept_panel(index k) override {
    if (wanted_.q) base::accept_panel(k);
  }
  void end_pass() override {
    base::end_pass();
    if (timing() && this->checked()) time_carrying();
    if (wanted_.struck != study::fault::in_q || struck_) return;
    put(positions_.first, positions_.column, S(0.5));
    put(positions_.second, positions_.column, S(-0.25));
  }
  void measure_all(qr::block_sums* seen) override {
    if (wanted_.q) timed(source::check_q, [&] { base::measure_all(seen); });
  }
  void measure_matrix(qr::matrix_sums* seen) override {
    timed(source::check_r, [&] { base::measure_matrix(seen); });
  }
  void measure_certificate(double* residual) override {
    if (wanted_.q) timed(source::check_q, [&] { base::measure_certificate(residual); });
  }
  bool repair_v(index k, index* column) override {
    bool good = false;
    timed(source::recover_q, [&] { good = base::repair_v(k, column); });
    return good;
  }
  void recover_column(index j) override {
    timed(source::recover_r, [&] { base::recover_column(j); });
    recovered_ = true;
  }

 protected:
  void take_checkpoint(index k) override {
    if (!timing()) {
      if (wanted_.checkpoints) base::take_checkpoint(k);
      return;
    }
    // The part of the device comes first.
    quiet();
    wanted_.milliseconds[source::check_q] += 1e3 * clock_.seconds();
    clock_ = {};
    base::take_checkpoint(k);
    wanted_.milliseconds[source::checkpoint] += 1e3 * clock_.seconds();
  }

 private:
  using base = qr::cuda::hybrid_factorizer<S>;

  // A repeated verification after a recovery belongs to the recovery.
  bool timing() const { return wanted_.milliseconds != nullptr && !recovered_; }
  void quiet() {
    this->on_.settle();
    this->on_.device()->synchronize(this->on_.main());
  }
  template <class Operation>
  void timed(source what, const Operation& operation) {
    if (!timing()) return operation();
    quiet();
    const bench::stopwatch clock;
    operation();
    base::wait();
    wanted_.milliseconds[what] += 1e3 * clock.seconds();
  }
  // Times the products with the two columns, one panel after the other, on a copy of the columns.
  void time_carrying() {
    const index m = this->shape_.m, bytes = 2 * m * static_cast<index>(sizeof(S));
    const auto columns = this->on_.allocate(bytes);
    this->on_.copy(columns.data(), this->checksums(0), bytes);
    S* const V = this->scratch(this->repeated_.V, m * this->nb());
    for (index k = 0; k < this->shape_.panels; ++k) {
      this->form_v(k, V, this->on_.main());
      this->on_.device()->record(*begin_, this->on_.main());
      this->apply(k, this->formed(k, V), {0, 2}, static_cast<S*>(columns.data()) + this->shape_[k].first, m,
                  static_cast<S*>(this->updates_.W[0].data()), this->on_.main(), {});
      this->on_.device()->record(*end_, this->on_.main());
      wanted_.milliseconds[source::carry] += this->on_.device()->milliseconds(*begin_, *end_);
    }
  }
  void put(index i, index j, S value) {
    this->on_.copy(this->A_ + i + j * this->lda_, &value, sizeof value);
    this->on_.device()->synchronize(this->on_.main());
    struck_ = true;
  }

  const study wanted_;
  const struck_positions positions_;
  std::unique_ptr<ballast::cuda::stream_event> begin_, end_;
  bench::stopwatch clock_;
  bool struck_ = false, recovered_ = false, waits_ = true;
};

}  // namespace ballast::gpu_check::factors
