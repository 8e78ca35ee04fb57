// The definitions and the programs of the real-to-real transforms.
#include "fft/tables/real_to_real.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>
#include <utility>

#include "core/at.hpp"
#include "fft/tables/extended_precision_dft.hpp"

namespace ballast::fft {

using core::at;

namespace {

bool is_cosine(real_kind kind) {
  return kind == real_kind::dct1 || kind == real_kind::dct2 || kind == real_kind::dct3 || kind == real_kind::dct4;
}
bool is_sine(real_kind kind) {
  return kind == real_kind::dst1 || kind == real_kind::dst2 || kind == real_kind::dst3 || kind == real_kind::dst4;
}

// Element (k, j) is weight_j · 2 cos(2π p_j q_k/N) for the cosine transforms, with the sine for the sine transforms.
std::int64_t input_angle(real_kind kind, std::int64_t j) {
  switch (kind) {
    case real_kind::dct1:
    case real_kind::dct3: return j;
    case real_kind::dst1:
    case real_kind::dst3: return j + 1;
    default: return 2 * j + 1;
  }
}
std::int64_t output_angle(real_kind kind, std::int64_t k) {
  switch (kind) {
    case real_kind::dct1:
    case real_kind::dct2: return k;
    case real_kind::dst1:
    case real_kind::dst2: return k + 1;
    default: return 2 * k + 1;
  }
}
// hc2r: the elements of a half spectrum that stand for two of the whole one count twice.
long double weight_of(real_kind kind, std::int64_t n, std::int64_t j) {
  switch (kind) {
    case real_kind::dct1: return j == 0 || j == n - 1 ? 0.5L : 1.0L;
    case real_kind::dct3: return j == 0 ? 0.5L : 1.0L;
    case real_kind::dst3: return j == n - 1 ? 0.5L : 1.0L;
    case real_kind::hc2r: return j == 0 || 2 * j == n ? 1.0L : 2.0L;
    default: return 1.0L;
  }
}

}  // namespace

std::int64_t circle_of(real_kind kind, std::int64_t n) {
  switch (kind) {
    case real_kind::dct2:
    case real_kind::dct3:
    case real_kind::dst2:
    case real_kind::dst3: return 4 * n;
    case real_kind::dct4:
    case real_kind::dst4: return 8 * n;
    default: return logical_length(kind, n);
  }
}

template <class W>
W real_element(real_kind kind, std::int64_t n, std::int64_t k, std::int64_t j, const std::vector<std::complex<W>>& roots) {
  const auto cosine = [&](std::int64_t p, std::int64_t q) { return roots[at(p * q % circle_of(kind, n))].real(); };
  const auto sine = [&](std::int64_t p, std::int64_t q) { return -roots[at(p * q % circle_of(kind, n))].imag(); };
  const auto weight = static_cast<W>(weight_of(kind, n, j));
  switch (kind) {
    case real_kind::r2hc: return 2 * k <= n ? cosine(j, k) : -sine(j, n - k);
    case real_kind::hc2r: return weight * (2 * j <= n ? cosine(j, k) : -sine(n - j, k));
    case real_kind::dht: return cosine(j, k) + sine(j, k);
    default: break;
  }
  const std::int64_t p = input_angle(kind, j), q = output_angle(kind, k);
  return 2 * weight * (is_cosine(kind) ? cosine(p, q) : sine(p, q));
}

template <class W>
std::vector<std::complex<W>> real_transform(real_kind kind, const std::vector<std::complex<W>>& x) {
  using number = std::complex<W>;
  const auto n = static_cast<std::int64_t>(x.size());
  const std::int64_t circle = circle_of(kind, n);
  const number i(0, 1);
  std::vector<number> z(at(circle)), y(at(n));
  if (is_cosine(kind) || is_sine(kind)) {
    for (std::int64_t j = 0; j < n; ++j) {
      const number value = x[at(j)] * static_cast<W>(weight_of(kind, n, j));
      const std::int64_t p = input_angle(kind, j);
      z[at(p % circle)] += value;
      z[at((circle - p) % circle)] += is_cosine(kind) ? value : -value;
    }
    z = dft(std::move(z));
    for (std::int64_t k = 0; k < n; ++k) {
      const number value = z[at(output_angle(kind, k) % circle)];
      y[at(k)] = is_cosine(kind) ? value : multiply(i, value);
    }
    return y;
  }
  if (kind == real_kind::hc2r) {
    z[0] = x[0];
    for (std::int64_t j = 1; 2 * j < n; ++j) {
      const number turned = multiply(i, x[at(n - j)]);
      z[at(j)] = x[at(j)] + turned;
      z[at(n - j)] = x[at(j)] - turned;
    }
    if (n % 2 == 0) z[at(n / 2)] = x[at(n / 2)];
    z = dft(std::move(z));
    for (std::int64_t k = 0; k < n; ++k) y[at(k)] = z[at((n - k) % n)];
    return y;
  }
  z = dft(x);
  for (std::int64_t k = 0; k < n; ++k) {
    const auto both = [&](std::int64_t f) { return std::pair(z[at(f)], z[at((n - f) % n)]); };
    const auto cosines = [&](std::int64_t f) { return (both(f).first + both(f).second) * W(0.5); };
    const auto sines = [&](std::int64_t f) { return multiply(number(0, W(0.5)), both(f).first - both(f).second); };
    if (kind == real_kind::dht)
      y[at(k)] = cosines(k) + sines(k);
    else
      y[at(k)] = 2 * k <= n ? cosines(k) : -sines(n - k);
  }
  return y;
}

// With L = K W, where K has the cosines and sines and W is diagonal, Kᵀ is that of the inverse kind: Lᵀ a = W L' W'^{-1} a.
template <class W>
std::vector<std::complex<W>> transposed_real_transform(real_kind kind, const std::vector<std::complex<W>>& a) {
  const auto n = static_cast<std::int64_t>(a.size());
  const real_kind turned = inverse_of(kind);
  auto made = a;
  for (std::int64_t k = 0; k < n; ++k) made[at(k)] /= static_cast<W>(weight_of(turned, n, k));
  made = real_transform(turned, made);
  for (std::int64_t j = 0; j < n; ++j) made[at(j)] *= static_cast<W>(weight_of(kind, n, j));
  return made;
}

namespace {

using term = line_map::term;

void add_row(line_map& to, std::initializer_list<term> terms) {
  for (const term& each : terms) {
    if (each.factor != 0) to.terms.push_back(each);
  }
  to.begin.push_back(static_cast<std::int64_t>(to.terms.size()));
}

// Returns e^{−πi k/d}.
std::complex<long double> turn(std::int64_t k, std::int64_t d) { return root_of_unity<long double>(k, 2 * d); }

// Adds a part after the present ones. Returns it.
line_part& add_part(line_program& to, kind what, std::int64_t points) {
  const std::int64_t half = points + 2 - points % 2;  // numbers of a half spectrum
  to.parts.push_back({what, points, to.u_size, to.v_size});
  to.u_size += what == kind::r2c ? points : what == kind::c2r ? half : 2 * points;
  to.v_size += what == kind::r2c ? half : what == kind::c2r ? points : 2 * points;
  return to.parts.back();
}

// ---- II and III ----

// The order of the inputs of a dct2 of n points as a real sequence: the even ones forward, then the odd ones backward.
std::int64_t dct2_order(std::int64_t n, std::int64_t j) { return 2 * j < n ? 2 * j : 2 * (n - 1 - j) + 1; }

// Adds the terms of result k of a dct2 of n points from the half spectrum V at `from` of the sequence in that order: y_k = 2 Re e^{−πik/2n}
// V_k, and y_{n−k} = −2 Im e^{−πik/2n} V_k.
void add_dct2_terms(line_map& to, std::int64_t n, std::int64_t k, std::int64_t from) {
  const bool first = 2 * k <= n;
  const std::int64_t f = first ? k : n - k;
  const auto w = turn(f, 2 * n);
  const long double re = first ? 2 * w.real() : -2 * w.imag();
  const long double im = first ? -2 * w.imag() : -2 * w.real();
  to.terms.push_back({from + 2 * f, re, true});
  if (f > 0 && 2 * f < n) to.terms.push_back({from + 2 * f + 1, im, true});  // the others are real
}

line_program dct2_program(std::int64_t n) {
  line_program made;
  add_part(made, kind::r2c, n);
  for (std::int64_t j = 0; j < n; ++j) add_row(made.before, {{dct2_order(n, j), 1}});
  line_map last;
  for (std::int64_t k = 0; k < n; ++k) {
    add_dct2_terms(last, n, k, 0);
    add_row(last, {});
  }
  made.after.push_back(std::move(last));
  return made;
}

// The transpose of the steps of dct2: V_k = e^{πik/2n} (x_k − i x_{n−k}).
line_program dct3_program(std::int64_t n) {
  line_program made;
  add_part(made, kind::c2r, n);
  made.before.paired = true;
  for (std::int64_t k = 0; 2 * k <= n; ++k) {
    const auto w = std::conj(turn(k, 2 * n));
    if (k == 0) {
      add_row(made.before, {{0, 1}});
      add_row(made.before, {});
    } else if (2 * k == n) {
      add_row(made.before, {{k, w.real() + w.imag()}});
      add_row(made.before, {});
    } else {
      add_row(made.before, {{k, w.real()}, {n - k, w.imag()}});
      add_row(made.before, {{k, w.imag()}, {n - k, -w.real()}});
    }
  }
  line_map last;
  for (std::int64_t i = 0; i < n; ++i) add_row(last, {{i % 2 == 0 ? i / 2 : n - 1 - i / 2, 1}});
  made.after.push_back(std::move(last));
  return made;
}

// ---- IV ----

// z_j = x_{2j} + i x_{n−1−2j}: y_{2k} − i y_{n−1−2k} = 2 Σ_j z_j e^{−πi(4j+1)(4k+1)/4n}, where the angle is 2π jk/(n/2) + π(4j+1)/4n +
// πk/n.
line_program dct4_program_even(std::int64_t n) {
  line_program made;
  add_part(made, kind::c2c, n / 2);
  made.before.paired = true;
  for (std::int64_t j = 0; j < n / 2; ++j) {
    const auto w = turn(4 * j + 1, 4 * n);
    add_row(made.before, {{2 * j, w.real()}, {n - 1 - 2 * j, -w.imag()}});
    add_row(made.before, {{2 * j, w.imag()}, {n - 1 - 2 * j, w.real()}});
  }
  line_map last;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t k = i % 2 == 0 ? i / 2 : (n - 1 - i) / 2;
    const auto w = turn(k, n);
    if (i % 2 == 0)
      add_row(last, {{2 * k, 2 * w.real(), true}, {2 * k + 1, -2 * w.imag(), true}});
    else
      add_row(last, {{2 * k, -2 * w.imag(), true}, {2 * k + 1, -2 * w.real(), true}});
  }
  made.after.push_back(std::move(last));
  return made;
}

// With a = 2j + 1, b = 2k + 1 and 1 = u n + 8 v the angle 2π ab/8n is 2π ab u/8 + 2π ab v/n. √2 cos 2πc/8 and √2 sin 2πc/8 are the
// characters (2/c) and (−2/c) of odd c, so y_k = √2 [(2/ub) Σ_j (2/a) x_j cos 2π abv/n − (−2/ub) Σ_j (−2/a) x_j sin 2π abv/n]. The residues
// a mod n are all different. The first sum needs the even part of its sequence, the second one the odd part: together they are one real
// sequence.
int character(std::int64_t c, bool minus) {
  constexpr int k_table[2][4] = {{1, -1, -1, 1}, {1, 1, -1, -1}};
  return k_table[minus ? 1 : 0][(c % 8 - 1) / 2];
}

line_program dct4_program_odd(std::int64_t n) {
  line_program made;
  add_part(made, kind::r2c, n);
  for (std::int64_t r = 0; r < n; ++r) {
    const std::int64_t a = r % 2 == 1 ? r : r + n;  // odd, below 2n
    const std::int64_t mirrored = 2 * n - a;
    const int own = (character(a, false) + character(a, true)) / 2;
    const int other = (character(mirrored, false) - character(mirrored, true)) / 2;
    if (r == 0)
      add_row(made.before, {{(a - 1) / 2, static_cast<long double>(character(a, false))}});
    else
      add_row(made.before, {{(a - 1) / 2, static_cast<long double>(own)}, {(mirrored - 1) / 2, static_cast<long double>(other)}});
  }
  std::int64_t v = 0;
  while (n > 1 && 8 * v % n != 1) ++v;
  line_map last;
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int64_t b = 2 * k + 1, ub = n % 8 * (b % 8);  // n is its own inverse modulo 8
    const std::int64_t t = b % n * v % n;
    const bool upper = 2 * t > n;
    const long double root = std::numbers::sqrt2_v<long double>;
    const long double im = t == 0 ? 0 : upper ? -root : root;
    add_row(last,
            {{2 * (upper ? n - t : t), root * character(ub, false), true}, {2 * (upper ? n - t : t) + 1, im * character(ub, true), true}});
  }
  made.after.push_back(std::move(last));
  return made;
}

