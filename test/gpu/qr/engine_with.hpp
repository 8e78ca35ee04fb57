// Runs QR on a device with a custom factorizer: an engine that creates it, and one call.
// Layer: gpu-check, over backend "cuda" of QR.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "core/parallel.hpp"
#include "qr/cuda/engine/session.hpp"
#include "qr/driver/factorization.hpp"
#include "qr/sites.hpp"
#include "run/settings.hpp"

namespace ballast::gpu_check::factors {

using index = std::int64_t;

// Forwards everything except the factorizer to the library's engine.
template <class S>
class engine_with final : public qr::engine<S> {
 public:
  using make_factorizer_of = std::function<std::unique_ptr<qr::factorizer<S>>(
      qr::cuda::session<S>& on, const qr::layout& shape, const matrix_view<S>& A, S* tau, const matrix_view<const S>& source)>;
  engine_with(const qr::context& run, make_factorizer_of make) : make_(std::move(make)), on_(run), other_(qr::cuda::make_engine<S>(run)) {}

  void wait() override { other_->wait(); }
  matrix_view<const S> read(const matrix_view<const S>& operand) override { return other_->read(operand); }
  std::span<const S> read(std::span<const S> operand) override { return other_->read(operand); }
  matrix_view<S> write(const matrix_view<S>& operand) override { return other_->write(operand); }
  std::span<S> write(std::span<S> operand) override { return other_->write(operand); }
  void commit() override { other_->commit(); }
  bool works_on(const matrix_view<const S>& v) const override { return other_->works_on(v); }
  std::shared_ptr<S> allocate(index elements) override { return other_->allocate(elements); }
  void copy(const matrix_view<const S>& from, const matrix_view<S>& to) override { other_->copy(from, to); }
  void copy_scaled(const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows, const int* columns) override {
    other_->copy_scaled(from, to, rows, columns);
  }
  index copy_checked(const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows, const int* columns,
                     bool checked) override {
    return other_->copy_checked(from, to, rows, columns, checked);
  }
  index conjugate_checked(const matrix_view<const S>& from, const matrix_view<S>& to, bool upper, bool checked) override {
    return other_->conjugate_checked(from, to, upper, checked);
  }
  void column_sizes(const matrix_view<const S>& R, qr::column_size* sizes) override { other_->column_sizes(R, sizes); }
  void exponents(const matrix_view<const S>& X, bool upper, const int* rows, int* columns) override {
    other_->exponents(X, upper, rows, columns);
  }
  index panel_width(index rows, index steps) const override { return other_->panel_width(rows, steps); }
  std::unique_ptr<qr::factorizer<S>> make_factorizer(const qr::layout& shape, const matrix_view<S>& A, S* tau,
                                                     const matrix_view<const S>& source) override {
    return make_(on_, shape, A, tau, source);
  }
  std::unique_ptr<qr::applier<S>> make_applier(const matrix_view<const S>& V, const S* tau) override {
    return other_->make_applier(V, tau);
  }
  void solve(bool transposed, const matrix_view<const S>& U, const matrix_view<const S>& B, const matrix_view<S>& X, index width,
             qr::solve_sums* seen) override {
    other_->solve(transposed, U, B, X, width, seen);
  }
  index zero_on_diagonal(const matrix_view<const S>& R) override { return other_->zero_on_diagonal(R); }
  std::uint64_t hash(const matrix_view<const S>& X) override { return other_->hash(X); }
  void strike(inject::site where, const inject::position& here, const matrix_view<S>& X) override { other_->strike(where, here, X); }
  double encode_columns(const matrix_view<const S>& A, index first, double* weights, S* c) override {
    return other_->encode_columns(A, first, weights, c);
  }
  double residual_of_columns(const matrix_view<const S>& A, index panel, const double* weights, const S* c) override {
    return other_->residual_of_columns(A, panel, weights, c);
  }
  void choose_pivots(const matrix_view<const S>& A, std::span<index> order, bool plainly) override {
    other_->choose_pivots(A, order, plainly);
  }
  void permute_columns(const matrix_view<const S>& A, std::span<const index> order, const matrix_view<S>& P) override {
    other_->permute_columns(A, order, P);
  }
  index first_moved(const matrix_view<const S>& A, std::span<const index> order, const matrix_view<const S>& P) override {
    return other_->first_moved(A, order, P);
  }
  qr::pivot_sums measure_pivots(const matrix_view<const S>& R, index m) override { return other_->measure_pivots(R, m); }

 private:
  const make_factorizer_of make_;
  qr::cuda::session<S> on_;
  std::unique_ptr<qr::engine<S>> other_;
};

// Runs one call of geqrf on device memory with the factorizer of `make`; returns after its end. `source`: the input, if the caller keeps a
// copy. `plain`: see qr::context.
template <class S>
report factor_with(const std::string& token, const char* scheme, const run::settings& how, bool plain, const matrix_view<S>& A, S* tau,
                   const matrix_view<const S>& source, typename engine_with<S>::make_factorizer_of make) {
  inject::active_injector injector(nullptr, qr::site::table());
  run::recorder seen(token, backend::cuda, scheme, how, injector);
  const qr::context run{seen, injector, how, backend::cuda, core::thread_count(0), std::string_view(scheme) == qr::k_hybrid, plain};
  engine_with<S> on(run, std::move(make));
  qr::factorization<S>(run, on, scheme, A, tau, source).run();
  ballast::cuda::current_device()->synchronize(how.stream);
  return seen.finish();
}

}  // namespace ballast::gpu_check::factors
