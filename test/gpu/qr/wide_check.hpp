// The errors of results of QR, on the host in the next higher precision, with random vectors: the products of m × n matrices with vectors,
// and reflectors applied one after the other, take O(m n) operations for each result.
// Layer: gpu-check.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <ballast/qr.hpp>

#include "core/counter_rng.hpp"

namespace ballast::gpu_check::factors {

// T: the type of the elements. All matrices are column-major and contiguous.
template <class T>
class wide_check {
 public:
  using index = std::int64_t;
  static constexpr bool complex = !std::is_floating_point_v<T>;
  using real = decltype(std::abs(T()));
  using wide_real = std::conditional_t<sizeof(real) == 4, double, long double>;
  using wide = std::conditional_t<complex, std::complex<wide_real>, wide_real>;
  using vector = std::vector<wide>;

  wide_check(index m, index n) : m_(m), n_(n), k_(std::min(m, n)) {}

  // ‖A P x − Q R x‖ over ‖A‖_F ‖x‖ √max(m, n) u / √n. F, tau: the factors. pivots: of the columns, or null.
  double factors(const T* A, const T* F, const T* tau, const index* pivots) const {
    const vector x = random(n_, 7);
    vector right(at(m_)), made(right);
    for (index j = 0; j < n_; ++j) {
      const T* const column = A + (pivots == nullptr ? j : pivots[j]) * m_;
      for (index i = 0; i < m_; ++i) right[at(i)] += wide(column[i]) * x[at(j)];
      for (index i = 0; i <= std::min(j, m_ - 1); ++i) made[at(i)] += wide(F[i + j * m_]) * x[at(j)];
    }
    apply_q(F, tau, made);
    return distance(made, right) / (column_size(A) * norm(x) * unit());
  }
  // How far the diagonal of R is below the norm of a rest of a later column, over ‖A‖_F √max(m, n) u / √n; 0 if it never is.
  double order(const T* A, const T* F) const {
    wide_real most = 0;
    for (index j = 0; j < n_; ++j) {
      wide_real square = 0;
      for (index i = std::min(j, k_ - 1); i >= 0; --i) {
        square += square_of(F[i + j * m_]);
        most = std::max(most, std::sqrt(square) - std::abs(wide(F[i + i * m_])));
      }
    }
    return static_cast<double>(most) / (column_size(A) * unit());
  }
  // ‖C x − Q C' x‖, C' = QᴴC the result, as above; C and C' are m × n.
  double applied(const T* C, const T* made, const T* F, const T* tau) const {
    const vector x = random(n_, 8);
    vector given = product(C, x), result = product(made, x);
    apply_q(F, tau, result);
    return distance(result, given) / (column_size(C) * norm(x) * unit());
  }
  // ‖Q₁ x − Q (x, 0)‖ over ‖x‖ √max(m, n) u, Q₁ the first n columns, as formed.
  double formed(const T* Q, const T* F, const T* tau) const {
    const vector x = random(n_, 9);
    vector wanted(at(m_));
    std::copy(x.begin(), x.end(), wanted.begin());
    apply_q(F, tau, wanted);
    return distance(product(Q, x), wanted) / (norm(x) * unit());
  }
  // ‖Aᴴ(b − A x)‖ over ‖A‖_F² (‖x‖ + ‖b‖ √n / ‖A‖_F) √max(m, n) u / n. x: the solution, n numbers. The norm of a random matrix is up to
  // twice ‖A‖_F / √n, so that this may be four times the error of the factors.
  double solved(const T* A, const T* b, const T* x) const {
    vector solution(at(n_));
    std::copy(x, x + n_, solution.begin());
    vector rest = product(A, solution);
    wide_real right = 0, square = 0;
    for (index i = 0; i < m_; ++i) {
      right += square_of(b[i]);
      rest[at(i)] -= wide(b[i]);
    }
    for (index j = 0; j < n_; ++j) {
      wide sum = 0;
      for (index i = 0; i < m_; ++i) sum += conjugate(wide(A[i + j * m_])) * rest[at(i)];
      square += square_of(sum);
    }
    const double size = column_size(A);
    return static_cast<double>(std::sqrt(square)) /
           (size * size * (norm(solution) + static_cast<double>(std::sqrt(right)) / size) * unit());
  }

 private:
  static std::size_t at(index i) { return static_cast<std::size_t>(i); }
  template <class Number>
  static wide_real square_of(const Number& x) {
    if constexpr (complex) return static_cast<wide_real>(x.real()) * x.real() + static_cast<wide_real>(x.imag()) * x.imag();
    if constexpr (!complex) return static_cast<wide_real>(x) * x;
  }
  static wide conjugate(const wide& x) {
    if constexpr (complex) return std::conj(x);
    if constexpr (!complex) return x;
  }
  static vector random(index count, std::uint64_t seed) {
    vector made;
    const auto next = [&](std::uint64_t stream, index i) {
      return static_cast<wide_real>(core::random_uniform(seed, stream, static_cast<std::uint64_t>(i)) * 2 - 1);
    };
    for (index i = 0; i < count; ++i) {
      if constexpr (complex) made.emplace_back(next(1, i), next(2, i));
      if constexpr (!complex) made.push_back(next(1, i));
    }
    return made;
  }
  static double norm(const vector& x) {
    wide_real sum = 0;
    for (const wide& each : x) sum += square_of(each);
    return static_cast<double>(std::sqrt(sum));
  }
  static double distance(vector x, const vector& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] -= y[i];
    return norm(x);
  }
  double unit() const {
    return std::sqrt(static_cast<double>(std::max(m_, n_))) * static_cast<double>(std::numeric_limits<real>::epsilon()) / 2;
  }
  double column_size(const T* A) const {
    wide_real sum = 0;
    for (index e = 0; e < m_ * n_; ++e) sum += square_of(A[e]);
    return static_cast<double>(std::sqrt(sum / static_cast<wide_real>(n_)));
  }
  vector product(const T* A, const vector& x) const {
    vector made(at(m_));
    for (index j = 0; j < n_; ++j) {
      for (index i = 0; i < m_; ++i) made[at(i)] += wide(A[i + j * m_]) * x[at(j)];
    }
    return made;
  }
  // x ← H_1 … H_k x, H_j = I − tau_j v vᴴ.
  void apply_q(const T* F, const T* tau, vector& x) const {
    for (index j = k_ - 1; j >= 0; --j) {
      const T* const v = F + j * m_;
      wide sum = x[at(j)];
      for (index i = j + 1; i < m_; ++i) sum += conjugate(wide(v[i])) * x[at(i)];
      sum *= wide(tau[j]);
      x[at(j)] -= sum;
      for (index i = j + 1; i < m_; ++i) x[at(i)] -= wide(v[i]) * sum;
    }
  }

  index m_, n_, k_;
};

}  // namespace ballast::gpu_check::factors
