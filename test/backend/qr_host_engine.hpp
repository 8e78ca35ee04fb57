// The fixture of the tests of QR on the host's backends, and the host engine for tests that replace some of its calls.
// Layer: backend tests.
#pragma once

#include <memory>
#include <span>

#include <gtest/gtest.h>

#include <ballast/qr.hpp>

#include "qr/contract.hpp"
#include "qr/host/factorizer.hpp"
#include "qr/host/triangle.hpp"
#include "support/qr_subject.hpp"

namespace ballast::qr::subjects {

template <class Setting>
class qr_host : public qr<Setting> {};

// The host engine, every call handed on. Tests derive from it to replace some of them.
template <class S>
class forwarding_engine : public engine<S> {
 public:
  explicit forwarding_engine(const context& run) : inner_(host::make_engine<S>(run)) {}
  matrix_view<const S> read(const matrix_view<const S>& operand) override { return operand; }
  std::span<const S> read(std::span<const S> operand) override { return operand; }
  matrix_view<S> write(const matrix_view<S>& operand) override { return operand; }
  std::span<S> write(std::span<S> operand) override { return operand; }
  void commit() override {}
  bool works_on(const matrix_view<const S>& v) const override { return inner_->works_on(v); }
  std::shared_ptr<S> allocate(index elements) override { return inner_->allocate(elements); }
  void copy(const matrix_view<const S>& from, const matrix_view<S>& to) override { inner_->copy(from, to); }
  void copy_scaled(const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows, const int* columns) override {
    inner_->copy_scaled(from, to, rows, columns);
  }
  index copy_checked(const matrix_view<const S>& from, const matrix_view<S>& to, const int* rows, const int* columns,
                     bool checked) override {
    return inner_->copy_checked(from, to, rows, columns, checked);
  }
  index conjugate_checked(const matrix_view<const S>& from, const matrix_view<S>& to, bool upper, bool checked) override {
    return inner_->conjugate_checked(from, to, upper, checked);
  }
  void column_sizes(const matrix_view<const S>& R, column_size* sizes) override { inner_->column_sizes(R, sizes); }
  void exponents(const matrix_view<const S>& X, bool upper, const int* rows, int* columns) override {
    inner_->exponents(X, upper, rows, columns);
  }
  index panel_width(index rows, index steps) const override { return inner_->panel_width(rows, steps); }
  std::unique_ptr<factorizer<S>> make_factorizer(const layout& shape, const matrix_view<S>& A, S* tau,
                                                 const matrix_view<const S>& source) override {
    return inner_->make_factorizer(shape, A, tau, source);
  }
  std::unique_ptr<applier<S>> make_applier(const matrix_view<const S>& V, const S* tau) override { return inner_->make_applier(V, tau); }
  void solve(bool transposed, const matrix_view<const S>& U, const matrix_view<const S>& B, const matrix_view<S>& X, index width,
             solve_sums* seen) override {
    inner_->solve(transposed, U, B, X, width, seen);
  }
  index zero_on_diagonal(const matrix_view<const S>& R) override { return inner_->zero_on_diagonal(R); }
  std::uint64_t hash(const matrix_view<const S>& X) override { return inner_->hash(X); }
  void strike(inject::site where, const inject::position& here, const matrix_view<S>& X) override { inner_->strike(where, here, X); }
  double encode_columns(const matrix_view<const S>& A, index first, double* weights, S* c) override {
    return inner_->encode_columns(A, first, weights, c);
  }
  double residual_of_columns(const matrix_view<const S>& A, index panel, const double* weights, const S* c) override {
    return inner_->residual_of_columns(A, panel, weights, c);
  }
  void choose_pivots(const matrix_view<const S>& A, std::span<index> order, bool plainly) override {
    inner_->choose_pivots(A, order, plainly);
  }
  void permute_columns(const matrix_view<const S>& A, std::span<const index> order, const matrix_view<S>& P) override {
    inner_->permute_columns(A, order, P);
  }
  index first_moved(const matrix_view<const S>& A, std::span<const index> order, const matrix_view<const S>& P) override {
    return inner_->first_moved(A, order, P);
  }
  pivot_sums measure_pivots(const matrix_view<const S>& R, index m) override { return inner_->measure_pivots(R, m); }

 protected:
  std::unique_ptr<engine<S>> inner_;
};

}  // namespace ballast::qr::subjects
