// QR as a subject of strikes: geqrf, geqp3, ormqr (Qᵀ C, or C Q), orgqr, gels and gelsy on random matrices of every shape, single and in
// batches, real or complex; for complex numbers ᵀ is the conjugate transpose. Each column is compared with plain Householder reflections in
// higher precision.
#include <algorithm>
#include <complex>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include <ballast/error.hpp>
#include <ballast/qr.hpp>

#include "subject.hpp"

namespace ballast::strike {
namespace {

template <class T>
constexpr bool is_complex = false;
template <class T>
constexpr bool is_complex<std::complex<T>> = true;

// The components of a number, and a number of the next higher precision.
template <class T>
struct parts_of {
  using component = T;
  using higher = wide<T>;
};
template <class T>
struct parts_of<std::complex<T>> {
  using component = T;
  using higher = std::complex<wide<T>>;
};

template <class W>
W conjugate(const W& x) {
  if constexpr (is_complex<W>)
    return std::conj(x);
  else
    return x;
}

template <class T>
constexpr int k_components = is_complex<T> ? 2 : 1;

// An array as that of its components.
template <class W>
auto components(const std::vector<W>& x) {
  using component = typename parts_of<W>::component;
  const auto* const first = reinterpret_cast<const component*>(x.data());
  return std::vector<component>(first, first + x.size() * sizeof(W) / sizeof(component));
}

// Returns the floor of docs/protection.md, as a factor of u and the norm of a column, for a change of a column in a block during its
// factorization. In R, V and tau the change grows by at most the condition number of the matrix, which for a random one is about (√m +
// √n)/(√m − √n).
// In a batch there are no blocks, and the norm is that of the matrix. The block of the scheme qr_update is the matrix. `each`: the
// components of a number.
double floor_of_factors(std::int64_t m, std::int64_t n, bool batch, bool qr_update, int each) {
  const double block = batch ? 1 : n >= 2048 ? 128 : n >= 192 ? 64 : 32;
  const double rows = std::sqrt(static_cast<double>(m)), columns = std::sqrt(static_cast<double>(n));
  const double condition = m > n ? (rows + columns) / (rows - columns) : static_cast<double>(std::min(m, n));
  if (qr_update) return (32 + 16 * std::sqrt(static_cast<double>(each * m)) + 2 * columns) * 2 * columns * condition;
  return (12 + 2 * std::log2(static_cast<double>(each * m)) + std::sqrt(static_cast<double>(each * std::min(m, n))) / 8) * 2 *
         std::sqrt(block) * condition;
}
// Returns the floor for a change of a column to which k reflectors are applied.
double floor_of_product(std::int64_t m, std::int64_t k, int each) {
  const auto rows = static_cast<double>(each * m);
  return 48 + 8 * std::sqrt(static_cast<double>(each * k)) + 4 * std::log2(rows) + std::sqrt(rows) / 8;
}

// Applies reflector j of `factors` (LAPACK's storage, m rows) to x: subtracts tau times the projection from x[r], r ≥ j.
template <class W>
void reflect(const std::vector<W>& factors, std::int64_t m, std::int64_t j, W tau, W* x) {
  const W* v = factors.data() + j * m;
  W sum = x[j];
  for (std::int64_t r = j + 1; r < m; ++r) sum += conjugate(v[r]) * x[r];
  sum *= tau;
  x[j] -= sum;
  for (std::int64_t r = j + 1; r < m; ++r) x[r] -= sum * v[r];
}

// Brings the column c ≥ j with the longest part below row j to position j. Returns how much shorter the next one is, as a share of it.
template <class W>
double bring_longest(std::vector<W>& a, std::int64_t m, std::int64_t n, std::int64_t j, std::vector<std::int64_t>& order) {
  std::int64_t best = j;
  auto most = std::real(W(-1)), next = most;
  for (std::int64_t c = j; c < n; ++c) {
    auto size = std::real(W(0));
    for (std::int64_t r = j; r < m; ++r) size += std::norm(a[static_cast<std::size_t>(c * m + r)]);
    next = std::max(next, std::min(size, most));
    if (size > most) most = size, best = c;
  }
  std::swap(order[static_cast<std::size_t>(j)], order[static_cast<std::size_t>(best)]);
  if (best != j) std::swap_ranges(a.begin() + j * m, a.begin() + (j + 1) * m, a.begin() + best * m);
  return next < 0 ? 1 : static_cast<double>(1 - std::sqrt(next / most));
}

// Factors an m × n matrix by Householder reflections, one at a time, with LAPACK's signs. `order`: with column pivoting, if it is not
// empty. Returns the least share by which the next column was shorter than a pivot, times the pivot over the largest one.
template <class W>
double factor(std::vector<W>& a, std::int64_t m, std::int64_t n, std::vector<W>& tau, std::vector<std::int64_t>& order) {
  const std::int64_t steps = std::min(m, n);
  tau.assign(static_cast<std::size_t>(steps), 0);
  std::iota(order.begin(), order.end(), std::int64_t{0});
  double least = 1;
  for (std::int64_t j = 0; j < steps; ++j) {
    const double apart = order.empty() ? 1 : bring_longest(a, m, n, j, order);
    W* column = a.data() + j * m;
    auto tail = std::real(W(0));
    for (std::int64_t r = j + 1; r < m; ++r) tail += std::norm(column[r]);
    const W alpha = column[j];
    if (tail == 0 && std::imag(alpha) == 0) continue;  // the last row of a real matrix: H is the identity, as in LAPACK
    const auto beta = -std::copysign(std::sqrt(std::norm(alpha) + tail), std::real(alpha));
    const W own = (beta - alpha) / beta;
    tau[static_cast<std::size_t>(j)] = own;
    for (std::int64_t r = j + 1; r < m; ++r) column[r] /= alpha - beta;
    column[j] = beta;
    least = std::min(least, apart * static_cast<double>(std::abs(beta) / std::abs(a[0])));
    for (std::int64_t c = j + 1; c < n; ++c) reflect(a, m, j, conjugate(own), a.data() + c * m);
  }
  return least;
}

template <class T>
class qr_subject final : public subject {
 public:
  qr_subject(std::string_view operation, const qr::problem& wanted, std::string_view scheme)
      : operation_(operation),
        scheme_(scheme),
        m_(wanted.rows),
        n_(wanted.columns),
        steps_(std::min(m_, n_)),
        count_(wanted.batch),
        right_rows_(solves()                      ? std::max(m_, n_)
                    : operation_ == "ormqr_right" ? half(n_)
                                                  : m_),
        right_columns_(operation_ == "ormqr_right" ? m_ : half(n_)),
        given_(random_numbers(m_ * n_ * count_, 3)) {
    if ((operation_ == "geqp3" || operation_ == "gelsy") && count_ > 1) throw invalid_argument_error(operation_ + ": expected one matrix");
    if (operation_ == "orgqr" && m_ < n_) throw invalid_argument_error("orgqr: expected at least as many rows as columns");
    if (has_right()) right_ = random_numbers(right_rows_ * right_columns_ * count_, 4);
    if (operation_ == "geqp3" || operation_ == "gelsy") pivots_.resize(static_cast<std::size_t>(n_));
    if (!makes_tau() && !solves()) taus_.resize(static_cast<std::size_t>(steps_ * count_));
    if (operation_ == "geqp3") draw_columns_apart();
    expectation all;
    for (std::int64_t b = 0; b < count_; ++b) expect(b, all);
    if (!all.factors.empty()) judged_factors_.emplace(components(all.factors), k_components<T> * m_, std::move(all.factor_floors));
    if (!all.taus.empty()) judged_tau_.emplace(components(all.taus), k_components<T>, std::move(all.tau_floors));
    if (!all.order.empty()) judged_order_.emplace(components(all.order), k_components<T>, std::vector<double>(pivots_.size(), 0.5));
    if (!all.right.empty()) judged_right_.emplace(components(all.right), k_components<T> * right_rows_, std::move(all.right_floors));
  }

