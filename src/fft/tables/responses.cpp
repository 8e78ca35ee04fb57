// Builds the steps of a line, and follows them.
#include "fft/tables/responses.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "fft/tables/cyclic.hpp"
#include "fft/tables/extended_precision_dft.hpp"
#include "fft/tables/real_order.hpp"
#include "fft/tables/real_steps.hpp"

namespace ballast::fft::responses {

// `Count` numbers that a step computes from as many others: out[o] = Σ_j matrix[o·Count + j] in[j].
template <int Count>
struct group {
  static constexpr int count = Count;
  std::int64_t in[Count], out[Count];
  number matrix[Count * Count];
};
// The same for the sums of a butterfly of a prime, whose count is known at run time only.
struct large_group {
  int count;
  std::vector<std::int64_t> in, out;
  numbers matrix;
};

// ---- Steps ----

// Butterflies of 2 points and their twiddle factors. Chains of them also follow the numbers inside butterflies of 4 and 8 points.
struct pairs {
  std::int64_t s, m;
  numbers factors;

  template <class Body>
  void each(Body&& body) const {
    for (std::int64_t i = 0; i < m; ++i) {
      const number w = factors[at(i)];
      for (std::int64_t q = 0; q < s; ++q)
        body(group<2>{{q + s * i, q + s * (i + m)}, {q + s * 2 * i, q + s * (2 * i + 1)}, {1, 1, w, -w}});
    }
  }
};

// A butterfly of an odd prime p in three steps: x_j ± x_{p−j}; the cosine sums A_k and the sine sums B_k of these; A_k ∓ iB_k.
struct prime_differences : prime_butterfly {
  template <class Body>
  void each(Body&& body) const {
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t q = 0; q < s; ++q) {
        body(group<1>{{position(i, q, 0)}, {position(i, q, 0)}, {1}});
        for (std::int64_t j = 1; j <= half(); ++j) {
          const std::int64_t low = position(i, q, j), high = position(i, q, p - j);
          body(group<2>{{low, high}, {low, high}, {1, 1, 1, -1}});
        }
      }
    }
  }
};
struct prime_sums : prime_butterfly {
  template <class Body>
  void each(Body&& body) const {
    const auto square = [](std::int64_t count) {
      return large_group{static_cast<int>(count), std::vector<std::int64_t>(at(count)), std::vector<std::int64_t>(at(count)),
                         numbers(at(count * count))};
    };
    large_group cosines = square(half() + 1), sines = square(half());
    for (std::int64_t k = 0; k <= half(); ++k) {
      for (std::int64_t j = 0; j <= half(); ++j) {
        const number w = root_of_unity<double>(j * k, p);
        cosines.matrix[at(k * (half() + 1) + j)] = w.real();
        if (k > 0 && j > 0) sines.matrix[at((k - 1) * half() + j - 1)] = -w.imag();
      }
    }
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t q = 0; q < s; ++q) {
        for (std::int64_t j = 0; j <= half(); ++j) cosines.in[at(j)] = cosines.out[at(j)] = position(i, q, j);
        for (std::int64_t j = 1; j <= half(); ++j) sines.in[at(j - 1)] = sines.out[at(j - 1)] = position(i, q, p - j);
        body(cosines);
        body(sines);
      }
    }
  }
};
struct prime_results : prime_butterfly {
  bool inverse;
  numbers factors;  // [i · p + k]

  template <class Body>
  void each(Body&& body) const {
    const number turn = inverse ? -k_i : k_i;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t q = 0; q < s; ++q) {
        body(group<1>{{position(i, q, 0)}, {q + s * p * i}, {1}});
        for (std::int64_t k = 1; k <= half(); ++k) {
          const number low = factors[at(i * p + k)], high = factors[at(i * p + p - k)];
          body(group<2>{{position(i, q, k), position(i, q, p - k)},
                        {q + s * (p * i + k), q + s * (p * i + p - k)},
                        {low, -turn * low, high, turn * high}});
        }
      }
    }
  }
};

