#include "qr/driver/rank.hpp"

#include <algorithm>
#include <cmath>

#include "core/aligned_buffer.hpp"
#include "core/at.hpp"
#include "core/format.hpp"
#include "core/memory.hpp"
#include "qr/arithmetic/random.hpp"
#include "qr/driver/application.hpp"
#include "qr/thresholds.hpp"

namespace ballast::qr {

using core::at;

namespace {

constexpr index k_random_vectors = 2;

struct inverse_estimate {
  double norm = 0;      // a lower bound of ‖S⁻¹‖₂
  index dependent = 0;  // a column with one of the largest coefficients in the near-null vector of S
};

// Returns ‖x‖₂ for real numbers of any size.
double norm_of(const double* x, index n) {
  double most = 0;
  for (index i = 0; i < n; ++i) {
    if (!(std::abs(x[i]) <= most)) most = std::abs(x[i]);
  }
  if (!(most > 0) || !std::isfinite(most)) return most;
  const int e = std::ilogb(most);
  double sum = 0;
  for (index i = 0; i < n; ++i) {
    const double each = std::ldexp(x[i], -e);
    sum += each * each;
  }
  return std::ldexp(std::sqrt(sum), e);
}

// The same for complex numbers.
double norm_of(const std::complex<double>* x, index n) { return norm_of(reals(x), 2 * n); }

// With S = R D, D = diag(2^shifts): Sᴴ Y = G is Rᴴ Y = D⁻¹ G, and S X = Y is R (D X) = Y. So R need not be copied.
template <class S>
inverse_estimate estimate_inverse(const context& run, engine<S>& on, const matrix_view<const S>& R, const core::vector<int>& shifts,
                                  std::uint64_t stream) {
  const index n = R.rows, k = k_random_vectors;
  core::aligned_buffer<S> host(n * k);
  const matrix_view<S> on_host = column_major(host.data(), n, k, n);
  for (index c = 0; c < k; ++c) {
    for (index i = 0; i < n; ++i)
      on_host(i, c) =
          scaled(static_cast<S>(static_cast<real_of<S>>(random_signed(stream, static_cast<std::uint64_t>(i + c * n)))), -shifts[at(i)]);
  }
  const std::shared_ptr<S> memory = on.allocate(core::checked_product(3 * n, k));
  const auto part = [&](index number) { return column_major(memory.get() + number * n * k, n, k, n); };
  const matrix_view<S> G = part(0), Y = part(1), X = part(2);
  on.copy(on_host, G);
  solve_triangle<S>(run, on, true, R, G, Y);
  solve_triangle<S>(run, on, false, R, Y, X);
  using wide = wide_of<S>;
  core::aligned_buffer<wide> y(n * k), x(n * k);
  on.copy(Y, on_host);
  on.wait();
  std::copy_n(host.data(), n * k, y.data());
  on.copy(X, on_host);
  on.wait();
  inverse_estimate made;
  for (index c = 0; c < k; ++c) {
    wide* const of_x = x.data() + c * n;
    for (index i = 0; i < n; ++i) of_x[i] = scaled(static_cast<wide>(on_host(i, c)), -shifts[at(i)]);
    const double ratio = norm_of(of_x, n) / norm_of(y.data() + c * n, n);
    // A diagonal that is tiny beside its column makes numbers that exceed the range.
    const double norm = std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity();
    if (!(norm > made.norm)) continue;
    made.norm = norm;
    double most = 0;
    for (index i = 0; i < n; ++i) {
      const double size = is_finite(of_x[i]) ? size_of_number(of_x[i]) : std::numeric_limits<double>::max();
      if (size > 0 && size >= most / 2) made.dependent = i;
      most = std::max(most, size);
    }
  }
  return made;
}

// Returns the number of columns of S that are independent to rounding. W: n × n, S in its upper triangle, zeros below; overwritten.
template <class Wide>
index count_independent(Wide* W, index n, double least) {
  double first = 0;
  for (index k = 0; k < n; ++k) {
    index pivot = k;
    double most = -1;
    for (index j = k; j < n; ++j) {
      const double size = norm_of(W + j * n + k, n - k);
      if (size > most) most = size, pivot = j;
    }
    if (k == 0) first = most;
    if (!(most > least * first)) return k;
    if (pivot != k) std::swap_ranges(W + k * n, W + (k + 1) * n, W + pivot * n);
    Wide* const v = W + k * n + k;
    const index rows = n - k;
    // The phase of v[0] is kept: I − 2 v vᴴ / ‖v‖² then maps the column to a multiple of e₁.
    const double size = size_of_number(v[0]);
    const Wide alpha = is_complex<Wide> && size > 0 ? Wide(-most / size * v[0]) : Wide(real_part(v[0]) > 0 ? -most : most);
    v[0] -= alpha;
    double square = 0;
    for (index i = 0; i < rows; ++i) square += square_of(v[i]);
    for (index j = k + 1; j < n && square > 0; ++j) {
      Wide* const w = W + j * n + k;
      Wide sum = 0;
      for (index i = 0; i < rows; ++i) sum += times(conjugate(v[i]), w[i]);
      for (index i = 0; i < rows; ++i) w[i] -= times(2.0 * sum / square, v[i]);
    }
  }
  return n;
}

// The columns of R scaled by powers of two to norms in [1, 2): S = R diag(2^shifts).
struct scaling {
  core::vector<int> shifts;
  double size = 0;  // ‖S‖_F / √n
  bool finite = true;
};

template <class S>
scaling scale_columns(engine<S>& on, const matrix_view<const S>& R) {
  core::vector<column_size> sizes(at(R.columns));
  on.column_sizes(R, sizes.data());
  on.wait();
  scaling made;
  for (const column_size& each : sizes) {
    made.shifts.push_back(-each.exponent);
    made.size += each.norm * each.norm / static_cast<double>(R.columns);
    made.finite = made.finite && each.finite;
  }
  made.size = std::sqrt(made.size);
  return made;
}

}  // namespace

template <class S>
rank_estimate estimate_rank(const context& run, engine<S>& on, const matrix_view<const S>& R) {
  const index n = R.columns;
  rank_estimate made;
  index zero = on.zero_on_diagonal(R);
  if (zero >= 0) zero = on.zero_on_diagonal(R);  // a struck look must not refuse the matrix
  if (!run.how.full_rank) {
    made.condition = std::numeric_limits<double>::quiet_NaN();
    made.dependent = zero;
    return made;
  }
  scaling by;
  // A second estimate shares nothing with the first but R.
  for (const std::uint64_t stream : {k_rank_stream, k_second_rank_stream}) {
    by = scale_columns(on, R);
    if (!by.finite) {
      made.condition = std::numeric_limits<double>::quiet_NaN();
      made.dependent = -1;
      return made;
    }
    if (zero >= 0) {
      made.condition = std::numeric_limits<double>::infinity();
      made.dependent = zero;
      break;
    }
    const inverse_estimate seen = estimate_inverse(run, on, R, by.shifts, stream);
    made.condition = seen.norm * by.size;
    made.dependent = made.condition > thresholds::most_condition<real_of<S>>(n) ? seen.dependent : -1;
    if (made.full()) return made;
  }
  if (n > k_most_ranked) return made;
  core::aligned_buffer<S> host(n * n);
  on.copy(R, column_major(host.data(), n, n, n));
  on.wait();
  core::aligned_buffer<wide_of<S>> W(n * n);
  for (index j = 0; j < n; ++j) {
    for (index i = 0; i < n; ++i)
      W[i + j * n] = i <= j ? scaled(static_cast<wide_of<S>>(host[i + j * n]), by.shifts[at(j)]) : wide_of<S>(0);
  }
  made.rank = std::min(n - 1, count_independent(W.data(), n, 1 / thresholds::most_condition<real_of<S>>(n)));
  return made;
}

std::string deficient_text(const rank_estimate& seen, index n, bool under) {
  const std::string rank = seen.rank >= 0 ? fmt::format("rank {} of {}", seen.rank, n) : fmt::format("less than rank {}", n);
  const std::string number = std::isnan(seen.condition) ? ""
                                                        : fmt::format(" (condition number {:.1e}, {}s scaled to norm 1)", seen.condition,
                                                                      under ? "row" : "column");
  return fmt::format("A: expected full rank, got {}: {} {} depends on the others to rounding{}", rank, under ? "row" : "column",
                     seen.dependent, number);
}

template rank_estimate estimate_rank<float>(const context&, engine<float>&, const matrix_view<const float>&);
template rank_estimate estimate_rank<double>(const context&, engine<double>&, const matrix_view<const double>&);
template rank_estimate estimate_rank<std::complex<float>>(const context&, engine<std::complex<float>>&,
                                                          const matrix_view<const std::complex<float>>&);
template rank_estimate estimate_rank<std::complex<double>>(const context&, engine<std::complex<double>>&,
                                                           const matrix_view<const std::complex<double>>&);

}  // namespace ballast::qr
