// The FFT in a form that a reader can check by hand: one signal at a time, one thread, mixed-radix stages along every axis. The butterflies
// are sums by the definition, accumulated in more than working precision.
// Layer: backend "reference". Protected like the cpu backend, except that the tile is the signal, which has one end-to-end check.
// Source: T. Stockham, 1966 (autosort stages).
#include <algorithm>
#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/at.hpp"
#include "core/memory.hpp"
#include "fft/contract.hpp"
#include "fft/sites.hpp"
#include "fft/tables/checks.hpp"
#include "fft/thresholds.hpp"
#include "inject/injector.hpp"
#include "run/attempt.hpp"

namespace ballast::fft::reference {

using core::at;

namespace {

// One stage of one axis, where s is the product of the completed radices and m·p·s = n. Element (i, q) of the p-point transforms is x[q +
// s(i + m j)], j = 0 … p − 1; its result k, times e^{−2πi ik/(m p)}, goes to y[q + s(p i + k)].
template <class T>
struct stage {
  std::size_t axis;
  std::int64_t n, s, p, m;
  std::vector<std::complex<T>> roots;     // e^{−2πi j/p}
  std::vector<std::complex<T>> twiddles;  // [i · p + k]
};

template <class T>
class reference_transform final : public transform {
 public:
  reference_transform(const geometry& shape, bool protect) : shape_(shape), points_(shape.points()) {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      std::int64_t s = 1;
      const auto factors = prime_factors(shape.n[axis]);
      if (!factors.empty()) last_axis_ = stages_.size();
      axes_ += factors.empty() ? 0 : 1;
      for (const std::int64_t p : factors) {
        stages_.push_back(make_stage(axis, shape.n[axis], s, p));
        s *= p;
      }
      if (protect) {
        const bool direct = convolved_part(shape.n[axis]) == 1;
        const auto chosen = direct ? choose_weights(form::complex, shape.n[axis], axis) : draw_weights(form::complex, shape.n[axis], axis);
        weights_[axis] = make_axis_weights<T>(shape.n[axis], chosen, shape.n[axis]);
      }
    }
  }

  void run(const void* in, void* out, const transform_args& how) const override {
    signal x(static_cast<std::size_t>(points_)), y;
    const auto compute = [&](std::int64_t b) {
      const inject::position here{b, shape_.batch, 0, 1};
      strike_loaded(how.injector, here, x);
      transform_signal(x, y, how, b);
      strike_stored(how.injector, here, y);
    };
    for (std::int64_t b = 0; b < shape_.batch; ++b) {
      if (how.protection == protection::off) {
        gather(static_cast<const T*>(in), b, how.direction, x);
        compute(b);
      } else {
        const auto once = [&](int number) {
          gather(static_cast<const T*>(in), b, how.direction, x);
          const encoded input = encode(in, b, how);
          compute(b);
          abft::finding now = verify(input, y, b, how);
          how.seen.checked(k_vectors);
          if (number > 0 || !now.judged || now.word != abft::k_pass) now.bits = hash(y);
          return now;
        };
        if (run::attempt(how.seen, how.protection, "fft.signal", 0, once) == abft::outcome::uncorrectable) continue;
      }
      scatter(y, b, how.direction, static_cast<T*>(out));
    }
  }

 private:
  using W = wide<T>;
  using signal = core::vector<std::complex<T>>;

  static stage<T> make_stage(std::size_t axis, std::int64_t n, std::int64_t s, std::int64_t p) {
    stage<T> made{axis, n, s, p, n / (s * p), {}, {}};
    for (std::int64_t j = 0; j < p; ++j) made.roots.emplace_back(root_of_unity<W>(j, p));
    for (std::int64_t i = 0; i < made.m; ++i) {
      for (std::int64_t k = 0; k < p; ++k) made.twiddles.emplace_back(root_of_unity<W>(i * k, made.m * p));
    }
    return made;
  }

  static void strike(inject::active_injector& injector, inject::site where, const inject::position& here, signal& data) {
    injector.strike(where, here, reinterpret_cast<T*>(data.data()), 2 * static_cast<std::int64_t>(data.size()));
  }

