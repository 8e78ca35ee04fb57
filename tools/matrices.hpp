// Matrices from files, and the errors of their factors, for the subcommands of QR.
// Layer: tools.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <ballast/qr_descriptor.hpp>

#include "command.hpp"

namespace ballast::tools {

template <class T>
constexpr bool is_complex = false;
template <class T>
constexpr bool is_complex<std::complex<T>> = true;

// The numbers that errors are computed in.
template <class T>
using wide = std::conditional_t<is_complex<T>, std::complex<long double>, long double>;

// Returns the array as a column-major matrix; with one axis there is one column.
template <class T>
matrix<T> matrix_of(array read, const std::string& file) {
  if (read.shape.empty() || read.shape.size() > 2)
    throw invalid_argument_error(fmt::format("{}: expected a matrix (1 or 2 axes), got shape {}", printable(file), to_string(read.shape)));
  const std::int64_t rows = read.shape[0], columns = read.shape.size() == 2 ? read.shape[1] : 1;
  if (rows == 0 || columns == 0)
    throw invalid_argument_error(fmt::format("{}: expected a matrix with elements, got shape {}", printable(file), to_string(read.shape)));
  const auto strides = read.strides();
  const std::vector<T> values = std::move(read).as<T>();
  const matrix_view<const T> view{values.data(), rows, columns, strides[0], columns == 1 ? rows : strides[1]};
  matrix<T> made(rows, columns, order::column_major);
  for (std::int64_t j = 0; j < columns; ++j)
    for (std::int64_t i = 0; i < rows; ++i) made(i, j) = view(i, j);
  return made;
}

template <class T>
array array_of(const matrix<T>& value) {
  return {{value.rows(), value.columns()}, value.order() == order::column_major, std::vector<T>(value.data(), value.data() + value.size())};
}

// Computes y = A x in long double.
template <class T>
std::vector<wide<T>> times(matrix_view<const T> A, const std::vector<wide<T>>& x) {
  std::vector<wide<T>> y(static_cast<std::size_t>(A.rows));
  for (std::int64_t j = 0; j < A.columns; ++j)
    for (std::int64_t i = 0; i < A.rows; ++i)
      y[static_cast<std::size_t>(i)] += static_cast<wide<T>>(A(i, j)) * x[static_cast<std::size_t>(j)];
  return y;
}

// Computes y = Aᵀ x, for complex numbers with the conjugate transpose.
template <class T>
std::vector<wide<T>> transposed_times(matrix_view<const T> A, const std::vector<wide<T>>& x) {
  std::vector<wide<T>> y(static_cast<std::size_t>(A.columns));
  for (std::int64_t j = 0; j < A.columns; ++j) {
    for (std::int64_t i = 0; i < A.rows; ++i) {
      wide<T> each = static_cast<wide<T>>(A(i, j));
      if constexpr (is_complex<T>) each = std::conj(each);
      y[static_cast<std::size_t>(j)] += each * x[static_cast<std::size_t>(i)];
    }
  }
  return y;
}

template <class W>
long double norm(const std::vector<W>& x) {
  long double squares = 0;
  for (const auto& each : x) squares += std::norm(each);
  return std::sqrt(squares);
}

template <class T>
long double frobenius(matrix_view<const T> A) {
  long double squares = 0;
  for (std::int64_t j = 0; j < A.columns; ++j)
    for (std::int64_t i = 0; i < A.rows; ++i) squares += std::norm(static_cast<wide<T>>(A(i, j)));
  return std::sqrt(squares);
}

constexpr int k_probes = 8;

template <class T>
std::vector<wide<T>> random_vector(std::mt19937_64& random, std::int64_t size) {
  std::normal_distribution<double> normal;
  std::vector<wide<T>> made(static_cast<std::size_t>(size));
  for (auto& each : made) {
    each = normal(random);
    if constexpr (is_complex<T>) each.imag(normal(random));
  }
  return made;
}

struct errors {
  long double residual = 0, orthogonality = 0;

  // Estimates the errors with random vectors w and z: the maxima, over `probes` vectors, of ‖A w − Q (R w)‖ / (‖A‖_F ‖w‖) and
  // ‖Qᵀ(Q z) − z‖ / ‖z‖.
  template <class T>
  void add(const matrix_view<const T>& a, const matrix_view<const T>& q, const matrix_view<const T>& r, std::mt19937_64& random,
           int probes) {
    const long double size = frobenius(a);
    for (int probe = 0; probe < probes; ++probe) {
      const auto w = random_vector<T>(random, a.columns);
      auto difference = times(a, w);
      const auto product = times(q, times(r, w));
      for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= product[i];
      const long double own = size > 0 ? norm(difference) / (size * norm(w)) : norm(difference);
      const auto z = random_vector<T>(random, q.columns);
      auto back = transposed_times(q, times(q, z));
      for (std::size_t i = 0; i < back.size(); ++i) back[i] -= z[i];
      const long double off = norm(back) / norm(z);
      if (!(own <= residual)) residual = own;  // keeps a NaN
      if (!(off <= orthogonality)) orthogonality = off;
    }
  }
  nlohmann::ordered_json json() const {
    return {{"residual", json_number(static_cast<double>(residual))}, {"orthogonality", json_number(static_cast<double>(orthogonality))}};
  }
  std::string line() const {
    return fmt::format("‖A − QR‖/‖A‖ ≈ {:.3g}, ‖QᵀQ − I‖ ≈ {:.3g}", static_cast<double>(residual), static_cast<double>(orthogonality));
  }
};

// `ballast qr` on the ranks of a group, of which this one has read its part: a block of rows, or its blocks on a grid. qr_ranks.cpp.
struct ranks_options {
  std::string input, q, r;  // q, r: files of the first rank
  std::int64_t block = 64;
  std::optional<qr::process_grid> grid;  // none: by block columns

  // The part of the file that a rank reads.
  array_part part(const group& all) const;
};
// Reads --grid, such as "2x3", for so many ranks. Throws invalid_argument_error.
qr::process_grid grid_of(const std::string& given, int ranks);

template <class T>
int run_qr_on_ranks(const common_options& wanted, const ranks_options& how, array read);

}  // namespace ballast::tools
