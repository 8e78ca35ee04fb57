// The steps of a real line of odd length beside its complex transforms: the sums of its stage for reals are those of an odd butterfly.
// Layer: algorithm, backend-free. For responses.cpp.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fft/tables/responses.hpp"

namespace ballast::fft::responses {

// A butterfly of an odd number p of points.
struct prime_butterfly {
  std::int64_t p, s, m;
  std::int64_t half() const { return p / 2; }
  std::int64_t position(std::int64_t i, std::int64_t q, std::int64_t j) const { return q + s * (i + m * j); }
};

// ---- Real lines of odd length (fft/cpu/kernels.hpp, real_stage) ----

// The numbers are real. Before this step they are followed as complex ones, to whose changes the line is linear.
struct become_real {};

// The last step of a real butterfly of radix p: A_k and B_k, real, become (A_k − iB_k) w_k, for k = 0 only A_0. Number k of butterfly i
// becomes number i of transform k.
struct real_results : prime_butterfly {
  numbers factors;  // [i · p + k]

  // Calls body(first, second, complex, w) for the places of A_k, B_k (−1: none) and the complex number.
  template <class Body>
  void each_number(Body&& body) const {
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t k = 0; k <= half(); ++k)
        body(at(position(i, 0, k)), k == 0 ? -1 : position(i, 0, p - k), at(i * (half() + 1) + k), factors[at(i * p + k)]);
    }
  }
};

// The first step of the inverse: number k of butterfly i, times conj(w_k), becomes 2 Re and −2 Im, real, for k = 0 only Re.
struct real_parts : real_results {};

// n real numbers become pairs, the last of which has one alone.
struct paired {
  std::int64_t n;
};

// Output k is number order[k] of the input, or the conjugate of number −1 − order[k]. It may be shorter or longer than the input.
struct mirrored {
  std::vector<std::int64_t> order;
};

// ---- Backwards and forwards ----

// A number as the two parts of a change: that of z, and that of conj(z).
struct both {
  number direct, mirrored;
};
inline both read(const array& from, int v, std::size_t k) { return {from.direct[v][k], std::conj(from.turned[v][k])}; }
inline void add(array& to, int v, std::size_t k, both more) {
  to.direct[v][k] += more.direct;
  to.turned[v][k] += std::conj(more.mirrored);
}

inline void back(const become_real& /*what*/, const array& out, array& in) {
  for (std::size_t k = 0; k < out.effect.size(); ++k) {
    for (int v = 0; v < 2; ++v) in.direct[v][k] = out.direct[v][k] + std::conj(out.turned[v][k]);
    in.effect[k] = out.effect_of_part(k, false);
  }
}
inline void on(const become_real& /*what*/, const array& in, array& out) {
  for (int v = 0; v < 2; ++v) {
    for (std::size_t k = 0; k < in.effect.size(); ++k) add(out, v, k, {in.direct[v][k], in.direct[v][k]});
  }
}

inline void back(const real_results& what, const array& out, array& in) {
  what.each_number([&](std::size_t first, std::int64_t second, std::size_t z, number w) {
    const number turn = -k_i * w;
    for (int v = 0; v < 2; ++v) {
      const both of = read(out, v, z);
      add(in, v, first, {of.direct * w, of.mirrored * std::conj(w)});
      if (second >= 0) add(in, v, at(second), {of.direct * turn, of.mirrored * std::conj(turn)});
    }
    const double skew = (w * w * out.skew[z]).real();
    in.set_real(first, out.effect[z] + skew);
    if (second >= 0) in.set_real(at(second), out.effect[z] - skew);
  });
}
inline void on(const real_results& what, const array& in, array& out) {
  what.each_number([&](std::size_t first, std::int64_t second, std::size_t z, number w) {
    const number turn = -k_i * w;
    for (int v = 0; v < 2; ++v) {
      const both a = read(in, v, first);
      add(out, v, z, {a.direct * w, a.mirrored * std::conj(w)});
      if (second < 0) continue;
      const both b = read(in, v, at(second));
      add(out, v, z, {b.direct * turn, b.mirrored * std::conj(turn)});
    }
  });
}