  // One matrix is for the engine for one matrix; the kernels for batches have their own problems.
  void prepare(const execution& where) override {
    execution at = where;
    if (!scheme_.empty()) at.scheme = scheme_;
    if (at.backend == backend::cuda && count_ == 1 && at.scheme.empty()) at.scheme = "block_checksum";
    plan_.emplace(qr::problem{.rows = m_, .columns = n_, .batch = count_}, at);
  }
  void reset() override {
    a_.set(given_);
    if (has_right()) b_.set(right_);
    if (makes_tau()) {
      std::fill(pivots_.begin(), pivots_.end(), -1);
      tau_.set_zero(steps_ * count_);
    } else if (!solves()) {
      tau_.set(taus_);
    }
  }
  report run(const call& now) override {
    const matrix_view<T> A = column_major(a_.data(), m_, n_), B = column_major(b_.data(), right_rows_, right_columns_);
    const std::span<const T> tau = tau_.all();
    std::int64_t rank = 0;
    const qr::side side = operation_ == "ormqr_right" ? qr::side::right : qr::side::left;
    const qr::transpose op = side == qr::side::left ? qr::transpose::yes : qr::transpose::no;
    if (count_ == 1) {
      if (operation_ == "geqrf") return plan_->geqrf(A, tau_.all(), now);
      if (operation_ == "geqp3") return plan_->geqp3(A, pivots_, tau_.all(), now);
      if (operation_ == "gels") return plan_->gels(A, B, now);
      if (operation_ == "gelsy") return plan_->gelsy(A, B, pivots_, -1, rank, now);
      if (operation_ == "orgqr") return plan_->orgqr(A, tau, now);
      return plan_->ormqr(side, op, matrix_view<const T>(A), tau, B, now);
    }
    const matrix_batch_view<T> As = batch_of(A, count_), Bs = batch_of(B, count_);
    if (operation_ == "geqrf") return plan_->geqrf(As, tau_.all(), now);
    if (operation_ == "gels") return plan_->gels(As, Bs, now);
    if (operation_ == "orgqr") return plan_->orgqr(As, tau, now);
    return plan_->ormqr(side, op, matrix_batch_view<const T>(As), tau, Bs, now);
  }
  void keep() override {
    if (judged_factors_) judged_factors_->keep(components(a_.read()));
    if (judged_tau_) judged_tau_->keep(components(tau_.read()));
    if (judged_order_) judged_order_->keep(components(order()));
    if (judged_right_) judged_right_->keep(components(b_.read()));
  }
  effect judge() override {
    effect seen;
    if (judged_factors_) judged_factors_->judge(components(a_.read()), seen);
    if (judged_tau_) judged_tau_->judge(components(tau_.read()), seen);
    if (judged_order_) judged_order_->judge(components(order()), seen);
    if (judged_right_) judged_right_->judge(components(b_.read()), seen);
    return seen;
  }
  double clean_error() const override { return judged_right_ ? judged_right_->clean_error() : judged_factors_->clean_error(); }
  int number_bits() const override { return 8 * sizeof(typename parts_of<T>::component); }

