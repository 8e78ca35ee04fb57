// The real-to-real transforms: their matrices by definition, and their computation as Fourier transforms of about the same length between
// sparse maps.
// Layer: algorithm, backend-free.
// Source: J. Makhoul, A fast cosine transform in one and two dimensions, 1980 (II and III); Z. Wang, 1984 (IV of even length); M. Heideman,
// Computation of an odd-length DCT from a real-valued DFT of the same length, 1992 (IV of odd length).
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

#include <ballast/fft.hpp>

namespace ballast::fft {

// Every element of the matrices L is a cosine or sine of a multiple of 2π/N. Returns N.
std::int64_t circle_of(real_kind kind, std::int64_t n);
// Returns element (k, j) of L, rounded like the roots, from roots[m] = e^{−2πi m/N}, m = 0 … N − 1.
template <class W>
W real_element(real_kind kind, std::int64_t n, std::int64_t k, std::int64_t j, const std::vector<std::complex<W>>& roots);

// Return L x and Lᵀ a, computed from one Fourier transform of N points. x and a may be complex. O(n log n).
template <class W>
std::vector<std::complex<W>> real_transform(real_kind kind, const std::vector<std::complex<W>>& x);
template <class W>
std::vector<std::complex<W>> transposed_real_transform(real_kind kind, const std::vector<std::complex<W>>& a);

// A sparse linear map: result i is Σ factor · x[index] over the terms [begin[i], begin[i + 1]), of which there are few. `paired`: the
// number is a part of a complex one, whose parts have an even index and the next.
struct line_map {
  struct term {
    std::int64_t index;
    long double factor;
    bool paired = false;
  };
  std::vector<std::int64_t> begin = {0};
  std::vector<term> terms;
  bool paired = false;  // the results are
  std::int64_t to = 0;  // index of the first result in its memory

  std::int64_t rows() const { return static_cast<std::int64_t>(begin.size()) - 1; }
};

// The Fourier transform of `points` points of one part of a line: c2c forward, r2c, or c2r without a factor.
struct line_part {
  fft::kind kind;
  std::int64_t points;
  std::int64_t from, to;  // indices of the first numbers in u and v
};

// y = L x in these steps: u = before(x); the parts from u to v; the maps of `after` in their order from v to v, the last one from v to y.
struct line_program {
  line_map before;
  std::int64_t u_size = 0, v_size = 0;
  std::vector<line_part> parts;
  std::vector<line_map> after;
};
// Costs one real transform of n points, for dct4 and dst4 of even n one complex transform of n/2; dct1 and dst1, with N = 2 m 2^a and odd
// m, real transforms of N/4, N/8, … m and 2 m points.
line_program real_line_program(real_kind kind, std::int64_t n);

extern template float real_element(real_kind, std::int64_t, std::int64_t, std::int64_t, const std::vector<std::complex<float>>&);
extern template double real_element(real_kind, std::int64_t, std::int64_t, std::int64_t, const std::vector<std::complex<double>>&);
extern template std::vector<std::complex<double>> real_transform(real_kind, const std::vector<std::complex<double>>&);
extern template std::vector<std::complex<long double>> real_transform(real_kind, const std::vector<std::complex<long double>>&);
extern template std::vector<std::complex<double>> transposed_real_transform(real_kind, const std::vector<std::complex<double>>&);
extern template std::vector<std::complex<long double>> transposed_real_transform(real_kind, const std::vector<std::complex<long double>>&);

}  // namespace ballast::fft
