// What kernels read besides the data: twiddle factors, chirps and filters of convolutions, checksum weights. Computed above the
// precision of the data and rounded once. program.cpp uploads them.
// Layer: fft/cuda.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fft/cuda/policy/policy.hpp"

namespace ballast::fft::cuda {

// Host side of the tables; T is the precision of the data, each complex number two of them.
template <class T>
struct table_source {
  static std::vector<T> stage_twiddles(const line_policy& policy);
  // Coarse and fine powers of w_order: [w^{i·2^bits}…, w^i…].
  static std::vector<T> split_twiddles(std::int64_t order, int fine_bits);
  // w^{ck · length/r} at cr + k, r the last radix, c < columns, and behind them w^{cj} at j · columns + c, w = w_{length · columns}.
  static std::vector<T> separated_twiddles(const line_policy& policy, std::int64_t columns);
  // What stands between the line of N numbers that 2N reals are in pairs and their spectrum: for butterfly j of the last stage
  // −i/2 · w_{2N}^j, or, with `inwards`, for that of the first stage i · w_{2N}^{−j}.
  static std::vector<T> spectrum_factors(const line_policy& policy, bool inwards);
  // e^{∓πi j²/n} for j < n (`mirrored`: its conjugate, for a pass that exchanges real and imaginary parts), and ones up to padded_to.
  static std::vector<T> chirp(std::int64_t convolution, std::int64_t padded_to, bool mirrored);
  // Transform of the conjugate chirp, periodic with `padded_to`, over padded_to. No element is smaller than smallest_of_filter, a quarter
  // of the roundoff of their root mean square, so that all have inverses.
  static std::vector<T> filter(std::int64_t convolution, std::int64_t padded_to, int threads = 1);
  static double smallest_of_filter(std::int64_t convolution, std::int64_t padded_to);
  // 1 / w for each w of a table.
  static std::vector<T> inverses(const std::vector<T>& table);
  // What weights.hpp calls α and α′ for each last butterfly of a line, four scalars; and for each first one A and A′ times w^{j·centre},
  // four scalars, and then all w^j. A line of one butterfly has α and α′ twice: each side of its check reads its own.
  struct weights {
    std::vector<T> verify, encode;
  };
  static weights checksum_weights(const line_policy& policy);
};
extern template struct table_source<float>;
extern template struct table_source<double>;

// A table of factors, and what checks take in its place.
template <class T>
struct twin_tables {
  std::vector<T> table;
  std::vector<T> twin;  // the same numbers, or their inverses
};

// Both from computations of their own, side by side if `threads` allows it, whose bits must agree: with one computation the check would
// hold for a wrong factor as well, in every later call. If they differ, both are made again. Throws ballast::error if they never agree.
// `make` returns the table; `name` is for the message.
template <class T>
twin_tables<T> make_twins(const std::string& name, const std::function<std::vector<T>()>& make, bool inverse, int threads);
extern template twin_tables<float> make_twins(const std::string&, const std::function<std::vector<float>()>&, bool, int);
extern template twin_tables<double> make_twins(const std::string&, const std::function<std::vector<double>()>&, bool, int);

int fine_bits_of(std::int64_t order);
std::int64_t coarse_size_of(std::int64_t order);

}  // namespace ballast::fft::cuda
