// Powers of a primitive root, and the index maps of Good's factorization.
#include "fft/tables/cyclic.hpp"

#include <algorithm>

#include "core/at.hpp"
#include "fft/tables/extended_precision_dft.hpp"

namespace ballast::fft {

using core::at;

namespace {

// Returns g^j mod p, j = 0 … p − 2, for the least primitive root g, the first whose powers return to 1 only after p − 1 of them.
std::vector<std::int64_t> powers_of_root(std::int64_t p) {
  std::vector<std::int64_t> made;
  for (std::int64_t g = 1; static_cast<std::int64_t>(made.size()) != p - 1; ++g) {
    made.assign(1, 1);
    for (std::int64_t power = g % p; power != 1; power = power * g % p) made.push_back(power);
  }
  return made;
}

std::vector<std::int64_t> prime_powers(std::int64_t n) {
  std::vector<std::int64_t> made;
  std::int64_t last = 0;
  for (const std::int64_t p : prime_factors(n)) {
    if (p == last)
      made.back() *= p;
    else
      made.push_back(p);
    last = p;
  }
  return made;
}

}  // namespace

bool is_cyclic(std::int64_t p) { return prime_factors(p).size() == 1 && convolved_part(p - 1) == 1; }

// With q = p − 1 and its factors G_i, numbers below q have digits j_i in x and y, the number being Σ_i j_i q/G_i mod q; in the spectrum
// their digits are the remainders k_i modulo the G_i. The product of two such numbers is Σ_i j_i k_i q/G_i mod q: one transform over each
// i, without twiddle factors between them.
cyclic_convolution make_cyclic(std::int64_t p) {
  const std::int64_t points = p - 1;
  const auto powers = powers_of_root(p);
  cyclic_convolution made;
  made.factors = prime_powers(points);
  made.input.resize(at(p));
  made.powers.resize(at(points));
  made.output.assign(at(p), points);
  for (std::int64_t i = 0; i < points; ++i) {
    // Row i of x and of y: the forward transform takes the digit of its first factor as the most significant one, and the transform with
    // the factors reversed writes it as such.
    std::int64_t number = 0, most = points;
    // The row of the spectrum that holds the remainders of i: the remainder of the first factor is the least significant.
    std::int64_t row = 0, least = 1;
    for (const std::int64_t factor : made.factors) {
      most /= factor;
      number += i / most % factor * (points / factor);
      row += i % factor * least;
      least *= factor;
    }
    number %= points;
    made.input[at(i)] = powers[at(number)];
    made.output[at(powers[at((points - number) % points)])] = i;
    made.powers[at(row)] = i;
  }
  return made;
}

template <class W>
std::vector<std::complex<W>> cyclic_filter(const cyclic_convolution& of) {
  const auto points = static_cast<std::int64_t>(of.powers.size());
  std::vector<std::complex<W>> roots(of.powers.size()), made;
  const auto powers = powers_of_root(points + 1);
  for (std::int64_t j = 0; j < points; ++j) roots[at(j)] = root_of_unity<W>(powers[at((points - j) % points)], points + 1);
  roots = dft(std::move(roots));
  for (const std::int64_t k : of.powers) made.push_back(roots[at(k)] / static_cast<W>(points));
  return made;
}

template std::vector<std::complex<double>> cyclic_filter(const cyclic_convolution&);
template std::vector<std::complex<long double>> cyclic_filter(const cyclic_convolution&);

}  // namespace ballast::fft