 private:
  using W = typename parts_of<T>::higher;
  using component = typename parts_of<T>::component;

  // Normally distributed numbers: complex ones have two components of them.
  static std::vector<T> random_numbers(std::int64_t count, std::uint64_t seed) {
    const std::vector<component> drawn = normal<component>(k_components<T> * count, seed);
    std::vector<T> made(static_cast<std::size_t>(count));
    std::memcpy(static_cast<void*>(made.data()), drawn.data(), drawn.size() * sizeof(component));
    return made;
  }

  // Draws the matrix again while two columns are nearer to each other, where one is chosen, than the floor of a choice
  // (docs/protection.md): either of them is right there, and the factors differ. No column is longer than the first pivot.
  void draw_columns_apart() {
    const double sums = 16 + 8 * std::sqrt(static_cast<double>(k_components<T> * m_));
    const double floor = sums * (0x1p-29 + 2 * k_unit_roundoff<component>);
    for (std::uint64_t seed = 5;; ++seed) {
      std::vector<W> factors(given_.begin(), given_.end()), taus;
      std::vector<std::int64_t> order(pivots_.size());
      if (factor(factors, m_, n_, taus, order) > floor) return;
      given_ = random_numbers(m_ * n_, seed);
    }
  }

  struct expectation {
    std::vector<W> factors, taus, order, right;
    std::vector<double> factor_floors, tau_floors, right_floors;
  };

  static std::int64_t half(std::int64_t n) { return std::max<std::int64_t>(n / 2, 1); }
  bool makes_tau() const { return operation_ == "geqrf" || operation_ == "geqp3"; }
  bool updates() const { return scheme_ == "qr_update"; }
  bool solves() const { return operation_ == "gels" || operation_ == "gelsy"; }
  bool has_right() const { return !makes_tau() && operation_ != "orgqr"; }
  std::vector<T> order() const {
    return [&] {
      std::vector<T> made;
      for (const std::int64_t each : pivots_) made.push_back(static_cast<T>(static_cast<component>(each)));
      return made;
    }();
  }