  // Strikes the numbers that were read. The imaginary parts of real signals are no data.
  void strike_loaded(inject::active_injector& injector, const inject::position& here, signal& x) const {
    if (!shape_.input.real) return strike(injector, site::input, here, x);
    if constexpr (inject::active_injector::enabled) {
      core::vector<T> read;
      for (const auto& z : x) read.push_back(z.real());
      injector.strike(site::input, here, read.data(), static_cast<std::int64_t>(read.size()));
      for (std::size_t i = 0; i < x.size(); ++i) x[i].real(read[i]);
    }
  }

  // Strikes the elements of a transformed signal that will be stored.
  void strike_stored(inject::active_injector& injector, const inject::position& here, signal& y) const {
    if constexpr (inject::active_injector::enabled) {
      const side& to = shape_.output;
      core::vector<T> stored;
      const auto visit = [&](auto&& each) {
        for (std::size_t i = 0; i < y.size(); ++i) {
          if (static_cast<std::int64_t>(i) % shape_.n[2] >= to.length[2]) continue;
          T part[2] = {y[i].real(), y[i].imag()};
          // An inverse transform has the real and imaginary parts of its data exchanged: the real part is the second one.
          each(part[to.real ? 1 : 0]);
          if (!to.real) each(part[1]);
          y[i] = {part[0], part[1]};
        }
      };
      visit([&](T& value) { stored.push_back(value); });
      if (!injector.strike(site::output, here, stored.data(), static_cast<std::int64_t>(stored.size()))) return;
      const T* next = stored.data();
      visit([&](T& value) { value = *next++; });
    }
  }

  // An inverse transform is a forward one with real and imaginary parts exchanged on both sides.
  static std::complex<T> turn(std::complex<T> z, direction way) {
    return way == direction::forward ? z : std::complex<T>(z.imag(), z.real());
  }

  // Loads signal b as a full complex array in C order: a real signal gets zero imaginary parts, a half spectrum gets its other half. On the
  // planes that are their own mirror image it takes the Hermitian part, so that imaginary parts that must vanish are ignored.
  void gather(const T* in, std::int64_t b, direction way, signal& x) const {
    const side& from = shape_.input;
    const auto& n = shape_.n;
    const auto element = [&](std::int64_t i, std::int64_t j, std::int64_t k) -> std::complex<T> {
      const std::int64_t where = b * from.distance + i * from.stride[0] + j * from.stride[1] + k * from.stride[2];
      return from.real ? std::complex<T>(in[where], 0) : std::complex<T>(in[2 * where], in[2 * where + 1]);
    };
    std::size_t next = 0;
    for (std::int64_t i = 0; i < n[0]; ++i) {
      for (std::int64_t j = 0; j < n[1]; ++j) {
        for (std::int64_t k = 0; k < n[2]; ++k) {
          std::complex<T> z;
          if (shape_.kind != kind::c2r) {
            z = element(i, j, k);
          } else {
            const auto mirror = [&] { return std::conj(element((n[0] - i) % n[0], (n[1] - j) % n[1], (n[2] - k) % n[2])); };
            if (2 * k > n[2])
              z = mirror();
            else if (k == 0 || 2 * k == n[2])
              z = element(i, j, k) * T(0.5) + mirror() * T(0.5);
            else
              z = element(i, j, k);
          }
          x[next++] = turn(z, way);
        }
      }
    }
  }

  void scatter(const signal& y, std::int64_t b, direction way, T* out) const {
    const side& to = shape_.output;
    for (std::int64_t i = 0; i < to.length[0]; ++i) {
      for (std::int64_t j = 0; j < to.length[1]; ++j) {
        for (std::int64_t k = 0; k < to.length[2]; ++k) {
          const std::complex<T> z = turn(y[at((i * shape_.n[1] + j) * shape_.n[2] + k)], way);
          const std::int64_t where = b * to.distance + i * to.stride[0] + j * to.stride[1] + k * to.stride[2];
          if (to.real) {
            out[where] = z.real();
          } else {
            out[2 * where] = z.real();
            out[2 * where + 1] = z.imag();
          }
        }
      }
    }
  }

