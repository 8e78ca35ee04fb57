// QR as a subject of strikes: geqrf, ormqr (Qᵀ C) and gels on random matrices. Each column is compared with plain Householder reflections
// in higher precision.
#include <algorithm>
#include <optional>
#include <utility>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "subject.hpp"

namespace ballast::strike {
namespace {

// Returns the floor of docs/protection.md, as a factor of u and the norm of a column, for a change of a column in a block during its
// factorization. In R, V and tau the change grows by at most the condition number of the matrix, which for a random one is about (√m +
// √n)/(√m − √n).
double floor_of_factors(std::int64_t m, std::int64_t n) {
  const double block = n >= 2048 ? 128 : n >= 192 ? 64 : 32;
  const double rows = std::sqrt(static_cast<double>(m)), columns = std::sqrt(static_cast<double>(n));
  const double condition = m > n ? (rows + columns) / (rows - columns) : static_cast<double>(n);
  return (12 + 2 * std::log2(static_cast<double>(m)) + std::sqrt(static_cast<double>(std::min(m, n))) / 8) * 2 * std::sqrt(block) *
         condition;
}
// Returns the floor for a change of a column to which k reflectors are applied.
double floor_of_product(std::int64_t m, std::int64_t k) {
  return 48 + 8 * std::sqrt(static_cast<double>(k)) + 4 * std::log2(static_cast<double>(m));
}

// Applies reflector j of `factors` (LAPACK's storage, m rows) to x: subtracts tau times the projection from x[r], r ≥ j.
template <class W>
void reflect(const std::vector<W>& factors, std::int64_t m, std::int64_t j, W tau, W* x) {
  const W* v = factors.data() + j * m;
  W sum = x[j];
  for (std::int64_t r = j + 1; r < m; ++r) sum += v[r] * x[r];
  sum *= tau;
  x[j] -= sum;
  for (std::int64_t r = j + 1; r < m; ++r) x[r] -= sum * v[r];
}

// Factors a matrix by Householder reflections, one at a time, with LAPACK's signs.
template <class W>
void factor(std::vector<W>& a, std::int64_t m, std::int64_t n, std::vector<W>& tau) {
  tau.assign(static_cast<std::size_t>(n), 0);
  for (std::int64_t j = 0; j < n; ++j) {
    W* column = a.data() + j * m;
    W tail = 0;
    for (std::int64_t r = j + 1; r < m; ++r) tail += column[r] * column[r];
    const W alpha = column[j];
    const W beta = -std::copysign(std::sqrt(alpha * alpha + tail), alpha);
    const W own = (beta - alpha) / beta;
    tau[static_cast<std::size_t>(j)] = own;
    for (std::int64_t r = j + 1; r < m; ++r) column[r] /= alpha - beta;
    column[j] = beta;
    for (std::int64_t c = j + 1; c < n; ++c) reflect(a, m, j, own, a.data() + c * m);
  }
}

template <class T>
class qr_subject final : public subject {
 public:
  qr_subject(std::string_view operation, const qr::problem& wanted)
      : operation_(operation),
        size_(wanted),
        m_(wanted.rows),
        n_(wanted.columns),
        columns_(n_ / 2),
        given_(normal<T>(m_ * n_, 3)),
        right_(normal<T>(m_ * columns_, 4)) {
    using W = wide<T>;
    std::vector<W> factors(given_.begin(), given_.end()), taus;
    factor(factors, m_, n_, taus);
    if (operation_ == "ormqr") {  // its operands are the reflectors, rounded
      std::copy(factors.begin(), factors.end(), given_.begin());
      tau_.assign(taus.begin(), taus.end());
      factors.assign(given_.begin(), given_.end());
      taus.assign(tau_.begin(), tau_.end());
    } else {
      tau_.resize(taus.size());
      judged_factors_.emplace(factors, m_, floors_of(given_, n_, floor_of_factors(m_, n_)));
      judged_tau_.emplace(std::vector<W>(taus), 1, std::vector<double>(taus.size(), floor_of_factors(m_, n_) * k_unit_roundoff<T>));
    }
    if (operation_ != "geqrf") {
      std::vector<W> b(right_.begin(), right_.end());
      // The floor of a solution is the sum of the floors of both steps.
      std::vector<double> floors =
          floors_of(right_, columns_, floor_of_product(m_, n_) + (operation_ == "gels" ? floor_of_factors(m_, n_) : 0));
      for (std::int64_t c = 0; c < columns_; ++c) {
        W* x = b.data() + c * m_;
        for (std::int64_t j = 0; j < n_; ++j) reflect(factors, m_, j, taus[static_cast<std::size_t>(j)], x);
        if (operation_ != "gels") continue;
        for (std::int64_t j = n_ - 1; j >= 0; --j) {
          x[j] /= factors[static_cast<std::size_t>(j * m_ + j)];
          for (std::int64_t r = 0; r < j; ++r) x[r] -= factors[static_cast<std::size_t>(j * m_ + r)] * x[j];
        }
      }
      judged_right_.emplace(std::move(b), m_, std::move(floors));
    }
  }

  void prepare(const execution& where) override { plan_.emplace(size_, where); }
  void reset() override {
    a_ = given_;
    b_ = right_;
    if (operation_ == "geqrf") std::fill(tau_.begin(), tau_.end(), T(0));
  }
  report run(const call& now) override {
    if (operation_ == "geqrf") return plan_->geqrf(column_major(a_.data(), m_, n_), tau_, now);
    if (operation_ == "gels") return plan_->gels(column_major(a_.data(), m_, n_), column_major(b_.data(), m_, columns_), now);
    return plan_->ormqr(qr::side::left, qr::transpose::yes, column_major(std::as_const(a_).data(), m_, n_), std::as_const(tau_),
                        column_major(b_.data(), m_, columns_), now);
  }
  void keep() override {
    if (judged_factors_) judged_factors_->keep(a_.data());
    if (operation_ == "geqrf") judged_tau_->keep(tau_.data());
    if (judged_right_) judged_right_->keep(b_.data());
  }
  effect judge() override {
    effect seen;
    if (judged_factors_) judged_factors_->judge(a_.data(), seen);
    if (operation_ == "geqrf") judged_tau_->judge(tau_.data(), seen);
    if (judged_right_) judged_right_->judge(b_.data(), seen);
    return seen;
  }
  double clean_error() const override { return judged_right_ ? judged_right_->clean_error() : judged_factors_->clean_error(); }

 private:
  std::vector<double> floors_of(const std::vector<T>& a, std::int64_t columns, double floor) const {
    std::vector<double> made;
    for (std::int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (std::int64_t r = 0; r < m_; ++r) {
        const auto value = static_cast<double>(a[static_cast<std::size_t>(c * m_ + r)]);
        sum += value * value;
      }
      made.push_back(floor * k_unit_roundoff<T> * std::sqrt(sum));
    }
    return made;
  }

  std::string operation_;
  qr::problem size_;
  std::int64_t m_, n_, columns_;
  std::vector<T> given_, right_, tau_, a_, b_;
  std::optional<qr::plan<T>> plan_;
  std::optional<judged_parts<T>> judged_factors_, judged_tau_, judged_right_;
};

}  // namespace

std::unique_ptr<subject> make_qr(std::string_view operation, std::string_view token) {
  const qr::problem parsed = qr::parse_token(token);
  if (parsed.rows < parsed.columns) throw invalid_argument_error("expected at least as many rows as columns");
  if (parsed.precision == precision::f32) return std::make_unique<qr_subject<float>>(operation, parsed);
  return std::make_unique<qr_subject<double>>(operation, parsed);
}

}  // namespace ballast::strike
