// The tables that kernels read besides the data: twiddle factors, chirps and filters of convolutions, checksum weights. They are computed
// in more precision than the data and rounded once. program.cpp uploads them.
// Layer: fft/cuda.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fft/cuda/plan/phases.hpp"
#include "fft/cuda/policy/policy.hpp"
#include "fft/tables/extended_precision_dft.hpp"

namespace ballast::fft::cuda {

// The functions of fft/tables/extended_precision_dft.hpp that tables are computed with. W: the precision of the computation.
template <class W>
struct factor_functions {
  std::complex<W> (*root)(std::int64_t k, std::int64_t n) = fft::root_of_unity<W>;
  std::complex<W> (*chirp)(std::int64_t j, std::int64_t n) = fft::chirp<W>;
  std::vector<std::complex<W>> (*filter)(std::int64_t n, std::int64_t m, bool inverse, int threads) = fft::chirp_filter<W>;
};
// Replaces the functions for all plans that are constructed from now on, until the next call. For tests. No other thread may construct a
// plan meanwhile.
template <class W>
void override_factors(const factor_functions<W>& by);
extern template void override_factors(const factor_functions<double>&);
extern template void override_factors(const factor_functions<long double>&);

// The phases of the passes of a line with one check from end to end (phases.hpp); `middle` only in three passes.
struct end_to_end_phases {
  vector_phases first, middle, last;
};

// Computes the tables on the host. T is the precision of the data; each complex number is two T.
template <class T>
struct table_source {
  // Returns w_{pr}^{jk} for the stages of a line. For a line of r · p points with transforms by the definition: w_p^{mk} of four outputs m,
  // for each k ≤ p/2, then those of the next four, up to p/2, outputs beyond it having zeros; then w_{rp}^{jk}, j < p, for k = 1 … r − 1.
  static std::vector<T> stage_twiddles(const line_policy& policy);
  // Returns coarse and fine powers of w_order: [w^{i·2^bits}…, w^i…].
  static std::vector<T> split_twiddles(std::int64_t order, int fine_bits);
  // Returns w^{ck · length/r} at cr + k, r the last radix, c < columns, then w^{cj} at j · columns + c, w = w_{length · columns}.
  static std::vector<T> separated_twiddles(const line_policy& policy, std::int64_t columns);
  // Returns the factors between the line of N numbers that 2N reals form in pairs and the spectrum of the reals: for butterfly j of the
  // last stage −i/2 · w_{2N}^j, or, with `inwards`, for butterfly j of the first stage i · w_{2N}^{−j}.
  static std::vector<T> spectrum_factors(const line_policy& policy, bool inwards);
  // Returns e^{∓πi j²/n} for j < n (`mirrored`: the conjugate, for a pass that exchanges real and imaginary parts), then ones up to
  // padded_to.
  static std::vector<T> chirp(std::int64_t convolution, std::int64_t padded_to, bool mirrored);
  // Returns the transform of the conjugate chirp, periodic with `padded_to`, divided by padded_to. Elements are at least
  // smallest_of_filter, a quarter of the roundoff of their root mean square, so that all have inverses.
  static std::vector<T> filter(std::int64_t convolution, std::int64_t padded_to, int threads = 1);
  static double smallest_of_filter(std::int64_t convolution, std::int64_t padded_to);
  // Returns 1 / w for each w of a table.
  static std::vector<T> inverses(const std::vector<T>& table);
  // The weights of policy/weights.hpp. `verify`: α and α′ for each last butterfly of a line, four scalars. `encode`: A and A′ times
  // w^{j·centre} for each first butterfly, four scalars, then all w^j. A line of one butterfly has two copies of α and α′, one for each
  // side of its check.
  struct weights {
    std::vector<T> verify, encode;
  };
  static weights checksum_weights(const line_policy& policy);
  // The weights of a line of N points in two or three passes with one check from end to end. `end_to_end_encode`: A(p) B(p mod N/n₁) w_N^{p
  // · centre} of both vectors for first butterfly j of column c, p = c + jN/n₁, four scalars, then all w_N^p. `end_to_end_verify`: the
  // phases of both vectors for each last butterfly of the last pass, four scalars. `end_to_end_lines`: the weights of both vectors of its
  // lines k₁ + n₁k₂, four scalars.
  static end_to_end_phases end_to_end_phases_of(const std::vector<line_policy>& passes);
  static std::vector<T> end_to_end_encode(const std::vector<line_policy>& passes, const end_to_end_phases& phases);
  static std::vector<T> end_to_end_verify(const std::vector<line_policy>& passes, const end_to_end_phases& phases);
  static std::vector<T> end_to_end_lines(const std::vector<line_policy>& passes, const end_to_end_phases& phases);
};
extern template struct table_source<float>;
extern template struct table_source<double>;

// A table of factors, and the table that checks use in its place.
template <class T>
struct twin_tables {
  std::vector<T> table;
  std::vector<T> twin;  // the same numbers, or their inverses
};

// Computes table and twin independently, concurrently if `threads` allows, and compares their bits: with a single computation, the check
// would accept a wrong factor in every later call. If they differ, computes both again. Throws ballast::error if they never agree. `make`
// returns the table; `name` appears in the message.
template <class T>
twin_tables<T> make_twins(const std::string& name, const std::function<std::vector<T>()>& make, bool inverse, int threads);
extern template twin_tables<float> make_twins(const std::string&, const std::function<std::vector<float>()>&, bool, int);
extern template twin_tables<double> make_twins(const std::string&, const std::function<std::vector<double>()>&, bool, int);

int fine_bits_of(std::int64_t order);
std::int64_t coarse_size_of(std::int64_t order);

}  // namespace ballast::fft::cuda