  // Appends the expected results of matrix b and their floors. The operands of ormqr and orgqr are the rounded factors.
  void expect(std::int64_t b, expectation& to) {
    const auto first = given_.begin() + b * m_ * n_;
    const bool turned = solves() && m_ < n_;  // Aᵀ is factored
    const std::int64_t rows = turned ? n_ : m_, columns = turned ? m_ : n_;
    std::vector<W> factors(static_cast<std::size_t>(m_ * n_)), taus;
    for (std::int64_t c = 0; c < n_; ++c)
      for (std::int64_t r = 0; r < m_; ++r) {
        const W each = static_cast<W>(first[c * m_ + r]);
        factors[static_cast<std::size_t>(turned ? c + r * rows : r + c * rows)] = turned ? conjugate(each) : each;
      }
    const std::vector<double> given_sizes = norms_of(factors, rows);
    std::vector<double> sizes = given_sizes;
    std::vector<std::int64_t> order(makes_tau() ? pivots_.size() : 0);
    factor(factors, rows, columns, taus, order);
    for (std::size_t c = 0; c < order.size(); ++c) sizes[c] = given_sizes[static_cast<std::size_t>(order[c])];
    for (const std::int64_t each : order) to.order.push_back(static_cast<W>(static_cast<component>(each)));
    // gels keeps factors of A itself only for one matrix with m ≥ n (ballast/qr.hpp).
    if (makes_tau() || (operation_ == "gels" && !turned && count_ == 1)) {
      const double floor = floor_of_factors(rows, columns, count_ > 1, updates(), k_components<T>);
      to.factors.insert(to.factors.end(), factors.begin(), factors.end());
      for (const double size : sizes) to.factor_floors.push_back(floor * size * k_unit_roundoff<component>);
      if (makes_tau()) {
        to.taus.insert(to.taus.end(), taus.begin(), taus.end());
        to.tau_floors.insert(to.tau_floors.end(), taus.size(), floor * k_unit_roundoff<component>);
        return;
      }
    }
    if (!solves()) {
      const auto rounded = [](const W& x) { return static_cast<T>(x); };
      std::transform(factors.begin(), factors.end(), first, rounded);
      std::transform(taus.begin(), taus.end(), taus_.begin() + b * steps_, rounded);
      const auto widened = [](const T& x) { return static_cast<W>(x); };
      std::transform(first, first + m_ * n_, factors.begin(), widened);
      std::transform(taus_.begin() + b * steps_, taus_.begin() + (b + 1) * steps_, taus.begin(), widened);
    }
    const double floor = floor_of_product(rows, steps_, k_components<T>);
    if (operation_ == "orgqr") {
      std::vector<W> q(static_cast<std::size_t>(m_ * n_));
      for (std::int64_t c = 0; c < n_; ++c) {
        q[static_cast<std::size_t>(c * m_ + c)] = 1;
        for (std::int64_t j = steps_ - 1; j >= 0; --j) reflect(factors, m_, j, taus[static_cast<std::size_t>(j)], q.data() + c * m_);
      }
      to.factors.insert(to.factors.end(), q.begin(), q.end());
      const double size = count_ > 1 ? std::sqrt(static_cast<double>(n_)) : 1;  // the norm of the matrix, or of a column
      to.factor_floors.insert(to.factor_floors.end(), static_cast<std::size_t>(n_), floor * size * k_unit_roundoff<component>);
      return;
    }
    expect_right(b, factors, taus, floor, to);
  }

