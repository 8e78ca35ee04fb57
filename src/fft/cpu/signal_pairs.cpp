// The lines of a group and their scales, the steps before and after their transform, and the attempts.
#include "fft/cpu/signal_pairs.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "abft/seal.hpp"
#include "core/at.hpp"
#include "core/memory.hpp"
#include "core/parallel.hpp"
#include "fft/sites.hpp"
#include "inject/injector.hpp"
#include "run/attempt.hpp"

namespace ballast::fft::cpu {

using core::at;

namespace {

// Points of a task, as crew has them.
constexpr std::int64_t k_points_of_task = 2048;

// Signals whose largest number is within this power of two of 1 can be paired: their sums, squares and scaled numbers are far from the
// limits of the precision.
template <class T>
constexpr int k_pairable = sizeof(T) == 4 ? 40 : 400;

template <class T>
bool is_pairable(const signal_size<T>& size) {
  if (!size.finite) return false;
  return size.largest == 0 || (size.largest > std::ldexp(T(1), -k_pairable<T>) && size.largest < std::ldexp(T(1), k_pairable<T>));
}

// Returns a geometry of `count` contiguous complex lines of n points.
geometry lines_of(std::int64_t n, std::int64_t count) {
  geometry made = line_of(n);
  made.batch = count;
  made.input.extent = made.output.extent = n * count;
  return made;
}

// Copies scalars or complex numbers of a signal with strides, `stride` scalars apart, and back.
template <class T>
void gather(const T* from, std::int64_t stride, std::int64_t together, std::int64_t scalars, T* to) {
  for (std::int64_t i = 0; i < scalars; i += together) std::copy_n(from + i / together * stride, together, to + i);
}
template <class T>
void scatter(const T* from, std::int64_t scalars, std::int64_t together, std::int64_t stride, T* to) {
  for (std::int64_t i = 0; i < scalars; i += together) std::copy_n(from + i, together, to + i / together * stride);
}

}  // namespace

// The lines of `mine.lines`, and where they come from and go to. `here` and `waits`: positions of the first of its tiles.
template <class T>
struct signal_pairs<T>::group {
  const T* in;
  T* out;
  const transform_args& how;
  const strike_counts& all;
  workspace& memory;
  place& mine;
  std::int64_t number;
  int threads, slot;  // slot: −1 if all threads share a line