  void apply(const stage<T>& now, const std::complex<T>* twiddles, const signal& x, signal& y) const {
    std::int64_t inner = 1;  // elements between neighbours along the axis
    for (std::size_t axis = now.axis + 1; axis < 3; ++axis) inner *= shape_.n[axis];
    const std::int64_t outer = points_ / (now.n * inner);
    core::vector<std::complex<W>> column(at(now.p)), done(at(now.p));
    for (std::int64_t o = 0; o < outer; ++o) {
      for (std::int64_t l = 0; l < inner; ++l) {
        const auto index = [&](std::int64_t element) { return at((o * now.n + element) * inner + l); };
        for (std::int64_t i = 0; i < now.m; ++i) {
          for (std::int64_t q = 0; q < now.s; ++q) {
            for (std::int64_t j = 0; j < now.p; ++j) column[at(j)] = x[index(q + now.s * (i + now.m * j))];
            if (now.p > k_largest_direct_prime) {
              done = dft(column);
            } else {
              for (std::int64_t k = 0; k < now.p; ++k) {
                done[at(k)] = 0;
                for (std::int64_t j = 0; j < now.p; ++j)
                  done[at(k)] += multiply(column[at(j)], std::complex<W>(now.roots[at(j * k % now.p)]));
              }
            }
            for (std::int64_t k = 0; k < now.p; ++k)
              y[index(q + now.s * (now.p * i + k))] = std::complex<T>(multiply(done[at(k)], std::complex<W>(twiddles[i * now.p + k])));
          }
        }
      }
    }
  }

  // Computes y = scale · DFT(x) over all axes. Overwrites x.
  void transform_signal(signal& x, signal& y, const transform_args& how, std::int64_t b) const {
    y.resize(x.size());
    const auto steps = static_cast<std::int64_t>(stages_.size());
    const std::size_t waits = axes_ > 1 ? last_axis_ : stages_.size() - 1;  // the data wait here between two passes
    if (stages_.empty()) strike(how.injector, site::intermediate, {b, shape_.batch, 0, 1}, x);
    for (std::size_t step = 0; step < stages_.size(); ++step) {
      const stage<T>& now = stages_[step];
      const inject::position here{b, shape_.batch, static_cast<std::int64_t>(step), steps};
      if (step == waits) strike(how.injector, site::intermediate, {b, shape_.batch, 0, 1}, x);
      if constexpr (inject::active_injector::enabled) {
        // The factors with k = 0 or i = 0 are 1. If a stage has only such factors, they can be struck.
        signal struck(now.twiddles.begin(), now.twiddles.end());
        signal factors;
        // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): p is a radix
        const auto nontrivial = [&](std::size_t f) { return now.m == 1 || (at(now.p) <= f && f % at(now.p) != 0); };
        for (std::size_t f = 0; f < struck.size(); ++f) {
          if (nontrivial(f)) factors.push_back(struck[f]);
        }
        strike(how.injector, site::twiddle, here, factors);
        std::size_t next = 0;
        for (std::size_t f = 0; f < struck.size(); ++f) {
          if (nontrivial(f)) struck[f] = factors[next++];
        }
        apply(now, struck.data(), x, y);
      } else {
        apply(now, now.twiddles.data(), x, y);
      }
      strike(how.injector, site::stage, here, y);
      std::swap(x, y);
    }
    if (stages_.empty()) strike(how.injector, site::stage, {b, shape_.batch, 0, 1}, x);
    std::swap(x, y);
    if (how.scale != 1) {
      for (auto& z : y) z *= static_cast<T>(how.scale);
    }
  }

  // Properties of a signal, collected before it is transformed.
  struct encoded {
    checksum sums;
    double norm = 0;
    double largest = 0;
    bool finite = true;
  };