// y_k = x_k · table[k / same]. If one side is longer, its numbers beyond the shorter side are zero or unused.
struct product {
  numbers table;
  std::int64_t same;

  template <class Body>
  void each(Body&& body) const {
    for (std::int64_t k = 0; k < same * static_cast<std::int64_t>(table.size()); ++k) body(group<1>{{k}, {k}, {table[at(k / same)]}});
  }
};

// The same for Rader's spectrum. Its last `same` numbers are x_0: they become y_0, and they are added to the first numbers, those of
// frequency 0.
struct cyclic_product {
  numbers table;
  std::int64_t same;

  template <class Body>
  void each(Body&& body) const {
    const std::int64_t alone = same * static_cast<std::int64_t>(table.size());
    for (std::int64_t q = 0; q < same; ++q) body(group<2>{{q, alone + q}, {q, alone + q}, {table[0], 1, 1, 1}});
    for (std::int64_t k = same; k < alone; ++k) body(group<1>{{k}, {k}, {table[at(k / same)]}});
  }
};

// Output numbers k·same … (k + 1)·same − 1 are the input numbers of block order[k].
struct permutation {
  std::vector<std::int64_t> order;
  std::int64_t same;

  template <class Body>
  void each(Body&& body) const {
    for (std::int64_t k = 0; k < same * static_cast<std::int64_t>(order.size()); ++k)
      body(group<1>{{order[at(k / same)] * same + k % same}, {k}, {1}});
  }
};

// Converts between a complex spectrum z and the half spectrum x of reals. Handles positions k and m − k together, the second one conjugate:
// mirror_sums computes S = c(u + v) and P = c f_k (u − v), mirror_results computes S ∓ iP. Forwards (split) c = 1/2, f_k = w_k; backwards
// (join) c = 1, f_k = conj(w_k).
struct mirror_sums {
  std::int64_t m;
  bool join;

  template <class Body>
  void each(Body&& body) const {
    const double c = join ? 1 : 0.5;
    for (std::int64_t k = 1; 2 * k < m; ++k) {
      const number w = root_of_unity<double>(k, 2 * m) * c, f = join ? std::conj(w) : w;
      body(group<2>{{k, m - k}, {k, m - k}, {c, c, f, -f}});
    }
    if (m % 2 == 0) body(group<1>{{m / 2}, {m / 2}, {2 * c}});
  }
};
struct mirror_results {
  std::int64_t m;
  bool join;

  template <class Body>
  void each(Body&& body) const {
    const number turn = join ? k_i : -k_i;
    for (std::int64_t k = 1; 2 * k < m; ++k) body(group<2>{{k, m - k}, {k, m - k}, {1, turn, 1, -turn}});
    body(group<1>{{0}, {0}, {1}});
    if (!join) body(group<1>{{m}, {m}, {1}});
    if (m % 2 == 0) body(group<1>{{m / 2}, {m / 2}, {1}});
  }
};

// Conjugates positions first … last − 1.
struct conjugation {
  std::int64_t first, last;
};

struct step {
  std::int64_t from, to;  // sizes of the arrays
  std::variant<pairs, prime_differences, prime_sums, prime_results, product, cyclic_product, permutation, mirror_sums, mirror_results,
               conjugation, become_real, real_results, real_parts, paired, mirrored>
      what;
  std::int64_t kept = 0;  // trailing numbers that the step copies unchanged
};

namespace {

// Builds the steps of a line whose complex transform has m points.
class step_list {
 public:
  step_list(form what, std::int64_t n) : m_(what == form::complex ? n : n / 2) {
    if (what != form::complex && n % 2 == 1) {
      odd_real(what, n);
      return;
    }
    if (what == form::real_inverse) join();
    transform({m_}, m_, 1, false);
    convolve(convolved_part(m_));
    if (what == form::real_forward) split();
    if (what == form::real_inverse) add(m_, m_, conjugation{0, m_});
  }

