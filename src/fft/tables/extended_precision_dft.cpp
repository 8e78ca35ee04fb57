// Mixed-radix Stockham stages for small primes, Bluestein's convolution for the others.
#include "fft/tables/extended_precision_dft.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/parallel.hpp"

namespace ballast::fft {

namespace {

// Calls body(p) for each prime factor in ascending order.
template <class Body>
void each_prime_factor(std::int64_t n, const Body& body) {
  for (std::int64_t p = 2; p * p <= n; ++p) {
    for (; n % p == 0; n /= p) body(p);
  }
  if (n > 1) body(n);
}

bool is_prime(std::int64_t n) {
  std::int64_t least = n;
  each_prime_factor(n, [&](std::int64_t p) { least = std::min(least, p); });
  return n > 1 && least == n;
}

}  // namespace

std::vector<std::int64_t> prime_factors(std::int64_t n) {
  std::vector<std::int64_t> found;
  each_prime_factor(n, [&](std::int64_t p) { found.push_back(p); });
  return found;
}

std::int64_t convolved_part(std::int64_t n) {
  std::int64_t made = 1;
  each_prime_factor(n, [&](std::int64_t p) { made *= p > k_largest_direct_prime ? p : 1; });
  return made;
}

std::int64_t real_radix(std::int64_t n) {
  if (n % 2 == 0 || convolved_part(n) > 1) return 1;
  // (r + 1)/2r of the work of a complex line is left after a radix of r.
  std::int64_t largest = 1;
  each_prime_factor(n, [&](std::int64_t p) { largest = std::max(largest, p); });
  return largest == 3 && n % 9 == 0 ? 9 : largest;
}

std::int64_t smooth_length(std::int64_t least) {
  for (std::int64_t m = least;; ++m) {
    std::int64_t rest = m;
    for (const std::int64_t p : {2, 3, 5}) {
      while (rest % p == 0) rest /= p;
    }
    if (rest == 1) return m;
  }
}

namespace {

// The angle 2πk/n, 0 ≤ k < n, is octant · π/4 + rest · π/4n with 0 ≤ rest < n; in odd octants rest is measured back from the next one.
struct octant_angle {
  octant_angle(std::int64_t k, std::int64_t n)
      : octant(static_cast<int>(8 * static_cast<__int128>(k) / n)),
        rest(static_cast<std::int64_t>(8 * static_cast<__int128>(k) - octant * static_cast<__int128>(n))) {
    if (octant % 2 == 1) rest = n - rest;
  }
  int octant;
  std::int64_t rest;
};

// Returns cosine and sine of the angle that `rest` stands for.
template <class W>
std::complex<W> within_octant(std::int64_t rest, std::int64_t n) {
  const W angle = static_cast<W>(rest) / static_cast<W>(n) * (std::numbers::pi_v<W> / 4);
  return {std::cos(angle), std::sin(angle)};
}

template <class W>
std::complex<W> in_octant(int octant, const std::complex<W>& z) {
  const W c = z.real(), s = z.imag();
  switch (octant) {
    case 0: return {c, -s};
    case 1: return {s, -c};
    case 2: return {-s, -c};
    case 3: return {-c, -s};
    case 4: return {-c, s};
    case 5: return {-s, c};
    case 6: return {s, c};
    default: return {c, s};
  }
}

// All root_of_unity(k, n), 0 ≤ k < n, bit for bit. Stores an eighth of them if n is a multiple of 8.
template <class Signal>
class circle {
 public:
  using W = typename Signal::value_type::value_type;
  explicit circle(std::int64_t n) : n_(n) {
    if (n % 8 == 0) {
      for (std::int64_t j = 0; j <= n / 8; ++j) kept_.push_back(within_octant<W>(8 * j, n));
    } else {
      for (std::int64_t k = 0; k < n; ++k) kept_.push_back(root_of_unity<W>(k, n));
    }
  }
  std::complex<W> operator[](std::int64_t k) const {
    if (n_ % 8 != 0) return kept_[static_cast<std::size_t>(k)];
    const std::int64_t eighth = n_ / 8;
    const std::int64_t octant = k / eighth;
    const std::int64_t rest = k - octant * eighth;
    return in_octant(static_cast<int>(octant), kept_[static_cast<std::size_t>(octant % 2 == 1 ? eighth - rest : rest)]);
  }

 private:
  std::int64_t n_;
  Signal kept_;
};

}  // namespace

template <class W>
std::complex<W> root_of_unity(std::int64_t k, std::int64_t n) {
  k %= n;
  if (k < 0) k += n;
  const octant_angle at(k, n);
  return in_octant(at.octant, within_octant<W>(at.rest, n));
}

template <class W>
std::complex<W> chirp(std::int64_t j, std::int64_t n) {
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): n is a length
  return root_of_unity<W>(static_cast<std::int64_t>(static_cast<__int128>(j) * j % (2 * n)), 2 * n);
}

