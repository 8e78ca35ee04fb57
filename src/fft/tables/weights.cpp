// Chooses weights: draws phases, examines the responses of all numbers of the line, and strengthens the weak ones.
#include "fft/tables/weights.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <numbers>
#include <stdexcept>
#include <tuple>

#include "core/at.hpp"
#include "core/counter_rng.hpp"
#include "core/format.hpp"
#include "fft/tables/responses.hpp"

namespace ballast::fft {

using core::at;

namespace {

using responses::array, responses::line_steps, responses::k_i, responses::number, responses::numbers;

// ---- The search ----

// A real part or an imaginary part whose response is too small. In complex-linear lines it is the whole number, as any change of it has the
// same response.
struct weak_spot {
  std::size_t array;
  std::int64_t position;
  bool imaginary;
  number sums[2];
  double wanted, found, effect;
};

class search {
 public:
  search(form what, std::int64_t n) : form_(what), n_(n), line_(what, n) {}

  // Returns the responses of the inputs to the weights a. Appends to `weak` the numbers whose response, the root of the summed squares of
  // both halves, is below `least`, or `inputs` if they are inputs.
  array examine(const numbers& a, double least, double inputs, std::vector<weak_spot>& weak) {
    least_ = std::numeric_limits<double>::infinity();
    array now = outputs(a);
    collect(now, line_.count(), line_.count() == 0 ? std::max(least, inputs) : least, weak);
    for (std::size_t i = line_.count(); i-- > 0;) {
      now = line_.follow_back(i, now);
      collect(now, i, i == 0 ? std::max(least, inputs) : least, weak);
    }
    return now;
  }
  double least() const { return std::sqrt(least_); }

  // Adds to each weak response the missing amount, in the direction that changes the weights least.
  void strengthen(const std::vector<weak_spot>& weak, numbers& a) const {
    array now(line_.inputs(), line_.real());
    auto next = weak.rbegin();  // sorted from the end of the line to its start
    for (std::size_t i = 0;; ++i) {
      for (; next != weak.rend() && next->array == i; ++next) {
        const double more = (1.25 * next->wanted - next->found) / (0.5 * next->effect);
        for (int v = 0; v < 2; ++v) {
          const number share = next->found > 0 ? more / next->found * std::conj(next->sums[v]) : number(more);
          const auto k = at(next->position);
          now.direct[v][k] += next->imaginary ? k_i * share : share;
          if (line_.real()) now.turned[v][k] += std::conj(next->imaginary ? -k_i * share : share);
        }
      }
      if (i == line_.count()) break;
      now = line_.follow_on(i, std::move(now));
    }
    for (std::int64_t k = 0; k < line_.outputs(); ++k) {
      const int v = k < second_half(line_.outputs()) ? 0 : 1;
      const number direct = now.direct[v][at(k)];
      if (form_ == form::real_inverse) {
        const number turned = std::conj(now.turned[v][at(k)]);
        a[at(2 * k)] += std::conj(0.5 * (direct + turned));
        if (2 * k + 1 < n_) a[at(2 * k + 1)] += std::conj(-0.5 * k_i * (direct - turned));
      } else {
        a[at(k)] += std::conj(direct);
      }
    }
    for (number& each : a) each /= std::abs(each);
  }

 private:
  array outputs(const numbers& a) const {
    array made(line_.outputs(), line_.real());
    for (std::int64_t k = 0; k < line_.outputs(); ++k) {
      const int v = k < second_half(line_.outputs()) ? 0 : 1;
      made.effect[at(k)] = 1;
      if (form_ == form::real_inverse) {
        const number second = 2 * k + 1 < n_ ? k_i * a[at(2 * k + 1)] : 0;
        made.direct[v][at(k)] = 0.5 * (a[at(2 * k)] - second);
        made.turned[v][at(k)] = std::conj(0.5 * (a[at(2 * k)] + second));
      } else {
        made.direct[v][at(k)] = a[at(k)];
      }
    }
    // The first number of a spectrum is real, and the last of an odd number of reals is alone.
    if (line_.real() && n_ % 2 == 1) made.set_real(form_ == form::real_forward ? 0 : at(line_.outputs() - 1), 1);
    return made;
  }