line_program dct4_program(std::int64_t n) { return n % 2 == 0 ? dct4_program_even(n) : dct4_program_odd(n); }

// ---- I ----

// One level: the odd elements of the sequence, a dct2 or dst2 of `half` points whose half spectrum is at `from`; the even ones are the next
// level.
struct level {
  std::int64_t half, from;
};

// A dct1 of m + 1 points from that of the even elements, of m/2 + 1, and the dct2 of the odd ones: y_k = e_k + o_k, y_{m−k} = e_k − o_k. A
// dst1 alike. So there are sums only, and no digits are lost. An odd m is extended to a sequence of 2 m points.
line_program type1_program(real_kind kind, std::int64_t n) {
  const bool cosine = kind == real_kind::dct1;
  line_program made;
  std::vector<level> levels;
  std::int64_t m = cosine ? n - 1 : n + 1;
  std::int64_t step = 1;  // element i of the present sequence, i = 0 … m (dst1: 1 … m − 1), is number i·step of x, or the one before
  const auto index = [&](std::int64_t i) { return cosine ? i * step : i * step - 1; };
  for (; m % 2 == 0; m /= 2, step *= 2) {
    const std::int64_t half = m / 2;
    levels.push_back({half, add_part(made, kind::r2c, half).to});
    for (std::int64_t j = 0; j < half; ++j) {
      const std::int64_t i = dct2_order(half, j);
      add_row(made.before, {{index(2 * i + 1), cosine || i % 2 == 0 ? 1.0L : -1.0L}});
    }
  }
  std::int64_t below = 0;  // the results of the level below, in v
  std::vector<line_map> maps;
  if (cosine || m > 1) {
    const line_part tail = add_part(made, kind::r2c, 2 * m);
    line_map sums;
    for (std::int64_t j = 0; j < 2 * m; ++j) {
      const bool none = !cosine && j % m == 0;
      add_row(made.before, {{none ? 0 : index(std::min(j, 2 * m - j)), none ? 0.0L : cosine || j < m ? 1.0L : -1.0L}});
    }
    for (std::int64_t k = 0; k <= m; ++k) add_row(sums, {{tail.to + 2 * k + (cosine ? 0 : 1), cosine ? 1.0L : -1.0L, true}});
    maps.push_back(std::move(sums));
  } else {
    line_map zeros;  // results 0 and 1 of no sequence
    add_row(zeros, {});
    add_row(zeros, {});
    maps.push_back(std::move(zeros));
  }
  // Results k = 0 … m of each level, also of a dst1, where the first and the last are 0.
  std::int64_t free = made.v_size;
  const auto place = [&](line_map& of) {
    of.to = below = free;
    free += of.rows() + of.rows() % 2;
  };
  place(maps.back());
  for (auto now = levels.rbegin(); now != levels.rend(); ++now) {
    line_map sums;
    for (std::int64_t i = 0; i <= 2 * now->half; ++i) {
      const bool mirrored = i > now->half;
      const std::int64_t k = mirrored ? 2 * now->half - i : i;
      const long double sign = mirrored ? -1 : 1;
      const std::size_t first = sums.terms.size();
      if (cosine ? k < now->half : k > 0) add_dct2_terms(sums, now->half, cosine ? k : now->half - k, now->from);
      if (cosine) {
        for (std::size_t t = first; t < sums.terms.size(); ++t) sums.terms[t].factor *= sign;
      }
      add_row(sums, {{below + k, cosine ? 1 : k == 0 || k == now->half ? 0 : sign}});
    }
    place(sums);
    maps.push_back(std::move(sums));
  }
  if (!cosine) {  // results 1 … n
    line_map inner;
    const line_map& all = maps.back();
    for (std::int64_t k = 1; k <= n; ++k) {
      for (std::int64_t t = all.begin[at(k)]; t < all.begin[at(k + 1)]; ++t) inner.terms.push_back(all.terms[at(t)]);
      add_row(inner, {});
    }
    maps.back() = std::move(inner);
  }
  maps.back().to = 0;
  for (std::size_t i = 0; i + 1 < maps.size(); ++i) made.v_size = std::max(made.v_size, maps[i].to + maps[i].rows() + maps[i].rows() % 2);
  made.after = std::move(maps);
  return made;
}