namespace {

// Signal: std::vector or core::vector of complex numbers. All memory is of this type.
template <class Signal>
Signal transformed(Signal x, int threads);

template <class Signal>
Signal filter_of(std::int64_t n, std::int64_t m, bool inverse, int threads) {
  using W = typename Signal::value_type::value_type;
  Signal made(static_cast<std::size_t>(m));
  for (std::int64_t j = 0; j < n; ++j) {
    const auto c = inverse ? chirp<W>(j, n) : std::conj(chirp<W>(j, n));
    made[static_cast<std::size_t>(j)] = c;
    if (j > 0) made[static_cast<std::size_t>(m - j)] = c;
  }
  return transformed(std::move(made), threads);
}

template <class Signal>
Signal bluestein(const Signal& x) {
  using W = typename Signal::value_type::value_type;
  const auto n = static_cast<std::int64_t>(x.size());
  const std::int64_t m = smooth_length(2 * n - 1);
  Signal data(static_cast<std::size_t>(m));
  for (std::int64_t j = 0; j < n; ++j) data[static_cast<std::size_t>(j)] = multiply(x[static_cast<std::size_t>(j)], chirp<W>(j, n));
  data = transformed(std::move(data), 1);
  const Signal filter = filter_of<Signal>(n, m, false, 1);
  for (std::size_t k = 0; k < data.size(); ++k) data[k] = std::conj(multiply(data[k], filter[k]));
  data = transformed(std::move(data), 1);  // the transform of the conjugate is the conjugate of the inverse transform
  Signal y(static_cast<std::size_t>(n));
  for (std::int64_t k = 0; k < n; ++k)
    y[static_cast<std::size_t>(k)] = multiply(std::conj(data[static_cast<std::size_t>(k)]), chirp<W>(k, n)) / static_cast<W>(m);
  return y;
}

// Computes the transform of a prime length by the definition; roots[j] = e^{−2πi j/p}.
template <class Signal>
void by_definition(const Signal& x, const Signal& roots, Signal& y) {
  const std::size_t p = x.size();
  for (std::size_t k = 0; k < p; ++k) {
    y[k] = x[0];
    std::size_t jk = 0;
    for (std::size_t j = 1; j < p; ++j) {
      jk = jk + k < p ? jk + k : jk + k - p;
      y[k] += multiply(x[j], roots[jk]);
    }
  }
}

// One stage of radix p: x → y. s: the product of the completed radices.
template <class Signal>
void run_stage(const Signal& x, Signal& y, const circle<Signal>& all, std::int64_t s, std::int64_t p, int threads) {
  using W = typename Signal::value_type::value_type;
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const auto n = static_cast<std::int64_t>(x.size());
  const std::int64_t parts = n < std::int64_t{1} << 15 ? 1 : 64;  // tasks of a stage; their results do not depend on the number of threads
  const std::int64_t m = n / s / p;
  Signal roots;
  for (std::int64_t j = 0; j < p && p > 2; ++j) roots.push_back(root_of_unity<W>(j, p));
  core::parallel_for(threads, parts, [&](std::int64_t part, int) {
    const bool by_rows = m >= parts;
    const std::int64_t first = by_rows ? m * part / parts : 0, last = by_rows ? m * (part + 1) / parts : m;
    const std::int64_t begin = by_rows ? 0 : s * part / parts, end = by_rows ? s : s * (part + 1) / parts;
    Signal twiddles(at(p)), column(at(p)), done(at(p));
    for (std::int64_t i = first; i < last; ++i) {
      for (std::int64_t k = 0; k < p; ++k) twiddles[at(k)] = all[i * k * s];
      for (std::int64_t q = begin; q < end; ++q) {
        if (p == 2) {
          const auto a = x[at(q + s * i)], b = x[at(q + s * (i + m))];
          y[at(q + s * 2 * i)] = a + b;
          y[at(q + s * (2 * i + 1))] = multiply(a - b, twiddles[1]);
          continue;
        }
        for (std::int64_t j = 0; j < p; ++j) column[at(j)] = x[at(q + s * (i + m * j))];
        if (p > k_largest_direct_prime)
          done = bluestein(column);
        else
          by_definition(column, roots, done);
        for (std::int64_t k = 0; k < p; ++k) y[at(q + s * (p * i + k))] = multiply(done[at(k)], twiddles[at(k)]);
      }
    }
  });
}

template <class Signal>
Signal transformed(Signal x, int threads) {
  const auto n = static_cast<std::int64_t>(x.size());
  if (n > k_largest_direct_prime && is_prime(n)) return bluestein(x);
  Signal turned(x.size());
  const circle<Signal> all(n);
  std::int64_t s = 1;
  each_prime_factor(n, [&](std::int64_t p) {
    run_stage(x, turned, all, s, p, threads);
    std::swap(x, turned);
    s *= p;
  });
  return x;
}

}  // namespace

template <class W>
std::vector<std::complex<W>> chirp_filter(std::int64_t n, std::int64_t m, bool inverse, int threads) {
  return filter_of<std::vector<std::complex<W>>>(n, m, inverse, threads);
}

template <class W>
std::vector<std::complex<W>> dft(std::vector<std::complex<W>> x, int threads) {
  return transformed(std::move(x), threads);
}

template <class W>
core::vector<std::complex<W>> dft(core::vector<std::complex<W>> x) {
  return transformed(std::move(x), 1);
}

template std::complex<double> root_of_unity(std::int64_t, std::int64_t);
template std::complex<long double> root_of_unity(std::int64_t, std::int64_t);
template std::vector<std::complex<double>> dft(std::vector<std::complex<double>>, int);
template std::vector<std::complex<long double>> dft(std::vector<std::complex<long double>>, int);
template core::vector<std::complex<double>> dft(core::vector<std::complex<double>>);
template core::vector<std::complex<long double>> dft(core::vector<std::complex<long double>>);
template std::complex<double> chirp(std::int64_t, std::int64_t);
template std::complex<long double> chirp(std::int64_t, std::int64_t);
template std::vector<std::complex<double>> chirp_filter(std::int64_t, std::int64_t, bool, int);
template std::vector<std::complex<long double>> chirp_filter(std::int64_t, std::int64_t, bool, int);

}  // namespace ballast::fft