  void collect(const array& now, std::size_t number_of_array, double least, std::vector<weak_spot>& weak) {
    for (std::int64_t k = now.size() - 1; k >= 0; --k) {
      const auto i = at(k);
      // Padding, and outputs of a convolution that the line does not use.
      if (now.effect[i] <= 0) continue;
      const auto see = [&](bool imaginary, number first, number second) {
        const double squares = std::norm(first) + std::norm(second), effect = now.effect_of_part(i, imaginary);
        if (effect <= 1e-9 * now.effect[i]) return;  // a part that the line does not use
        least_ = std::min(least_, squares / effect);
        if (squares < least * least * effect)
          weak.push_back({number_of_array, k, imaginary, {first, second}, least * std::sqrt(effect), std::sqrt(squares), effect});
      };
      if (!line_.real()) {
        see(false, now.direct[0][i], now.direct[1][i]);
        continue;
      }
      const number turned[2] = {std::conj(now.turned[0][i]), std::conj(now.turned[1][i])};
      // The first and the last number of a half spectrum are real.
      const bool end = now.size() == line_.real_ends() && (k == 0 || k + 1 == now.size());
      if (!end) see(true, k_i * (now.direct[0][i] - turned[0]), k_i * (now.direct[1][i] - turned[1]));
      see(false, now.direct[0][i] + turned[0], now.direct[1][i] + turned[1]);
    }
  }

  form form_;
  std::int64_t n_;
  line_steps line_;
  double least_ = 0;
};

// Draws random phases for the odd part of `count`, and doubles their number until there are `count`. With a₁ the sums of both halves taken
// apart, interleaving (a₀, a₁) with the reversed (ā₁, −ā₀) times a random phase doubles |b₀|² + |b₁|² when it doubles the points. Starting
// from one element this magnitude is the same everywhere, also in the interleaved sequences: all responses of a line of 2^k points are 1.
numbers drawn(std::int64_t count, std::uint64_t stream, std::uint64_t round) {
  std::uint64_t next = 0;
  const auto phase = [&] {
    const double angle = 2 * std::numbers::pi * core::random_uniform(0x62616c6c617374 + round, stream, next++);
    return std::polar(1.0, angle);
  };
  std::int64_t odd = std::max<std::int64_t>(count, 1);
  while (odd % 2 == 0) odd /= 2;
  numbers a;
  for (std::int64_t k = 0; k < odd; ++k) a.push_back(phase());
  while (static_cast<std::int64_t>(a.size()) < count) {
    const auto length = static_cast<std::int64_t>(a.size());
    const number turn = phase();
    numbers doubled;
    for (std::int64_t k = 0; k < length; ++k) {
      const std::int64_t mirrored = length - 1 - k;
      doubled.push_back(a[at(k)]);
      doubled.push_back((mirrored < second_half(length) ? 1.0 : -1.0) * turn * std::conj(a[at(mirrored)]));
    }
    a = std::move(doubled);
  }
  return a;
}

output_weights drawn_for(form what, std::int64_t n, std::uint64_t stream, std::uint64_t round) {
  const bool odd = n % 2 == 1;
  output_weights made{drawn(what == form::real_forward ? n / 2 + (odd ? 1 : 0) : n, stream, round), 0};
  if (what == form::real_forward && !odd) made.a.push_back(drawn(1, stream, ~round).front());
  return made;
}

}  // namespace

output_weights draw_weights(form what, std::int64_t n, std::uint64_t stream) { return drawn_for(what, n, stream, 0); }

namespace {

output_weights search_weights(form what, std::int64_t n, std::uint64_t stream, double inputs) {
  constexpr int k_rounds = 8, k_sweeps = 60;
  search by(what, n);
  for (std::uint64_t round = 0; round < k_rounds; ++round) {
    output_weights made = drawn_for(what, n, stream, round);
    for (int sweep = 0; sweep < k_sweeps; ++sweep) {
      std::vector<weak_spot> weak;
      (void)by.examine(made.a, k_least_response, inputs, weak);
      made.least_response = by.least();
      if (weak.empty()) return made;
      by.strengthen(weak, made.a);
    }
  }
  throw std::runtime_error(fmt::format("no weights for a line of {} points", n));
}

}  // namespace

output_weights choose_weights(form what, std::int64_t n, std::uint64_t stream, double inputs) {
  // Caches a few results, since some lines take long to examine.
  constexpr std::size_t k_most = 64;
  static std::mutex mutex;
  static std::map<std::tuple<form, std::int64_t, std::uint64_t, double>, output_weights> known;
  const auto key = std::make_tuple(what, n, stream, inputs);
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return found->second;
  }
  output_weights made = search_weights(what, n, stream, inputs);
  const std::lock_guard lock(mutex);
  if (known.size() >= k_most) known.clear();
  known.emplace(key, made);
  return made;
}

std::vector<input_response> input_responses(form what, std::int64_t n, const output_weights& weights) {
  std::vector<weak_spot> weak;
  const array seen = search(what, n).examine(weights.a, 0, 0, weak);
  std::vector<input_response> made(seen.effect.size());
  for (std::size_t k = 0; k < made.size(); ++k) {
    for (int v = 0; v < 2; ++v) {
      const number turned = seen.real() ? std::conj(seen.turned[v][k]) : 0;
      made[k].real[v] = seen.direct[v][k] + turned;
      made[k].imaginary[v] = k_i * (seen.direct[v][k] - turned);
    }
  }
  return made;
}

}  // namespace ballast::fft