// ---- Spectra ----

line_program spectrum_program(real_kind kind, std::int64_t n) {
  line_program made;
  line_map last;
  if (kind == real_kind::hc2r) {
    add_part(made, kind::c2r, n);
    made.before.paired = true;
    for (std::int64_t k = 0; 2 * k <= n; ++k) {
      add_row(made.before, {{k, 1}});
      add_row(made.before, {{(n - k) % n, k == 0 || 2 * k == n ? 0.0L : 1.0L}});
    }
    for (std::int64_t j = 0; j < n; ++j) add_row(last, {{j, 1}});
  } else {
    add_part(made, kind::r2c, n);
    for (std::int64_t j = 0; j < n; ++j) add_row(made.before, {{j, 1}});
    for (std::int64_t k = 0; k < n; ++k) {
      const bool upper = 2 * k > n;
      const std::int64_t f = upper ? n - k : k;
      const long double im = f == 0 || 2 * f == n ? 0 : 1;
      if (kind == real_kind::dht)
        add_row(last, {{2 * f, 1, true}, {2 * f + 1, upper ? im : -im, true}});
      else
        add_row(last, {{2 * f + (upper ? 1 : 0), 1, true}});
    }
  }
  made.after.push_back(std::move(last));
  return made;
}

// ---- Sines from cosines ----

