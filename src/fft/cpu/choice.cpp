// The rule, the candidates and the estimate.
#include "fft/cpu/choice.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include "fft/cpu/long_real.hpp"
#include "fft/cpu/one_pass.hpp"
#include "fft/cpu/signal_pairs.hpp"
#include "fft/cpu/volume.hpp"

namespace ballast::fft::cpu {
namespace {

// Lines of up to this many points are transformed in one pass: the two buffers of a tile (128 bytes a row with AVX-512) then stay in the
// second-level cache. With many signals one pass is faster for buffers up to the size of the third-level cache, because each check is
// computed once, not twice: 2^24 points as 16384 × 1024, protected, take 25 ms in one pass and 32 ms in two; unprotected they take the same
// (2 threads, Zen 5, f32).
constexpr std::int64_t k_one_pass = 2048;
constexpr std::int64_t k_one_pass_many = k_longest_line;
constexpr std::int64_t k_many_tiles = 16;

// Signals of odd length are paired if their line is a matrix or has no stage for reals, and they are not shorter: the steps before and
// after their line, which are computed twice, cost as much as the half of the line that they save. With protection 315 points in f32 take
// 1.02 ms and in pairs 1.12, 1001 points 1.11 and 1.00, 4095 points 2.70 and 1.49 (2^19 points in all, one thread of a Zen 5).
constexpr std::int64_t k_shortest_pair = 1000;

// The factors of a matrix differ at most by this factor.
constexpr std::int64_t k_least_square = 64;

// Returns the complex lines that are computed instead of the signals of signal_pairs.
geometry pairs_of(const geometry& shape) {
  geometry made = line_of(shape.n[2]);
  made.batch = (shape.batch + 1) / 2;
  for (side* each : {&made.input, &made.output}) each->extent = made.batch * shape.n[2];
  return made;
}

template <class T>
choice by_rule(const geometry& given) {
  const geometry shape = with_short_axes_first(given);
  const std::int64_t n = shape.n[2];
  if (n >= k_shortest_pair && signal_pairs<T>::takes(shape)) {
    geometry pairs = pairs_of(shape);
    pairs.batch = shape.batch;  // tiles or a matrix as for so many lines
    const choice of_pairs = by_rule<T>(pairs);
    const bool alone = of_pairs.how == method::tile && real_radix(n) > 1;  // in a tile each signal has a line for reals
    if (!alone && (of_pairs.how == method::tile || of_pairs.how == method::matrix)) return {method::signal_pairs, of_pairs.n1, of_pairs.n2};
  }
  if (shape.n[0] != 1 || shape.n[1] != 1) return {.how = method::volume};
  const int lanes = kernels<T>().lanes;
  const std::int64_t length = shape.kind != kind::c2c && n % 2 == 0 ? n / 2 : n;  // points of the complex transform
  const std::int64_t most = shape.batch >= k_many_tiles * lanes ? k_one_pass_many : k_one_pass;
  const bool along = one_pass<T>::goes_along(shape);
  const bool few = !along && shape.batch < lanes / 2 && length >= 16 * lanes;  // too few signals to fill the lanes of a tile
  if (long_real<T>::takes(shape) && !along && (few || length > most)) {
    if (const auto half = split_line(length)) return {method::half_matrix, half->n1, half->n2};
  }
  const auto split = split_line(n);
  if (split && ((!along && length > most) || (few && shape.kind == kind::c2c))) return {method::matrix, split->n1, split->n2};
  if (!split && length > k_longest_convolved_line) return {.how = method::convolution};
  return {.how = method::tile};
}

// The matrices of a line, with either factor first.
std::vector<line_split> matrices_of(std::int64_t n) {
  std::vector<line_split> made;
  for (std::int64_t p = 2; p * p <= n; ++p) {
    const std::int64_t q = n / p;
    if (n % p != 0 || q > k_least_square * p || !is_direct(p) || !is_direct(q) || q > k_longest_split_line) continue;
    made.push_back({q, p});
    if (p != q) made.push_back({p, q});
  }
  return made;
}

template <class T>
std::vector<choice> all_choices(const geometry& given, int threads) {
  const geometry shape = with_short_axes_first(given);
  const choice rule = by_rule<T>(given);
  std::vector<choice> made;
  const auto add = [&](choice one) {
    std::vector<sharing> ways{sharing::by_size};
    if (one.how != method::tile && one.how != method::convolution && threads > 1 && shape.batch > 1)
      ways = {sharing::signals, sharing::tiles};
    for (const sharing way : ways) {
      one.share = way;
      made.push_back(one);
    }
  };
  const std::int64_t n = shape.n[2];
  const bool halves = shape.kind != kind::c2c && n % 2 == 0;
  if (rule.how == method::volume) {
    add(rule);
  } else if (rule.how != method::convolution) {
    const std::int64_t length = halves ? n / 2 : n;
    if (length <= (is_direct(length) ? k_longest_line : k_longest_convolved_line)) add({.how = method::tile});
    if (long_real<T>::takes(shape)) {
      for (const line_split& each : matrices_of(length)) add({method::half_matrix, each.n1, each.n2});
    }
    if (!halves) {
      for (const line_split& each : matrices_of(n)) add({method::matrix, each.n1, each.n2});
    }
    if (signal_pairs<T>::takes(shape)) {
      if (n <= (is_direct(n) ? k_longest_line : k_longest_convolved_line)) add({.how = method::signal_pairs});
      for (const line_split& each : matrices_of(n)) add({method::signal_pairs, each.n1, each.n2});
    }
  }
  // The choice by rule comes first.
  std::erase(made, rule);
  made.insert(made.begin(), rule);
  return made;
}

// The constants of the estimate: seconds for a complex point, in vectors of one lane, and bytes a second. `base` and `per_level` (log₂ of
// the length) are those of a pass, `check` what protection adds to it.
struct constants {
  double base = 6e-9, per_level = 0.9e-9, check = 3e-9;
  double second_level = 60e9, third_level = 30e9, memory = 18e9;  // one thread's bytes in a second, read and written
  double task = 2e-6;                                             // to begin a pass on several threads
};
constexpr constants k_cost;

struct caches {
  double own = 1 << 20, shared = 16 << 20;  // bytes: one core's, and that of all cores
};
caches caches_here() {
  caches made;
  const auto known = [](int name, double otherwise) {
    const long bytes = sysconf(name);
    return bytes > 0 ? static_cast<double>(bytes) : otherwise;
  };
  made.own = known(_SC_LEVEL2_CACHE_SIZE, made.own);
  made.shared = known(_SC_LEVEL3_CACHE_SIZE, made.shared);
  return made;
}

double bandwidth(double bytes, const caches& here, int threads) {
  if (bytes <= here.own * threads) return k_cost.second_level;
  return bytes <= here.shared ? k_cost.third_level : k_cost.memory;
}

}  // namespace

std::string_view to_string(method value) noexcept {
  static constexpr std::string_view names[] = {"tile", "matrix", "half_matrix", "volume", "convolution", "signal_pairs"};
  return names[static_cast<std::size_t>(value)];
}

std::string_view to_string(sharing value) noexcept {
  static constexpr std::string_view names[] = {"by_size", "signals", "tiles"};
  return names[static_cast<std::size_t>(value)];
}

geometry with_short_axes_first(geometry shape) {
  for (std::size_t axis = shape.kind == kind::c2c ? 2 : 1; axis > 0; --axis) {
    for (std::size_t rest = axis; shape.n[axis] == 1 && rest > 0; --rest) {
      for (side* each : {&shape.input, &shape.output}) {
        std::swap(each->length[axis], each->length[rest - 1]);
        std::swap(each->stride[axis], each->stride[rest - 1]);
      }
      std::swap(shape.n[axis], shape.n[rest - 1]);
    }
  }
  return shape;
}

choice choose_by_rule(const geometry& shape, precision type) {
  return type == precision::f32 ? by_rule<float>(shape) : by_rule<double>(shape);
}

std::vector<choice> candidates(const geometry& shape, precision type, int threads) {
  return type == precision::f32 ? all_choices<float>(shape, threads) : all_choices<double>(shape, threads);
}

double estimated_seconds(const geometry& shape, precision type, const choice& by, int threads, bool protect) {
  const double scalar = type == precision::f32 ? 4 : 8;
  const double lanes = type == precision::f32 ? kernels<float>().lanes : kernels<double>().lanes;
  const caches here = caches_here();
  const int hands = by.threads > 0 ? std::min(by.threads, threads) : threads;
  if (by.how == method::signal_pairs) {
    const geometry pairs = pairs_of(shape);
    choice of_pairs = by;
    of_pairs.how = by.n1 == 0 ? method::tile : method::matrix;
    // The steps before and after the lines read and write each number once.
    const double bytes = 4 * scalar * static_cast<double>(pairs.batch * pairs.points());
    return estimated_seconds(pairs, type, of_pairs, threads, protect) + 2 * bytes / (bandwidth(bytes, here, hands) * hands);
  }
  const bool of_reals = shape.n[2] % 2 == 0 || (real_radix(shape.n[2]) > 1 && by.how != method::matrix);
  const auto points = static_cast<double>(shape.points()) * (shape.kind != kind::c2c && of_reals ? 0.5 : 1);
  const auto batch = static_cast<double>(shape.batch);
  const double signal_bytes = 2 * scalar * points;
  // The lengths of the passes.
  std::vector<std::int64_t> lengths;
  if (by.how == method::matrix || by.how == method::half_matrix) {
    lengths = {by.n1, by.n2};
  } else {
    for (const std::int64_t each : shape.n) {
      if (each > 1) lengths.push_back(each);
    }
    if (by.how == method::convolution) lengths.assign(4, static_cast<std::int64_t>(std::sqrt(2 * points)));
  }
  if (lengths.empty()) lengths = {1};
  const bool whole = by.share == sharing::signals ||
                     (by.share == sharing::by_size && shape.batch >= 2 * hands && signal_bytes <= static_cast<double>(1 << 20));
  double seconds = 0;
  for (std::size_t pass = 0; pass < lengths.size(); ++pass) {
    const auto length = static_cast<double>(lengths[pass]);
    const double lines = points / (by.how == method::tile ? points : length) * (by.how == method::tile || whole ? batch : 1);
    const bool along = by.how == method::tile && batch < lanes / 2;
    const double tiles = along ? lines : std::ceil(lines / lanes);
    const double tasks = by.how != method::tile && whole ? batch : tiles;
    const double busy = tasks / std::ceil(tasks / hands);  // threads with work
    const double waste = along ? 1 : tiles * lanes / lines;
    const double work =
        (is_direct(lengths[pass]) ? 1 : 4) * (k_cost.base + k_cost.per_level * std::log2(length) + (protect ? k_cost.check : 0));
    const double computed = points * batch * work / lanes * waste / busy;
    const double lies = lengths.size() == 1 || pass == 0 ? 2 * signal_bytes * batch : whole ? signal_bytes * hands : 2 * signal_bytes;
    const double moved = 2 * signal_bytes * batch / (bandwidth(lies, here, hands) * std::min<double>(hands, tasks));
    seconds += std::max(computed, moved);
    if (hands > 1) seconds += k_cost.task * (whole || by.how == method::tile ? 1 : batch);
  }
  if (by.how == method::half_matrix) seconds += 2 * signal_bytes * batch / (bandwidth(2 * signal_bytes * batch, here, hands) * hands);
  return seconds;
}

}  // namespace ballast::fft::cpu