  std::vector<step> take() { return std::move(all_); }

 private:
  template <class What>
  void add(std::int64_t from, std::int64_t to, What&& what, std::int64_t kept = 0) {
    all_.push_back({from + kept, to + kept, std::forward<What>(what), kept});
  }

  // Appends a transform over each coprime factor of n/s in turn, without the part that is a convolution. s is the product of the completed
  // radices. `kept` further numbers follow the n.
  void transform(const std::vector<std::int64_t>& coprime, std::int64_t n, std::int64_t s, bool inverse, std::int64_t kept = 0) {
    std::int64_t others = n / s;
    for (std::int64_t left : coprime) {
      others /= left;
      for (const std::int64_t p : prime_factors(left / convolved_part(left))) {
        left /= p;
        const std::int64_t m = left * others;
        numbers factors;
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t k = p == 2 ? 1 : 0; k < p; ++k) {
            const number w = root_of_unity<double>(i / others * k, left * p);
            factors.push_back(inverse ? std::conj(w) : w);
          }
        }
        if (p == 2) {
          add(n, n, pairs{s, m, std::move(factors)}, kept);
        } else {
          const prime_butterfly common{p, s, m};
          add(n, n, prime_differences{common}, kept);
          add(n, n, prime_sums{common}, kept);
          add(n, n, prime_results{common, inverse, std::move(factors)}, kept);
        }
        s *= p;
      }
    }
  }

  // Appends the steps of a real line of odd length: those of real_stage, and complex transforms of n/p points side by side.
  void odd_real(form what, std::int64_t n) {
    const bool inverse = what == form::real_inverse;
    const std::int64_t p = real_radix(n), m = n / p, transforms = p / 2 + 1, spectrum = n / 2 + 1;
    const prime_butterfly common{p, 1, m};
    real_results results{common, {}};
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t k = 0; k < p; ++k) results.factors.push_back(root_of_unity<double>(i * k, n));
    m_ = m * transforms;
    if (inverse) {
      add(spectrum, m_, mirrored{transforms_order(n, p)});
      add(m_, m_, conjugation{0, m_});
    } else {
      add(n, n, prime_differences{common});
      add(n, n, prime_sums{common});
      add(n, n, become_real{});
      add(n, m_, results);
    }
    transform({m}, m_, transforms, false);
    convolve(convolved_part(m));
    if (!inverse) {
      add(m_, spectrum, mirrored{spectrum_order(n, p)});
      return;
    }
    add(m_, m_, conjugation{0, m_});
    add(m_, n, real_parts{results});
    add(n, n, prime_sums{common});
    add(n, n, prime_differences{common});
    add(n, spectrum, paired{n});
  }

  void convolve(std::int64_t p) {
    if (is_cyclic(p))
      convolution_of_prime(p);
    else if (p > 1)
      convolution(p);
  }

  // Appends Bluestein's convolution of p points, the last factor.
  void convolution(std::int64_t p) {
    const std::int64_t s = m_ / p, length = smooth_length(2 * p - 1), padded = s * length;
    numbers turn, filter = chirp_filter<double>(p, length);
    for (std::int64_t j = 0; j < p; ++j) turn.push_back(chirp<double>(j, p));
    for (auto& z : filter) z /= static_cast<double>(length);
    add(m_, padded, product{turn, s});
    transform({length}, padded, s, false);
    add(padded, padded, product{std::move(filter), s});
    transform({length}, padded, s, true);
    add(padded, m_, product{std::move(turn), s});
  }

  void convolution_of_prime(std::int64_t p) {
    const std::int64_t s = m_ / p;
    cyclic_convolution made = make_cyclic(p);
    add(m_, m_, permutation{std::move(made.input), s});
    transform(made.factors, m_ - s, s, false, s);
    add(m_, m_, cyclic_product{cyclic_filter<double>(made), s});
    std::ranges::reverse(made.factors);
    transform(made.factors, m_ - s, s, true, s);
    add(m_, m_, permutation{std::move(made.output), s});
  }

  void split() {
    add(m_, m_, conjugation{m_ / 2 + 1, m_});
    add(m_, m_ + 1, mirror_sums{m_, false});
    add(m_ + 1, m_ + 1, mirror_results{m_, false});
    add(m_ + 1, m_ + 1, conjugation{(m_ + 1) / 2, m_});
  }
  // The next transform acts on conjugates, so that it is an inverse one.
  void join() {
    add(m_ + 1, m_ + 1, conjugation{m_ / 2 + 1, m_});
    add(m_ + 1, m_, mirror_sums{m_, true});
    add(m_, m_, mirror_results{m_, true});
    add(m_, m_, conjugation{(m_ + 1) / 2, m_});
    add(m_, m_, conjugation{0, m_});
  }

  std::int64_t m_;
  std::vector<step> all_;
};

