// The two orders of the transform and the step, the attempts at a signal, and the attempts at a run of pairs.
#include "fft/cpu/long_real.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "abft/seal.hpp"
#include "core/at.hpp"
#include "core/parallel.hpp"
#include "fft/sites.hpp"
#include "inject/injector.hpp"
#include "run/attempt.hpp"

namespace ballast::fft::cpu {

using core::at;

namespace {

// Pairs of a run: their numbers and results stay in the first-level cache.
constexpr std::int64_t k_pairs = 256;
// Runs of one task.
constexpr std::int64_t k_runs = 16;

}  // namespace

// One run of pairs. Its numbers are `low`, from index `first` on, and `high`, from `high_first` on: count and `highs` of them, one after
// the other. The pair of k = m/2 has no high number.
template <class T>
struct long_real<T>::chunk {
  std::int64_t number, first, count;
  std::int64_t middle;  // 1 if the last pair is that of k = m/2
  std::int64_t high_first, highs;
  std::int64_t highs_in;  // in the source; z has no number m
  inject::position here;
  alignas(128) T results[4 * k_pairs];

  // Returns the begin of the high numbers in an array of low ones and high ones, as the kernels count them: that of the pair of k = m/2,
  // which is not used, lies over the last low one.
  template <class U>
  U* high_of(U* low) const {
    return low + 2 * (count - middle);
  }
};

template <class T>
bool long_real<T>::takes(const geometry& shape) {
  return shape.kind != kind::c2c && shape.n[0] == 1 && shape.n[1] == 1 && shape.n[2] % 2 == 0 && shape.input.stride[2] == 1 &&
         shape.output.stride[2] == 1;
}

template <class T>
long_real<T>::long_real(const geometry& shape, line_split split, bool protect, sharing share)
    : shape_(shape),
      m_(shape.n[2] / 2),
      spectrum_(shape.kind == kind::r2c),
      chunks_(m_ / 2 / k_pairs + 1),
      inner_(line_of(m_), split, protect, share) {
  make_factors(factors_[0]);
  if (protect) make_factors(factors_[1]);
}

template <class T>
void long_real<T>::make_factors(factor_tables& to) const {
  const auto append = [](auto& table, std::int64_t i, const auto& w) {
    table[i] = static_cast<T>(w.real());
    table[i + 1] = static_cast<T>(w.imag());
  };
  to.fine = core::aligned_buffer<T>(2 * k_pairs);
  for (std::int64_t k = 0; k < k_pairs; ++k) append(to.fine, 2 * k, root_of_unity<wide<T>>(k, 2 * m_));
  to.coarse.resize(at(2 * chunks_));
  for (std::int64_t c = 0; c < chunks_; ++c) {
    const auto w = root_of_unity<wide<T>>(c * k_pairs, 2 * m_);
    to.coarse[at(2 * c)] = static_cast<T>(w.real());
    to.coarse[at(2 * c + 1)] = static_cast<T>(w.imag());
  }
}

// Returns the arguments of the complex transform, which is always out of place.
template <class T>
transform_args long_real<T>::part_of(const transform_args& how, int threads) {
  transform_args made = how;
  made.in_place = false;
  made.threads = threads;
  return made;
}

template <class T>
void long_real<T>::prepare(workspace& memory, const transform_args& how, int signals) const {
  inner_.prepare(memory.inner, part_of(how, how.threads), signals);
  while (memory.places.size() < static_cast<std::size_t>(signals)) memory.places.push_back(std::make_unique<place>());
  for (auto& each : memory.places) {
    if (each->z.size() == 0) each->z = core::large_buffer<T>(2 * m_);
    if (how.in_place && each->y.size() == 0) each->y = core::large_buffer<T>(2 * (m_ + 1));
  }
}

template <class T>
void long_real<T>::run(const void* in, void* out, const transform_args& how) const {
  const strike_counts all{shape_.batch * tiles_of_signal(), shape_.batch * waiting_of_signal()};
  memory_.lend([&](workspace& memory) {
    const bool whole = inner_.takes_whole_signals(shape_.batch, how.threads);
    prepare(memory, how, whole ? how.threads : 1);
    const auto one = [&](std::int64_t b, int threads, int slot) {
      const T* from = static_cast<const T*>(in) + b * shape_.input.distance * (spectrum_ ? 1 : 2);
      T* to = static_cast<T*>(out) + b * shape_.output.distance * (spectrum_ ? 2 : 1);
      (void)run_signal({from, to, how, b, threads, slot, all}, memory);
    };
    if (whole) {
      core::parallel_for(how.threads, shape_.batch, [&](std::int64_t b, int slot) { one(b, 1, slot); });
    } else {
      for (std::int64_t b = 0; b < shape_.batch; ++b) one(b, how.threads, -1);
    }
  });
}

template <class T>
bool long_real<T>::run_signal(const item& one, workspace& memory) const {
  const transform_args& how = one.how;
  place& mine = *memory.places[at(std::max(one.slot, 0))];
  T* const y = how.in_place ? mine.y.data() : one.out;
  bool damaged = false;
  if (how.protection == protection::off) {
    (void)compute(one, memory, mine.z.data(), y, damaged);
  } else {
    const auto once = [&](int) -> std::optional<abft::finding> {
      damaged = false;
      if (!compute(one, memory, mine.z.data(), y, damaged)) return std::nullopt;
      how.seen.checked(1);
      return abft::finding{.word = damaged ? abft::k_fail : abft::k_pass, .residual = 1, .index = one.number};
    };
    if (run::attempt(how.seen, how.protection, "fft.intermediate", std::max(one.slot, 0), once) == abft::outcome::uncorrectable)
      return false;
  }
  if (how.in_place) std::memcpy(one.out, y, static_cast<std::size_t>(spectrum_ ? 2 * (m_ + 1) : 2 * m_) * sizeof(T));
  return true;
}

// Returns false if a part could not be repaired. damaged: z changed while it waited.
template <class T>
bool long_real<T>::compute(const item& one, workspace& memory, T* z, T* y, bool& damaged) const {
  const transform_args& how = one.how;
  const transform_args part = part_of(how, one.threads);
  const numbering where{one.all, one.number * tiles_of_signal(), one.number * waiting_of_signal()};
  const auto transformed = [&](const T* from, T* to) {
    return inner_.run_part({from, to, where, one.number, one.slot, spectrum_}, part, memory.inner);
  };
  const auto wait = [&] {
    how.injector.strike(site::intermediate, {(one.number + 1) * waiting_of_signal() - 1, one.all.waiting, 0, 1}, z, 2 * m_);
  };
  outcome found;
  const auto differs = [&](std::uint64_t seal) { return static_cast<word_of<T>>(found.seal.load()) != static_cast<word_of<T>>(seal); };
  if (spectrum_) {
    const auto done = transformed(one.in, z);
    if (!done.sound) return false;
    wait();
    step(one, z, y, found);
    damaged = how.protection != protection::off && differs(done.seal);
    return !found.failed;
  }
  step(one, one.in, z, found);
  if (found.failed) return false;
  wait();
  const auto done = transformed(z, y);
  damaged = how.protection != protection::off && differs(kernels<T>().seal_numbers(z, m_, 0));
  return done.sound;
}

// Computes all pairs, from `from` to `to`.
template <class T>
void long_real<T>::step(const item& one, const T* from, T* to, outcome& found) const {
  const std::int64_t runs = one.threads > 1 ? k_runs : chunks_;
  core::parallel_for(one.threads, (chunks_ + runs - 1) / runs, [&](std::int64_t task, int own_slot) {
    for (std::int64_t c = task * runs; c < std::min(chunks_, (task + 1) * runs); ++c) {
      if (found.failed || !run_chunk(one, c, from, to, one.slot >= 0 ? one.slot : own_slot, found)) return;
    }
  });
}

// Computes the pairs of a run from the first set of tables, with strikes at what it reads and makes.
template <class T>
void long_real<T>::make(const item& one, pair_call<T> call, chunk& now) const {
  auto& injector = one.how.injector;
  core::vector<T> source, fine;
  if constexpr (inject::active_injector::enabled) {
    if (injector.armed(site::input)) {
      const T* const high = call.high + 2 * now.middle;
      source.assign(call.low, call.low + 2 * now.count);
      source.insert(source.end(), high, high + 2 * now.highs_in);
      injector.strike(site::input, now.here, source.data(), static_cast<std::int64_t>(source.size()));
      call.low = source.data();
      call.high = now.high_of(source.data());
    }
    if (injector.armed(site::twiddle)) {
      fine.assign(call.fine, call.fine + 2 * now.count);
      // The first factor of the signal is 1.
      const std::int64_t skipped = now.number == 0 ? 2 : 0;
      injector.strike(site::twiddle, now.here, fine.data() + skipped, 2 * now.count - skipped);
      call.fine = fine.data();
    }
  }
  kernels<T>().make_pairs(call, {now.results, now.high_of(now.results)});
  for (const inject::site where : {site::stage, site::output}) injector.strike(where, now.here, now.results, 2 * (now.count + now.highs));
}

template <class T>
bool long_real<T>::run_chunk(const item& one, std::int64_t number, const T* from, T* to, int slot, outcome& found) const {
  const transform_args& how = one.how;
  const auto& kernel = kernels<T>();
  chunk now;
  now.number = number;
  now.first = number * k_pairs;
  now.count = std::min(k_pairs, m_ / 2 + 1 - now.first);
  const std::int64_t last = now.first + now.count - 1;
  now.middle = 2 * last == m_ ? 1 : 0;
  now.high_first = m_ - last + now.middle;
  now.highs_in = now.count - now.middle - (spectrum_ && number == 0 ? 1 : 0);
  now.highs = now.count - now.middle - (!spectrum_ && number == 0 ? 1 : 0);
  now.here = {one.number * tiles_of_signal() + inner_.tiles_of_signal() + number, one.all.tiles, 0, 1};

  pair_call<T> call{from + 2 * now.first, from + 2 * (m_ - last), m_, now.first, now.count, nullptr, nullptr, !spectrum_};
  const auto with = [&](const factor_tables& tables) {
    pair_call<T> made = call;
    made.coarse = tables.coarse.data() + 2 * number;
    made.fine = tables.fine.data();
    return made;
  };
  const auto store = [&] {
    const std::uint64_t low = kernel.store_run(now.results, 2 * now.count, to + 2 * now.first);
    return abft::chained(low, kernel.store_run(now.results + 2 * now.count, 2 * now.highs, to + 2 * now.high_first));
  };
  if (how.protection == protection::off) {
    make(one, with(factors_[0]), now);
    (void)store();
    return true;
  }
  std::uint64_t expected[2] = {};
  const auto verify = [&] {
    // Read before the comparison: the results that are stored later must still be those that were compared.
    expected[0] = abft::chained(kernel.join_run(now.results, 2 * now.count), kernel.join_run(now.results + 2 * now.count, 2 * now.highs));
    expected[1] = expected[0];
    const bool same = kernel.same_pairs(with(factors_[1]), {now.results, now.high_of(now.results)});
    how.injector.strike(site::threshold, now.here, expected, 2);
    how.seen.checked(1);
    std::uint32_t words[2] = {same ? abft::k_pass : abft::k_fail, same && expected[0] == expected[1] ? abft::k_pass : abft::k_fail};
    how.injector.strike(site::comparison, now.here, words, 2);
    const bool passed = words[0] == abft::k_pass && words[1] == abft::k_pass;
    return abft::finding{.word = passed ? abft::k_pass : abft::k_fail, .residual = same ? 0.0 : 1.0, .index = one.number};
  };
  const auto once = [&](int) -> std::optional<abft::finding> {
    make(one, with(factors_[0]), now);
    return verify();
  };
  const auto store_verified = [&](int again) -> std::optional<abft::finding> {
    if (again > 0) {
      const abft::finding seen = verify();
      if (seen.word != abft::k_pass) return seen;
    }
    const bool same = store() == expected[0];
    return abft::finding{.word = same ? abft::k_pass : abft::k_fail, .residual = same ? 0.0 : 1.0, .index = one.number};
  };
  if (run::attempt(how.seen, how.protection, "fft.signal", slot, once) == abft::outcome::uncorrectable ||
      run::attempt(how.seen, how.protection, "fft.output", slot, store_verified) == abft::outcome::uncorrectable) {
    found.failed = true;
    return false;
  }
  // z was read before its seal is taken, and is sealed from the verified results when it was made: a change in memory shows.
  const T* const low = spectrum_ ? call.low : now.results;
  const T* const high = spectrum_ ? call.high + 2 * now.middle : now.results + 2 * now.count;
  const std::int64_t highs = spectrum_ ? now.highs_in : now.highs;
  std::uint64_t seal = kernel.seal_numbers(low, now.count, now.first) + kernel.seal_numbers(high, highs, now.high_first);
  how.injector.strike(site::checksum, now.here, &seal, 1);
  found.seal += seal;
  return true;
}

template class long_real<float>;
template class long_real<double>;

}  // namespace ballast::fft::cpu