  // Returns Σ (w₀ ⊗ w₁ ⊗ w₂)·z, with one weight vector for each axis.
  std::complex<W> weighted_sum(const signal& z, int vector, bool output_side) const {
    const auto weight = [&](std::size_t axis) -> const auto& { return output_side ? weights_[axis].a[vector] : weights_[axis].b[vector]; };
    std::complex<W> total = 0;
    std::size_t next = 0;
    for (const auto& w0 : weight(0)) {
      std::complex<W> plane = 0;
      for (const auto& w1 : weight(1)) {
        std::complex<W> row = 0;
        for (const auto& w2 : weight(2)) row += multiply(std::complex<W>(z[next++]), w2);
        plane += multiply(row, w1);
      }
      total += multiply(plane, w0);
    }
    return total;
  }

  // Reads the signal again, so that the check does not depend on the copy that was loaded into the tile.
  encoded encode(const void* in, std::int64_t b, const transform_args& how) const {
    signal x(static_cast<std::size_t>(points_));
    gather(static_cast<const T*>(in), b, how.direction, x);
    encoded made;
    W squares = 0;
    for (const auto& z : x) {
      squares += W(z.real()) * W(z.real()) + W(z.imag()) * W(z.imag());
      made.largest = std::max({made.largest, std::abs(static_cast<double>(z.real())), std::abs(static_cast<double>(z.imag()))});
      made.finite = made.finite && std::isfinite(z.real()) && std::isfinite(z.imag());
    }
    made.norm = static_cast<double>(std::sqrt(squares));
    for (int v = 0; v < k_vectors; ++v) made.sums.set(v, weighted_sum(x, v, false));
    how.injector.strike(site::checksum, {b, shape_.batch, 0, 1}, made.sums.high, 2 * k_vectors);
    return made;
  }

  abft::finding verify(const encoded& input, const signal& y, std::int64_t b, const transform_args& how) const {
    const inject::position here{b, shape_.batch, 0, 1};
    const auto points = static_cast<double>(points_);
    abft::finding now;
    now.index = b;
    const bool finite = std::all_of(y.begin(), y.end(), [](auto z) { return std::isfinite(z.real()) && std::isfinite(z.imag()); });
    // No checksum can judge Inf and NaN that the data contain or cause.
    if (!finite && (!input.finite || input.largest > abft::overflow_norm<T>(2 * points))) {
      now.judged = false;
      now.residual = std::numeric_limits<double>::quiet_NaN();
      return now;
    }
    abft::guarded_threshold tau(thresholds::residual<T>(points, input.norm, k_kappa) * std::max(how.check_scale, 0.0) +
                                thresholds::output_underflow<T>(points));
    how.injector.strike(site::threshold, here, &tau.value, 1);
    std::uint32_t words[k_vectors];
    now.threshold = tau.value;
    bool small = true;
    for (int v = 0; v < k_vectors; ++v) {
      const std::complex<W> rho =
          weighted_sum(y, v, true) - input.sums.template get<W>(v) * static_cast<W>(static_cast<T>(how.check_scale));
      const double size = std::hypot(static_cast<double>(rho.real()), static_cast<double>(rho.imag()));
      words[v] = abft::verify(size, tau);
      if (!(size <= now.residual)) now.residual = size;
      small = small && size <= k_repeat_share * tau.twin;
    }
    how.injector.strike(site::comparison, here, words, k_vectors);
    if (std::any_of(words, words + k_vectors, [](std::uint32_t word) { return word != abft::k_pass; })) {
      now.word = abft::k_fail;
    } else if (!small) {
      now.judged = false;
      now.threshold *= k_repeat_share;
    }
    return now;
  }

  static std::uint64_t hash(const signal& y) {
    abft::result_hash made;
    for (const auto& z : y) {
      made.add(z.real());
      made.add(z.imag());
    }
    return made.bits();
  }

  geometry shape_;
  std::int64_t points_;
  std::vector<stage<T>> stages_;
  std::size_t last_axis_ = 0;
  int axes_ = 0;
  axis_weights<T> weights_[3];
};

}  // namespace

std::unique_ptr<transform> make_transform(const geometry& shape, precision type, bool protect) {
  if (type == precision::f32) return std::make_unique<reference_transform<float>>(shape, protect);
  return std::make_unique<reference_transform<double>>(shape, protect);
}

}  // namespace ballast::fft::reference