// ---- Backwards and forwards ----

template <class Group>
void backward(const Group& g, const numbers& out, numbers& in) {
  for (int j = 0; j < g.count; ++j) {
    number sum = 0;
    for (int o = 0; o < g.count; ++o)
      sum += multiply(g.matrix[at(std::int64_t{o} * g.count + j)], out[at(g.out[static_cast<std::size_t>(o)])]);
    in[at(g.in[static_cast<std::size_t>(j)])] = sum;
  }
}

template <class Group>
void forward(const Group& g, const numbers& in, numbers& out) {
  for (int o = 0; o < g.count; ++o) {
    number sum = 0;
    for (int j = 0; j < g.count; ++j)
      sum += multiply(g.matrix[at(std::int64_t{o} * g.count + j)], in[at(g.in[static_cast<std::size_t>(j)])]);
    out[at(g.out[static_cast<std::size_t>(o)])] = sum;
  }
}

// x_0 = re z_0 + im z_0 and x_m = re z_0 − im z_0, or z_0 = (x_0 + x_m) + i(x_0 − x_m), with x_0 and x_m real.
void backward_ends(const mirror_sums& now, const array& out, array& in) {
  const auto last = at(now.m);
  for (int v = 0; v < 2; ++v) {
    const auto response = [&](std::size_t k, number change) { return out.direct[v][k] * change + std::conj(out.turned[v][k] * change); };
    const auto set = [&](std::size_t k, number to_real, number to_imaginary) {
      in.direct[v][k] = 0.5 * (to_real - k_i * to_imaginary);
      in.turned[v][k] = std::conj(0.5 * (to_real + k_i * to_imaginary));
    };
    if (now.join) {
      set(0, response(0, 1) + response(0, k_i), 0);
      set(last, response(0, 1) - response(0, k_i), 0);
    } else {
      set(0, response(0, 1) + response(last, 1), response(0, 1) - response(last, 1));
    }
  }
  in.effect[0] = 2 * out.effect[0];
  if (now.join) in.effect[last] = in.effect[0];
}

void forward_ends(const mirror_sums& now, const array& in, array& out) {
  const auto last = at(now.m);
  for (int v = 0; v < 2; ++v) {
    // The real and the imaginary part of the numbers that are carried for z.
    const auto real_part = [&](std::size_t k) { return 0.5 * (in.direct[v][k] + std::conj(in.turned[v][k])); };
    const auto imaginary_part = [&](std::size_t k) { return -0.5 * k_i * (in.direct[v][k] - std::conj(in.turned[v][k])); };
    const auto set = [&](std::size_t k, number re, number im) {
      out.direct[v][k] = re + k_i * im;
      out.turned[v][k] = std::conj(re - k_i * im);
    };
    if (now.join) {
      set(0, real_part(0) + real_part(last), real_part(0) - real_part(last));
    } else {
      set(0, real_part(0) + imaginary_part(0), 0);
      set(last, real_part(0) - imaginary_part(0), 0);
    }
  }
}