inline void back(const real_parts& what, const array& out, array& in) {
  what.each_number([&](std::size_t first, std::int64_t second, std::size_t z, number w) {
    for (int v = 0; v < 2; ++v) {
      const number a = out.direct[v][first];
      if (second < 0) {
        add(in, v, z, {0.5 * a, 0.5 * a});
        continue;
      }
      const number b = k_i * out.direct[v][at(second)];
      add(in, v, z, {(a + b) * std::conj(w), (a - b) * w});
    }
    const double a = out.effect[first], b = second < 0 ? 0 : out.effect[at(second)];
    if (second < 0) {
      in.set_real(z, a);
      return;
    }
    in.effect[z] = 2 * (a + b);
    in.skew[z] = 2 * (a - b) * std::conj(w * w);
  });
}
inline void on(const real_parts& what, const array& in, array& out) {
  what.each_number([&](std::size_t first, std::int64_t second, std::size_t z, number w) {
    for (int v = 0; v < 2; ++v) {
      const both of = read(in, v, z);
      if (second < 0) {
        out.direct[v][first] = 0.5 * (of.direct + of.mirrored);
        continue;
      }
      const number low = of.direct * std::conj(w), high = of.mirrored * w;
      out.direct[v][first] = low + high;
      out.direct[v][at(second)] = k_i * (low - high);
    }
  });
}

inline void back(const paired& what, const array& out, array& in) {
  for (std::int64_t k = 0; k < what.n; ++k) {
    for (int v = 0; v < 2; ++v) {
      const both of = read(out, v, at(k / 2));
      in.direct[v][at(k)] = k % 2 == 0 ? of.direct + of.mirrored : k_i * (of.direct - of.mirrored);
    }
    in.effect[at(k)] = out.effect_of_part(at(k / 2), k % 2 == 1);
  }
}
inline void on(const paired& what, const array& in, array& out) {
  for (std::int64_t k = 0; k < what.n; ++k) {
    for (int v = 0; v < 2; ++v) {
      const number x = in.direct[v][at(k)];
      add(out, v, at(k / 2), k % 2 == 0 ? both{x, x} : both{k_i * x, -k_i * x});
    }
  }
}

// The first number of a spectrum is real.
inline void back(const mirrored& what, const array& out, array& in) {
  for (std::size_t k = 0; k < what.order.size(); ++k) {
    const bool turned = what.order[k] < 0;
    const auto from = at(turned ? ~what.order[k] : what.order[k]);
    for (int v = 0; v < 2; ++v) {
      const both of = read(out, v, k);
      const number real = 0.5 * (of.direct + of.mirrored);
      add(in, v, from, k == 0 ? both{real, real} : turned ? both{of.mirrored, of.direct} : of);
    }
    if (k == 0) {
      in.effect[from] += 0.5 * out.effect_of_part(k, false);
      in.skew[from] += 0.5 * out.effect_of_part(k, false);
    } else {
      in.effect[from] += out.effect[k];
      in.skew[from] += turned ? std::conj(out.skew[k]) : out.skew[k];
    }
  }
}
inline void on(const mirrored& what, const array& in, array& out) {
  for (std::size_t k = 0; k < what.order.size(); ++k) {
    const bool turned = what.order[k] < 0;
    const auto from = at(turned ? ~what.order[k] : what.order[k]);
    for (int v = 0; v < 2; ++v) {
      const both of = read(in, v, from);
      const number real = 0.5 * (of.direct + of.mirrored);
      add(out, v, k, k == 0 ? both{real, real} : turned ? both{of.mirrored, of.direct} : of);
    }
  }
}

}  // namespace ballast::fft::responses