  void expect_right(std::int64_t b, const std::vector<W>& factors, const std::vector<W>& taus, double floor, expectation& to) {
    const std::int64_t each = right_rows_ * right_columns_;
    std::vector<W> x(right_.begin() + b * each, right_.begin() + (b + 1) * each);
    std::vector<double> sizes = norms_of(x, right_rows_);
    if (operation_ == "ormqr_right") {  // C Q: the rows of C, conjugated, are the columns of Qᵀ Cᵀ
      std::vector<W> row(static_cast<std::size_t>(m_));
      double largest = 0;
      for (std::int64_t r = 0; r < right_rows_; ++r) {
        for (std::int64_t c = 0; c < m_; ++c)
          row[static_cast<std::size_t>(c)] = conjugate(x[static_cast<std::size_t>(c * right_rows_ + r)]);
        for (std::int64_t j = 0; j < steps_; ++j) reflect(factors, m_, j, conjugate(taus[static_cast<std::size_t>(j)]), row.data());
        for (std::int64_t c = 0; c < m_; ++c)
          x[static_cast<std::size_t>(c * right_rows_ + r)] = conjugate(row[static_cast<std::size_t>(c)]);
        largest = std::max(largest, norms_of(row, m_)[0]);
      }
      // The floor is that of a row of C; a column has an element of each.
      sizes.assign(sizes.size(), largest);
    } else if (operation_ == "ormqr" || m_ >= n_) {
      for (std::int64_t c = 0; c < right_columns_; ++c) {
        W* const column = x.data() + c * right_rows_;
        for (std::int64_t j = 0; j < steps_; ++j) reflect(factors, m_, j, conjugate(taus[static_cast<std::size_t>(j)]), column);
        for (std::int64_t j = solves() ? n_ - 1 : -1; j >= 0; --j) {
          column[j] /= factors[static_cast<std::size_t>(j * m_ + j)];
          for (std::int64_t r = 0; r < j; ++r) column[r] -= factors[static_cast<std::size_t>(j * m_ + r)] * column[j];
        }
        if (operation_ == "gelsy")  // the rows below the solution keep their values
          std::copy_n(right_.begin() + c * right_rows_ + n_, right_rows_ - n_, column + n_);
      }
    } else {  // Aᵀ = Q R: x = Q R⁻ᵀ b
      for (std::int64_t c = 0; c < right_columns_; ++c) {
        W* const column = x.data() + c * n_;
        for (std::int64_t j = 0; j < m_; ++j) {
          for (std::int64_t r = 0; r < j; ++r) column[j] -= conjugate(factors[static_cast<std::size_t>(j * n_ + r)]) * column[r];
          column[j] /= conjugate(factors[static_cast<std::size_t>(j * n_ + j)]);
        }
        std::fill(column + m_, column + n_, W(0));
        for (std::int64_t j = m_ - 1; j >= 0; --j) reflect(factors, n_, j, taus[static_cast<std::size_t>(j)], column);
      }
    }
    // The floor of a solution is the sum of the floors of all steps. gelsy factors R of m < n once more.
    const int factored = operation_ == "gelsy" && m_ < n_ ? 2 : solves() ? 1 : 0;
    floor += factored * floor_of_factors(std::max(m_, n_), steps_, count_ > 1, updates(), k_components<T>);
    to.right.insert(to.right.end(), x.begin(), x.end());
    for (const double size : sizes) to.right_floors.push_back(floor * size * k_unit_roundoff<component>);
  }

  // Returns the norm of each column; in a batch that of the matrix for each, since its check has one floor for all columns.
  std::vector<double> norms_of(const std::vector<W>& a, std::int64_t rows) const {
    std::vector<double> made;
    double all = 0;
    for (std::size_t first = 0; first < a.size(); first += static_cast<std::size_t>(rows)) {
      double sum = 0;
      for (std::size_t i = first; i < first + static_cast<std::size_t>(rows); ++i) sum += static_cast<double>(std::norm(a[i]));
      made.push_back(std::sqrt(sum));
      all += sum;
    }
    if (count_ > 1) made.assign(made.size(), std::sqrt(all));
    return made;
  }

  std::string operation_, scheme_;
  std::int64_t m_, n_, steps_, count_, right_rows_, right_columns_;
  std::vector<T> given_, right_, taus_;
  operand<T> a_, b_, tau_;
  std::vector<std::int64_t> pivots_;  // geqp3's and gelsy's
  std::optional<qr::plan<T>> plan_;
  std::optional<judged_parts<component>> judged_factors_, judged_tau_, judged_order_, judged_right_;
};

}  // namespace

std::unique_ptr<subject> make_qr(std::string_view operation, std::string_view token, std::string_view scheme) {
  const qr::problem parsed = qr::parse_token(token);
  const bool single = parsed.precision == precision::f32;
  if (parsed.complex && single) return std::make_unique<qr_subject<std::complex<float>>>(operation, parsed, scheme);
  if (parsed.complex) return std::make_unique<qr_subject<std::complex<double>>>(operation, parsed, scheme);
  if (single) return std::make_unique<qr_subject<float>>(operation, parsed, scheme);
  return std::make_unique<qr_subject<double>>(operation, parsed, scheme);
}

}  // namespace ballast::strike