// From the program of y = L x makes that of P y with x in reverse or with alternating signs, and P the other one of both.
line_program turned(line_program made, std::int64_t n, bool reverse_input) {
  for (term& each : made.before.terms) {
    if (reverse_input)
      each.index = n - 1 - each.index;
    else if (each.index % 2 == 1)
      each.factor = -each.factor;
  }
  line_map& last = made.after.back();
  line_map now;
  for (std::int64_t k = 0; k < n; ++k) {
    const std::int64_t row = reverse_input ? k : n - 1 - k;
    for (std::int64_t t = last.begin[at(row)]; t < last.begin[at(row + 1)]; ++t) {
      now.terms.push_back(last.terms[at(t)]);
      if (reverse_input && k % 2 == 1) now.terms.back().factor = -now.terms.back().factor;
    }
    add_row(now, {});
  }
  last = std::move(now);
  return made;
}

}  // namespace

line_program real_line_program(real_kind kind, std::int64_t n) {
  switch (kind) {
    case real_kind::dct1:
    case real_kind::dst1: return type1_program(kind, n);
    case real_kind::dct2: return dct2_program(n);
    case real_kind::dct3: return dct3_program(n);
    case real_kind::dct4: return dct4_program(n);
    case real_kind::dst2: return turned(dct2_program(n), n, false);
    case real_kind::dst3: return turned(dct3_program(n), n, true);
    case real_kind::dst4: return turned(dct4_program(n), n, true);
    default: return spectrum_program(kind, n);
  }
}

template float real_element(real_kind, std::int64_t, std::int64_t, std::int64_t, const std::vector<std::complex<float>>&);
template double real_element(real_kind, std::int64_t, std::int64_t, std::int64_t, const std::vector<std::complex<double>>&);
template std::vector<std::complex<double>> real_transform(real_kind, const std::vector<std::complex<double>>&);
template std::vector<std::complex<long double>> real_transform(real_kind, const std::vector<std::complex<long double>>&);
template std::vector<std::complex<double>> transposed_real_transform(real_kind, const std::vector<std::complex<double>>&);
template std::vector<std::complex<long double>> transposed_real_transform(real_kind, const std::vector<std::complex<long double>>&);

}  // namespace ballast::fft