  std::int64_t lines() const { return std::ssize(mine.lines); }
  int worker() const { return std::max(slot, 0); }
  std::int64_t signals() const {
    return std::ranges::count_if(mine.lines, [](const pair& each) { return each.signal[1] >= 0; }) + lines();
  }
  void strike(inject::site where, std::int64_t tile, T* data, std::int64_t scalars) const {
    how.injector.strike(where, {tile, all.tiles, 0, 1}, data, scalars);
  }
};

template <class T>
bool signal_pairs<T>::takes(const geometry& shape) {
  // Signals that interleave are read row by row in tiles: one at a time, each would read the memory of all.
  const auto apart = [](const side& of) { return of.stride[2] <= of.distance; };
  return shape.kind != kind::c2c && shape.n[0] == 1 && shape.n[1] == 1 && shape.n[2] % 2 == 1 && shape.n[2] > 1 && shape.batch > 1 &&
         apart(shape.input) && apart(shape.output);
}

template <class T>
signal_pairs<T>::signal_pairs(const geometry& shape, std::optional<line_split> split, bool protect, sharing share)
    : shape_(shape),
      n_(shape.n[2]),
      spectrum_(shape.kind == kind::r2c),
      scalars_in_(spectrum_ ? n_ : n_ + 1),
      scalars_out_(spectrum_ ? n_ + 1 : n_),
      together_(split ? 1 : std::min<std::int64_t>(kernels<T>().lanes, ceil_div(shape.batch, 2))),
      groups_(ceil_div(ceil_div(shape.batch, 2), together_)) {
  if (split)
    matrix_.emplace(line_of(n_), split, protect, share);
  else
    tile_.emplace(lines_of(n_, kernels<T>().lanes), protect);
}

template <class T>
void signal_pairs<T>::prepare(workspace& memory, const transform_args& how, int groups) const {
  if (tile_) {
    tile_->prepare(memory.slots, groups);
  } else {
    transform_args inner = how;
    inner.in_place = false;
    matrix_->prepare(memory.matrices, inner, groups);
  }
  while (memory.places.size() < static_cast<std::size_t>(groups)) {
    auto made = std::make_unique<place>();
    const std::int64_t scalars = core::checked_product(together_, 2 * n_);
    made->z = core::large_buffer<T>(scalars);
    made->transformed = core::large_buffer<T>(scalars);
    made->results = core::large_buffer<T>(core::checked_product(together_, 2 * scalars_out_));
    made->gathered = core::large_buffer<T>(2 * (n_ + 1));
    made->lines.reserve(at(together_));
    made->others.reserve(at(together_));
    memory.places.push_back(std::move(made));
  }
}

template <class T>
void signal_pairs<T>::run(const void* in, void* out, const transform_args& how) const {
  memory_.lend([&](workspace& memory) {
    const bool whole = tile_ || matrix_->takes_whole_signals(groups_, how.threads);
    prepare(memory, how, whole ? how.threads : 1);
    if (!whole) {
      for (std::int64_t g = 0; g < groups_; ++g) run_group(g, how.threads, -1, in, out, how, memory);
      return;
    }
    const std::int64_t each = std::max<std::int64_t>(1, std::min(k_points_of_task / n_, ceil_div(groups_, 4 * how.threads)));
    core::parallel_for(how.threads, ceil_div(groups_, each), [&](std::int64_t task, int slot) {
      for (std::int64_t g = task * each; g < std::min(groups_, (task + 1) * each); ++g) run_group(g, 1, slot, in, out, how, memory);
    });
  });
}

template <class T>
void signal_pairs<T>::run_group(std::int64_t number, int threads, int slot, const void* in, void* out, const transform_args& how,
                                workspace& memory) const {
  const strike_counts all{groups_ * tiles_of_group(), groups_ * waiting_of_group()};
  place& mine = *memory.places[at(std::max(slot, 0))];
  const group now{static_cast<const T*>(in), static_cast<T*>(out), how, all, memory, mine, number, threads, slot};
  choose_lines(now);
  (void)run_lines(now);
  // The second signals of pairs that must not be one line.
  while (!mine.others.empty()) {
    mine.lines.assign(mine.others.begin(), mine.others.end());
    mine.others.clear();
    (void)run_lines(now);
  }
}

// Pairs the signals of a group, and chooses their scales: each copy of a scale from its own measurement of the signals. Signals whose two
// measurements differ stay alone, where none is needed.
template <class T>
void signal_pairs<T>::choose_lines(const group& now) const {
  place& mine = now.mine;
  mine.lines.clear();
  mine.others.clear();
  const std::int64_t first = 2 * now.number * together_, last = std::min(shape_.batch, first + 2 * together_);
  for (std::int64_t s = first; s < last; s += 2) {
    pair made;
    made.signal[0] = s;
    if (s + 1 < last) {
      const std::optional<int> levels[2] = {levels_of(now, s), levels_of(now, s)};
      if (levels[0].has_value() && levels[0] == levels[1]) {
        made.signal[1] = s + 1;
        for (int copy = 0; copy < 2; ++copy) made.up[copy][*levels[copy] > 0 ? 1 : 0] = std::ldexp(T(1), std::abs(*levels[copy]));
      } else {
        pair other;
        other.signal[0] = s + 1;
        mine.others.push_back(other);
      }
    }
    mine.lines.push_back(made);
  }
}

// Measures signals s and s + 1. Returns how many powers of two the second is smaller than the first; nothing if they cannot be a pair.
template <class T>
std::optional<int> signal_pairs<T>::levels_of(const group& now, std::int64_t s) const {
  const signal_size<T> sizes[2] = {size_of(now, s), size_of(now, s + 1)};
  // Rounding errors of a signal would come into one of zeros.
  const bool zero = sizes[0].largest == 0;
  if (!is_pairable(sizes[0]) || !is_pairable(sizes[1]) || zero != (sizes[1].largest == 0)) return std::nullopt;
  if (zero) return 0;
  const double ratio = std::log2(static_cast<double>(sizes[0].squares)) - std::log2(static_cast<double>(sizes[1].squares));
  return static_cast<int>(std::lround(ratio / 2));
}

// Returns the contiguous scalars of a signal: in the caller's memory or, copied now, in the workspace.
template <class T>
const T* signal_pairs<T>::source_of(const group& now, std::int64_t signal, int which) const {
  const std::int64_t unit = spectrum_ ? 1 : 2;
  const T* const from = now.in + signal * shape_.input.distance * unit;
  if (shape_.input.stride[2] == 1) return from;
  T* const to = now.mine.gathered.data() + which * (n_ + 1);
  gather(from, shape_.input.stride[2] * unit, unit, scalars_in_, to);
  return to;
}

template <class T>
signal_size<T> signal_pairs<T>::size_of(const group& now, std::int64_t signal) const {
  return kernels<T>().measure(source_of(now, signal, 0), scalars_in_);
}

// Returns the sum of the seals of the lines. Number j of line l has place l + j.
template <class T>
std::uint64_t signal_pairs<T>::seal_of(const group& now, const core::aligned_buffer<T>& lines) const {
  std::uint64_t seal = 0;
  for (std::int64_t l = 0; l < now.lines(); ++l) seal += kernels<T>().seal_numbers(lines.data() + l * 2 * n_, n_, l);
  return static_cast<word_of<T>>(seal);
}

// Returns the step of a line before or after its transform, with one of the copies of its scales.
template <class T>
line_call<T> signal_pairs<T>::call_of(const group& now, std::int64_t line, bool before, int copy) const {
  place& mine = now.mine;
  const pair& of = mine.lines[at(line)];
  line_call<T> made;
  made.points = n_;
  made.step = spectrum_ ? (before ? line_step::pack : line_step::split) : (before ? line_step::join : line_step::unpack);
  T* const complex = (before ? mine.z : mine.transformed).data() + line * 2 * n_;
  if (before)
    made.to[0] = complex;
  else
    made.from[0] = complex;
  for (int i = 0; i < 2; ++i) {
    made.scale[i] = before ? of.up[copy][i] : 1 / of.up[copy][i];
    if (of.signal[i] < 0) continue;
    if (before)
      made.from[i] = source_of(now, of.signal[i], i);
    else
      made.to[i] = mine.results.data() + of.result[i] * scalars_out_;
  }
  return made;
}

// Computes the step after the transform from the first copy of the scales, with strikes at what it uses and makes.
template <class T>
void signal_pairs<T>::make_results(const group& now, std::int64_t tile) const {
  core::vector<T> scales;
  if (now.how.injector.armed(site::twiddle)) {
    for (std::int64_t l = 0; l < now.lines(); ++l) {
      const line_call<T> call = call_of(now, l, false, 0);
      scales.insert(scales.end(), call.scale, call.scale + (call.to[1] != nullptr ? 2 : 1));
    }
    now.strike(site::twiddle, tile, scales.data(), std::ssize(scales));
  }
  std::size_t next = 0;
  for (std::int64_t l = 0; l < now.lines(); ++l) {
    line_call<T> call = call_of(now, l, false, 0);
    for (int i = 0; i < 2 && !scales.empty() && call.to[i] != nullptr; ++i) call.scale[i] = scales[next++];
    kernels<T>().make_lines(call);
  }
  for (const inject::site where : {site::stage, site::output})
    now.strike(where, tile, now.mine.results.data(), now.signals() * scalars_out_);
}

// Computes the step before or after the transform for all lines of a group. Returns false if it could not be repaired. seal: of z, from
// before it was compared. expected: the parity of the results.
template <class T>
bool signal_pairs<T>::step(const group& now, bool before, std::uint64_t& expected, std::uint64_t& seal) const {
  const transform_args& how = now.how;
  const auto& kernel = kernels<T>();
  place& mine = now.mine;
  const std::int64_t tile = now.number * tiles_of_group() + tiles_of_group() - 1;
  const auto make = [&] {
    if (!before) return make_results(now, tile);
    for (std::int64_t l = 0; l < now.lines(); ++l) kernel.make_lines(call_of(now, l, true, 0));
    now.strike(site::input, tile, mine.z.data(), now.lines() * 2 * n_);
  };
  if (how.protection == protection::off) {
    make();
    return true;
  }
  const auto once = [&](int) -> std::optional<abft::finding> {
    make();
    if (before) seal = seal_of(now, mine.z);
    bool same = true;
    // Read before the comparison: the results that are stored later must still be those that were compared.
    const std::uint64_t parity = before ? seal : parity_of_results(now);
    for (std::int64_t l = 0; l < now.lines(); ++l) same = kernel.same_lines(call_of(now, l, before, 1)) && same;
    std::uint64_t parities[2] = {parity, parity};
    now.how.injector.strike(site::threshold, {tile, now.all.tiles, 0, 1}, parities, 2);
    how.seen.checked(static_cast<std::uint64_t>(now.lines()));
    std::uint32_t words[2] = {same ? abft::k_pass : abft::k_fail, same && parities[0] == parities[1] ? abft::k_pass : abft::k_fail};
    now.how.injector.strike(site::comparison, {tile, now.all.tiles, 0, 1}, words, 2);
    expected = parities[0];
    const bool passed = words[0] == abft::k_pass && words[1] == abft::k_pass;
    return abft::finding{.word = passed ? abft::k_pass : abft::k_fail, .residual = same ? 0.0 : 1.0, .index = mine.lines.front().signal[0]};
  };
  return run::attempt(how.seen, how.protection, "fft.signal", now.worker(), once) != abft::outcome::uncorrectable;
}

// Transforms the lines. seal: of the results as they were verified.
template <class T>
bool signal_pairs<T>::transform_lines(const group& now, std::uint64_t& seal) const {
  place& mine = now.mine;
  transform_args how = now.how;
  how.in_place = false;
  how.threads = now.threads;
  const std::int64_t tile = now.number * tiles_of_group(), signal = mine.lines.front().signal[0];
  if (tile_) {
    const std::int64_t apart = now.lines() > 1 ? mine.lines[1].signal[0] - signal : 2;
    const auto done =
        tile_->run_part({mine.z.data(), mine.transformed.data(), static_cast<int>(now.lines()), now.all, tile, signal, apart, now.worker()},
                        how, now.memory.slots);
    seal = static_cast<word_of<T>>(done.seal);
    return done.sound;
  }
  const numbering where{now.all, tile, now.number * waiting_of_group()};
  const auto done = matrix_->run_part(
      {mine.z.data(), mine.transformed.data(), where, signal, now.slot, now.how.protection != protection::off}, how, now.memory.matrices);
  seal = static_cast<word_of<T>>(done.seal);
  return done.sound;
}

// Computes the results of a group. Returns false if a part could not be repaired. damaged: something changed while it waited.
template <class T>
bool signal_pairs<T>::compute(const group& now, std::uint64_t& expected, bool& damaged) const {
  place& mine = now.mine;
  const bool protect = now.how.protection != protection::off;
  const auto wait = [&](core::aligned_buffer<T>& lines) {
    now.how.injector.strike(site::intermediate, {(now.number + 1) * waiting_of_group() - 1, now.all.waiting, 0, 1}, lines.data(),
                            now.lines() * 2 * n_);
  };
  std::uint64_t packed = 0, verified = 0;
  if (!step(now, true, expected, packed)) return false;
  if (!spectrum_) wait(mine.z);
  if (!transform_lines(now, verified)) return false;
  if (spectrum_) wait(mine.transformed);
  if (protect) damaged = seal_of(now, mine.z) != packed;
  std::uint64_t unused = 0;
  if (!damaged && !step(now, false, expected, unused)) return false;
  if (!protect || damaged) return true;
  std::uint64_t read = seal_of(now, mine.transformed);
  now.how.injector.strike(site::checksum, {now.number * tiles_of_group() + tiles_of_group() - 1, now.all.tiles, 0, 1}, &read, 1);
  damaged = read != verified;
  return true;
}

// Returns the parity of the results of a group.
template <class T>
std::uint64_t signal_pairs<T>::parity_of_results(const group& now) const {
  std::uint64_t parity = 0;
  for (std::int64_t i = 0; i < now.signals(); ++i)
    parity = abft::chained(parity, kernels<T>().join_run(now.mine.results.data() + i * scalars_out_, scalars_out_));
  return parity;
}

// Stores the results of a group. Returns their parity as they are stored.
template <class T>
std::uint64_t signal_pairs<T>::store(const group& now) const {
  const auto& kernel = kernels<T>();
  const std::int64_t unit = spectrum_ ? 2 : 1, stride = shape_.output.stride[2] * unit;
  std::uint64_t parity = 0;
  for (const pair& each : now.mine.lines) {
    for (int i = 0; i < 2; ++i) {
      if (each.signal[i] < 0) continue;
      const T* const from = now.mine.results.data() + each.result[i] * scalars_out_;
      T* const to = now.out + each.signal[i] * shape_.output.distance * unit;
      if (shape_.output.stride[2] == 1) {
        parity = abft::chained(parity, kernel.store_run(from, scalars_out_, to));
        continue;
      }
      scatter(from, scalars_out_, unit, stride, to);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      run_words<T> run;
      for (std::int64_t j = 0; j < scalars_out_; j += unit) run.add(to + j / unit * stride, unit, j, kernel.lanes, 0);
      parity = abft::chained(parity, run.hash(kernel.lanes));
    }
  }
  return parity;
}

template <class T>
bool signal_pairs<T>::run_lines(const group& now) const {
  const transform_args& how = now.how;
  std::int64_t results = 0;
  for (pair& each : now.mine.lines) {
    for (int i = 0; i < 2; ++i) {
      if (each.signal[i] >= 0) each.result[i] = results++;
    }
  }
  std::uint64_t expected = 0;
  bool damaged = false;
  if (how.protection == protection::off) {
    (void)compute(now, expected, damaged);
    (void)store(now);
    return true;
  }
  const std::int64_t signal = now.mine.lines.front().signal[0];
  const auto once = [&](int) -> std::optional<abft::finding> {
    damaged = false;
    if (!compute(now, expected, damaged)) return std::nullopt;
    how.seen.checked(1);
    return abft::finding{.word = damaged ? abft::k_fail : abft::k_pass, .residual = 1, .index = signal};
  };
  if (run::attempt(how.seen, how.protection, "fft.intermediate", now.worker(), once) == abft::outcome::uncorrectable) return false;
  const auto store_verified = [&](int again) -> std::optional<abft::finding> {
    // Either the stored copy is wrong or the parity: the results are compared again, which also computes a new parity.
    std::uint64_t unused = 0;
    if (again > 0 && !step(now, false, expected, unused)) return std::nullopt;
    const bool same = store(now) == expected;
    return abft::finding{.word = same ? abft::k_pass : abft::k_fail, .residual = same ? 0.0 : 1.0, .index = signal};
  };
  return run::attempt(how.seen, how.protection, "fft.output", now.worker(), store_verified) != abft::outcome::uncorrectable;
}

template class signal_pairs<float>;
template class signal_pairs<double>;

}  // namespace ballast::fft::cpu