void keep(const step& now, const array& from, std::int64_t from_size, array& to, std::int64_t to_size) {
  for (std::int64_t k = 1; k <= now.kept; ++k) {
    const auto source = at(from_size - k), target = at(to_size - k);
    for (int v = 0; v < 2; ++v) {
      to.direct[v][target] = from.direct[v][source];
      if (to.real()) to.turned[v][target] = from.turned[v][source];
    }
    to.effect[target] = from.effect[source];
    to.skew[target] = from.skew[source];
  }
}

template <class What>
constexpr bool has_groups =
    !std::is_same_v<What, conjugation> && !std::is_same_v<What, become_real> && !std::is_same_v<What, real_results> &&
    !std::is_same_v<What, real_parts> && !std::is_same_v<What, paired> && !std::is_same_v<What, mirrored>;

array follow_back(const step& now, const array& out) {
  if (const auto* turn = std::get_if<conjugation>(&now.what)) {
    array in = out;
    for (std::int64_t k = turn->first; k < turn->last; ++k) in.conjugate(k);
    return in;
  }
  array in(now.from, out.real());
  std::visit(
      [&]<class What>(const What& what) {
        if constexpr (has_groups<What>) {
          what.each([&](const auto& g) {
            for (int v = 0; v < 2; ++v) {
              backward(g, out.direct[v], in.direct[v]);
              if (out.real()) backward(g, out.turned[v], in.turned[v]);
            }
            for (int j = 0; j < g.count; ++j) {
              double sum = 0;
              number skew = 0;
              for (int o = 0; o < g.count; ++o) {
                const number w = g.matrix[at(std::int64_t{o} * g.count + j)];
                const auto k = at(g.out[static_cast<std::size_t>(o)]);
                sum += std::norm(w) * out.effect[k];
                skew += multiply(multiply(w, w), out.skew[k]);
              }
              in.effect[at(g.in[static_cast<std::size_t>(j)])] = sum;
              in.skew[at(g.in[static_cast<std::size_t>(j)])] = skew;
            }
          });
        } else if constexpr (!std::is_same_v<What, conjugation>) {
          back(what, out, in);
        }
        if constexpr (std::is_same_v<What, mirror_sums>) backward_ends(what, out, in);
      },
      now.what);
  keep(now, out, now.to, in, now.from);
  return in;
}

array follow_on(const step& now, array in) {
  if (const auto* turn = std::get_if<conjugation>(&now.what)) {
    for (std::int64_t k = turn->first; k < turn->last; ++k) in.conjugate(k);
    return in;
  }
  array out(now.to, in.real());
  std::visit(
      [&]<class What>(const What& what) {
        if constexpr (has_groups<What>) {
          what.each([&](const auto& g) {
            for (int v = 0; v < 2; ++v) {
              forward(g, in.direct[v], out.direct[v]);
              if (in.real()) forward(g, in.turned[v], out.turned[v]);
            }
          });
        } else if constexpr (!std::is_same_v<What, conjugation>) {
          on(what, in, out);
        }
        if constexpr (std::is_same_v<What, mirror_sums>) forward_ends(what, in, out);
      },
      now.what);
  keep(now, in, now.from, out, now.to);
  return out;
}

}  // namespace

line_steps::line_steps(form what, std::int64_t n) : form_(what), all_(step_list(what, n).take()) {
  inputs_ = outputs_ = what == form::complex ? n : n / 2;
  const bool odd = what != form::complex && n % 2 == 1;
  if (what == form::real_inverse || odd) inputs_ = odd && what == form::real_forward ? n : n / 2 + 1;
  if (what == form::real_forward || odd) outputs_ = n / 2 + 1;
  if (what != form::complex && !odd) real_ends_ = n / 2 + 1;
}
line_steps::~line_steps() = default;

std::size_t line_steps::count() const { return all_.size(); }

array line_steps::follow_back(std::size_t i, const array& out) const { return responses::follow_back(all_[i], out); }
array line_steps::follow_on(std::size_t i, array in) const { return responses::follow_on(all_[i], std::move(in)); }

}  // namespace ballast::fft::responses
