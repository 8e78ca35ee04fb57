// W signals of a line with vectors along the signal, their parity number by number, and faults in the registers of their store.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "core/aligned_buffer.hpp"
#include "fft/cpu/tile_job.hpp"
#include "support/fft_subject.hpp"

namespace ballast::fft {

// Returns the parity of signals as runs, or as one run, computed scalar by scalar.
template <class T>
std::uint64_t parity_of_runs(const cpu::signals_of<T>& of) {
  const int lanes = cpu::kernels<T>().lanes;
  const int sets = of.as_run ? 1 : cpu::sets_of_run(2 * of.points, lanes);
  cpu::run_words<T> run;
  for (int l = 0; l < of.used; ++l) run.add(of.base + l * of.stride, 2 * of.points, of.as_run ? 2 * l * of.points : 0, lanes, l % sets);
  return run.hash(lanes);
}

// Changes all words of each register that a store has, as one fault does, and calls seen() after each change: the same bit in all of them,
// in every second one, in two words, and two words exchanged. Registers begin at scalars `first` + i W of the run.
template <class T, class Seen>
void change_registers(T* run, std::int64_t scalars, std::int64_t first, const Seen& seen) {
  const int lanes = cpu::kernels<T>().lanes;
  std::vector<T> kept(static_cast<std::size_t>(lanes));
  const auto flip = [](T x, int bit) {
    return std::bit_cast<T>(static_cast<cpu::word_of<T>>(std::bit_cast<cpu::word_of<T>>(x) ^ (cpu::word_of<T>{1} << bit)));
  };
  for (std::int64_t i = first; i + lanes <= scalars; i += lanes) {
    T* const all = run + i;
    std::copy_n(all, lanes, kept.begin());
    for (const int every : {1, 2}) {
      for (const int bit : {0, static_cast<int>(i) % 29, cpu::k_word_bits<T> - 1}) {
        for (int l = 0; l < lanes; l += every) all[l] = flip(all[l], bit);
        seen(i);
        std::copy_n(kept.begin(), lanes, all);
      }
    }
    for (int one = 0; one < lanes; ++one) {
      const int other = (one + 1 + static_cast<int>(i / lanes) % (lanes - 1)) % lanes;
      if (std::bit_cast<cpu::word_of<T>>(all[one]) != std::bit_cast<cpu::word_of<T>>(all[other])) {
        std::swap(all[one], all[other]);
        seen(i);
        std::copy_n(kept.begin(), lanes, all);
      }
      for (const int l : {one, other}) all[l] = -all[l];
      seen(i);
      std::copy_n(kept.begin(), lanes, all);
    }
  }
}

// W signals of n points, and where their results go.
template <class T>
struct short_signals {
  explicit short_signals(std::int64_t n, std::int64_t gap = 0)
      : points(n),
        lanes(cpu::kernels<T>().lanes),
        stride(2 * n + gap),
        by(form::complex, n, 2, true),
        in(test::noise<T>(stride * lanes, static_cast<std::uint64_t>(n))),
        out(2 * n * lanes),
        between(2 * n * lanes),
        work(4 * n * lanes) {}

  cpu::short_call<T> call(int used, bool swapped) {
    cpu::short_call<T> made;
    made.from = {in.data(), stride, used, points};
    made.to = out.data();
    made.to_stride = 2 * points;
    made.between = between.data();
    made.work = work.data();
    made.swapped = swapped;
    return made;
  }
  void run(
      int used, bool swapped, bool strikes = false, const cpu::striker<T>& strike = [](auto&&...) {}) {
    cpu::short_call<T> now = call(used, swapped);
    by.along()->run(now, strikes, strike);
  }
  cpu::signals_of<T> results(int used) const { return {out.data(), 2 * points, used, points}; }

  std::int64_t points;
  int lanes;
  std::int64_t stride;
  cpu::line<T> by;
  std::vector<T> in;
  core::aligned_buffer<T> out, between, work;

  // Returns the error of `used` transformed signals, relative to their norm.
  double error(int used, bool swapped) const {
    double error = 0, size = 0;
    for (int l = 0; l < used; ++l) {
      std::vector<std::complex<wide<T>>> x;
      for (std::int64_t j = 0; j < points; ++j) {
        const T* z = in.data() + l * stride + 2 * j;
        x.emplace_back(z[0], swapped ? -z[1] : z[1]);
      }
      const auto exact = dft(x);
      for (std::int64_t k = 0; k < points; ++k) {
        const T* y = out.data() + 2 * (l * points + k);
        const auto want = exact[static_cast<std::size_t>(k)];
        error += static_cast<double>(std::norm(want - std::complex<wide<T>>(y[0], swapped ? -y[1] : y[1])));
        size += static_cast<double>(std::norm(want));
      }
    }
    return std::sqrt(error / size);
  }
};

}  // namespace ballast::fft
