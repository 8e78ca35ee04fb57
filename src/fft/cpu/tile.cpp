// The attempts at a tile, its verification, and the judgement of lanes with numbers near overflow, Inf or NaN.
#include "fft/cpu/tile.hpp"

#include <hwy/cache_control.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "core/memory.hpp"
#include "fft/cpu/strike_rows.hpp"
#include "fft/sites.hpp"
#include "fft/thresholds.hpp"
#include "inject/injector.hpp"
#include "run/attempt.hpp"

namespace ballast::fft::cpu {
namespace {

// Returns the factor of the norm rounded to the data type, from the copy that is not applied to the data.
template <class T>
double rounded_scale(const tile_job<T>& job) {
  return static_cast<double>(static_cast<T>(job.check_scale));
}

// Returns the signals of a tile in memory, before the transform.
template <class T>
signals_of<T> given(const tile_job<T>& job) {
  return {job.from.base, job.from.lane, job.used, job.transform->rows_in()};
}

// Returns the scalars of a signal with vectors along it, after the transform.
template <class T>
std::int64_t scalars_out(const tile_job<T>& job) {
  return 2 * job.transform->rows_out();
}

// Returns how many groups of signals, each of which a kernel transforms at once, a tile has.
template <class T>
std::int64_t groups_of(const tile_job<T>& job) {
  const std::int64_t group = job.along->signals_of_group();
  return (job.used + group - 1) / group;
}

// Returns the lines of memory that a tile of such signals will be stored to.
template <class T>
write_ahead<T> later(const tile_job<T>& job) {
  return {job.stream || job.stream_run ? nullptr : job.to.base, job.to.lane, job.transform->rows_out()};
}

// Returns the rows of row_factors::far.
template <class T>
std::int64_t far_rows(const tile_job<T>& job) {
  return ((job.transform->rows_out() - 1) >> job.factors.shift) + 1;
}

// Returns whether the last stage of a tile multiplies by the factors, and stores to the workspace.
template <class T>
bool multiplies_at_last(const tile_job<T>& job) {
  return job.factors.far != nullptr && job.to.how == access::blocks && job.transform->multiplies_at_last(job.factors);
}

// Returns the norm below which a lane cannot overflow.
template <class T>
double overflow_limit(const tile_job<T>& job) {
  return abft::overflow_norm<T>(16 * job.transform->points());
}

}  // namespace

template <class T>
tile_worker<T>::tile_worker(const transform_args& how, const strike_counts& all, scratch<T>& mine, int slot)
    : how_(how), all_(all), mine_(mine), slot_(slot), kernel_(kernels<T>()) {}

template <class T>
tile_worker<T>::~tile_worker() {
  if (checks_ > 0) how_.seen.checked(checks_);
  // One flush for all tiles of a task, since a fence waits for memory.
  if (streamed_) hwy::FlushStream();
}

template <class T>
tile_result tile_worker<T>::process(const tile_job<T>& job) {
  // The line in which the run of this tile ends and that of the next one begins is not stored past the cache, so it comes from memory.
  if (job.stream_run && !job.stream) __builtin_prefetch(job.to.base + (job.used - 1) * job.to.lane + scalars_out(job) - 1, 1);
  T* done = nullptr;
  T* seals = job.to.seals == nullptr ? nullptr : mine_.seals.data();
  if (how_.protection == protection::off) {
    if (store_at_once(job)) return tile_result::done;
    if (job.along == nullptr) load_tile(job, mine_.x.data(), nullptr);
    done = transform(job, nullptr);
  } else {
    bool damaged = false;
    const auto once = [&](int number) -> std::optional<abft::finding> {
      if (job.along != nullptr && !job.repeated)
        kernel_.encode_signals(given(job), job.along->input_weights(job.inverse), mine_.input, later(job));
      else if (job.along == nullptr)
        damaged = load_tile(job, mine_.x.data(), &mine_.input) != 0;
      if (damaged) return std::nullopt;
      if (!job.repeated) {
        set_thresholds(job);
        strike_sums(job);
      }
      done = transform(job, seals);
      abft::finding now = verify(job, done);
      // A tile that passes the first time needs no hash.
      if (number > 0 || !now.judged || now.word != abft::k_pass) now.bits = hash(job, done);
      return now;
    };
    const abft::outcome ended = run::attempt(how_.seen, how_.protection, "fft.signal", slot_, once);
    if (damaged) return tile_result::damaged_input;
    if (ended == abft::outcome::uncorrectable) return tile_result::uncorrectable;
  }
  done_ = done;
  streamed_ = streamed_ || job.stream || job.stream_run;
  // The tile in scratch is verified: if the stored copy differs from it, store it again.
  const auto store = [&] {
    const std::uint64_t stored = job.along != nullptr
                                     ? kernel_.store_signals(signals(job, done), job.to.base, job.to.lane, job.stream || job.stream_run)
                                     : store_tile(job, done, seals);
    // Without protection nothing was summed, so there is no parity to compare with.
    const bool same = how_.protection == protection::off || !has_stored_parity(job) || stored == parity_of(mine_.output);
    return abft::finding{.word = same ? abft::k_pass : abft::k_fail, .residual = 1, .index = job.index};
  };
  const abft::finding stored = store();
  if (stored.word == abft::k_pass) return settled(job);
  // Either the stored copy is wrong or the parity computed with the sums. Verify the tile again, which also computes a new parity.
  const auto again = [&](int number) -> std::optional<abft::finding> {
    if (number == 0) return stored;
    // In place, the input is gone: a second computation is not possible.
    if (job.repeated) return has_parity(job, done) ? store() : stored;
    const abft::finding now = verify(job, done);
    if (now.word != abft::k_pass) return now;
    if (!now.judged) return stored;  // no checksum can tell whether the tile is still the verified one
    return store();
  };
  if (run::attempt(how_.seen, how_.protection, "fft.output", slot_, again) == abft::outcome::uncorrectable)
    return tile_result::uncorrectable;
  return settled(job);
}

// Returns the used signals of a transformed tile, in the order of memory.
template <class T>
signals_of<T> tile_worker<T>::signals(const tile_job<T>& job, const T* tile) const {
  return {tile, scalars_out(job), job.used, job.transform->rows_out(), job.repeated};
}

// Reports a stored tile. If its result waits in memory, faults may strike it there.
template <class T>
tile_result tile_worker<T>::settled(const tile_job<T>& job) {
  if (job.waiting >= 0)
    strike_rows(how_.injector, site::intermediate, {job.waiting, all_.waiting, 0, 1}, job.to.base,
                job.to.how == access::blocks ? 2 * kernel_.lanes : job.to.element, job.rows_stored, job.used);
  return tile_result::done;
}

// ---- Transform ----

// Transforms from memory to memory if nothing has to be verified or struck and no input is overwritten.
template <class T>
bool tile_worker<T>::store_at_once(const tile_job<T>& job) {
  if (job.along == nullptr || how_.in_place || job.scale != 1 || inject::armed_sites(how_.injector) != 0) return false;
  short_call<T> call = call_along(job, mine_.y.data());
  ahead_ = job.ahead;
  call.later = {};
  if (job.stream_run && !job.stream && !job.along->stores_in_order()) {
    stream_parts(job, call);
    return true;
  }
  if (!job.along->keeps_to(job.used)) return false;
  call.to = job.to.base;
  call.to_stride = job.to.lane;
  call.stream = job.stream;
  job.along->run(call, false, [](auto&&...) {});
  streamed_ = streamed_ || job.stream;
  return true;
}

// A run that does not begin at a vector goes past the cache by parts, which the stores that wait for memory take. Kernels of several
// signals would store it by vectors of each in turn, half a line of memory at a time.
template <class T>
void tile_worker<T>::stream_parts(const tile_job<T>& job, short_call<T>& call) {
  constexpr std::int64_t k_part_bytes = 4096;
  const std::int64_t together = job.along->signals_of_group(), signal = scalars_out(job);
  const auto most = static_cast<int>(std::max<std::int64_t>(1, k_part_bytes / (together * signal * std::int64_t{sizeof(T)})) * together);
  ahead_.spread(groups_of(job));
  const T* from = job.from.base;
  T* to = job.to.base;
  for (int first = 0; first < job.used; first += most, from += most * job.from.lane, to += most * signal) {
    short_call<T> part = call;
    part.from.base = from;
    part.from.used = std::min(most, job.used - first);
    job.along->run(part, false, [](auto&&...) {});
    kernel_.stream_run(part.to, part.from.used * signal, to);
  }
  streamed_ = true;
}

// Returns the call for a tile whose results go to `to`, one after the other, and then to memory.
template <class T>
short_call<T> tile_worker<T>::call_along(const tile_job<T>& job, T* to) {
  return {.from = given(job),
          .to = to,
          .to_stride = scalars_out(job),
          .work = mine_.x.data(),
          .groups = mine_.x.size() / (4 * job.transform->rows_in() * kernel_.lanes),
          .pairs = mine_.spare.data(),
          .swapped = job.inverse,
          .ahead = &ahead_,
          .later = later(job)};
}

template <class T>
T* tile_worker<T>::transform_along(const tile_job<T>& job) {
  T* const done = mine_.y.data();
  short_call<T> call = call_along(job, done);
  ahead_ = job.ahead;
  // Both computations of signals ask for the next ones.
  if (job.repeated) ahead_.spread(2 * groups_of(job));
  bool strikes = false;
  const auto strike = [&](inject::site where, std::int64_t step, T* data, std::int64_t scalars) {
    const std::int64_t of = where == site::stage ? job.along->stages() : where == site::twiddle ? job.along->twiddle_steps() : 1;
    how_.injector.strike(where, {job.interval, all_.tiles, step, of}, data, scalars);
  };
  core::vector<T> struck;
  if constexpr (inject::active_injector::enabled) {
    strikes = how_.injector.armed(site::twiddle) || how_.injector.armed(site::stage) || how_.injector.armed(site::intermediate);
    if (how_.injector.armed(site::input)) {
      const std::int64_t scalars = 2 * call.from.points;
      for (int l = 0; l < job.used; ++l) {
        const T* const signal = job.from.base + l * job.from.lane;
        struck.insert(struck.end(), signal, signal + scalars);
      }
      how_.injector.strike(site::input, position(job), struck.data(), job.used * scalars);
      call.from.base = struck.data();
      call.from.stride = scalars;
    }
  }
  job.along->run(call, strikes, strike);
  if (job.scale != 1) scale_along(job, done, job.scale);
  how_.injector.strike(site::output, position(job), done, job.used * call.to_stride);
  return done;
}

// Transforms again, with twins of all factors, and returns whether the results have the bits of `done`. The sums get the parities of both.
template <class T>
bool tile_worker<T>::repeats_along(const tile_job<T>& job, T* done, bool at_once) {
  if (at_once && job.check_scale == 1) return job.along->repeats(call_along(job, done), {mine_.output, mine_.input});
  T* const again = mine_.spare.data();
  job.along->repeat(call_along(job, again));
  if (job.check_scale != 1) scale_along(job, again, job.check_scale);
  return kernel_.same_bits(done, again, job.used * scalars_out(job), {mine_.output, mine_.input});
}

template <class T>
void tile_worker<T>::scale_along(const tile_job<T>& job, T* signals, double factor) {
  const std::int64_t row = 2 * kernel_.lanes;  // as rows of a tile, as many as the used signals fill
  kernel_.scale_rows(signals, (job.used * scalars_out(job) + row - 1) / row, static_cast<T>(factor));
}

template <class T>
T* tile_worker<T>::transform(const tile_job<T>& job, T* seals) {
  if (job.along != nullptr) return transform_along(job);
  strike_rows(how_.injector, site::input, position(job), mine_.x.data(), 2 * kernel_.lanes, job.transform->rows_in(), job.used,
              job.from.how == access::real ? 1 : 2);
  T* done = compute(job, mine_.x.data(), mine_.y.data(), seals);
  // Strike only what is stored: a fault elsewhere would not reach the output.
  strike_rows(how_.injector, site::output, position(job), done, 2 * kernel_.lanes, job.rows_stored, job.used,
              job.to.how == access::real ? 1 : 2);
  return done;
}

template <class T>
T* tile_worker<T>::compute(const tile_job<T>& job, T* x, T* y, T* seals) {
  const line<T>& transform = *job.transform;
  const auto strike = [&](inject::site where, std::int64_t step, T* data, std::int64_t scalars) {
    const std::int64_t row = 2 * kernel_.lanes;
    if (where == site::intermediate) {
      if (all_.waiting == 0) strike_rows(how_.injector, where, position(job), data, row, scalars / row, job.used);
    } else if (where == site::stage) {
      strike_rows(how_.injector, where, {job.interval, all_.tiles, step, std::max<std::int64_t>(1, transform.stages())}, data, row,
                  scalars / row, job.used);
    } else {
      how_.injector.strike(where, {job.interval, all_.tiles, step, transform.twiddle_steps() + (job.factors.far != nullptr ? 1 : 0)}, data,
                           scalars);
    }
  };
  const bool strikes_factors = how_.injector.armed(site::twiddle);
  row_factors<T> factors = job.factors;
  core::vector<T> struck;
  if (factors.far != nullptr && strikes_factors) {
    const std::int64_t row = 2 * kernel_.lanes, rows = far_rows(job);
    struck.assign(factors.far, factors.far + rows * row);
    // Skip row 0, whose factors are 1.
    strike_rows(how_.injector, site::twiddle, {job.interval, all_.tiles, transform.twiddle_steps(), transform.twiddle_steps() + 1},
                struck.data() + row, row, rows - 1, job.used);
    factors.far = struck.data();
  }
  T* done = nullptr;
  if (multiplies_at_last(job)) {
    // Blocks of the workspace, which wait for another pass and have seals, are verified and sealed there.
    done = transform.run_to(x, y, job.inverse, job.ahead, strike, strikes_factors, factors, job.to.base);
  } else {
    done = transform.run(x, y, job.inverse, job.ahead, strike, strikes_factors);
    if (factors.far != nullptr) {
      T* const to = job.to.how == access::blocks ? job.to.base : done;
      kernel_.twiddle_rows(done, to, transform.rows_out(), factors, false, job.inverse);
      done = to;
    } else if (seals != nullptr) {
      make_seals(job, done, seals);
    }
  }
  if (job.scale != 1) kernel_.scale_rows(done, transform.rows_out(), static_cast<T>(job.scale));
  return done;
}

// ---- Verification ----

// Computes thresholds from the norms of the lanes. If the sum of squares is out of range, computes the norm again with scaling.
template <class T>
void tile_worker<T>::set_thresholds(const tile_job<T>& job) {
  constexpr abft::squares_range range = abft::k_squares<T>;
  // A fault in the limits that are kept would fail every later tile.
  const bool sound = limits_.factor[0] == limits_.factor[1] && limits_.least[0] == limits_.least[1];
  if (job.transform != limited_ || job.check_scale != limited_scale_ || !sound) {
    limited_ = job.transform;
    limited_scale_ = job.check_scale;
    limits_ = job.transform->limits(rounded_scale(job));
  }
  any_special_ = false;
  if (kernel_.set_thresholds(mine_.input, job.used, limits_, range.low, range.high, mine_.verdicts)) return;
  if (job.along != nullptr) load_tile(job, mine_.x.data(), nullptr);
  for (int l = 0; l < job.used; ++l) {
    const double squares = mine_.input.squares[l];
    const double norm =
        squares > range.low && squares < range.high ? std::sqrt(squares) : careful_norm(mine_.x.data(), job.transform->rows_in(), l);
    special_[l] = !(norm < overflow_limit(job));
    any_special_ = any_special_ || special_[l];
    mine_.verdicts.value[l] = limits_.factor[0] * norm + limits_.least[0];
    mine_.verdicts.twin[l] = limits_.factor[1] * norm + limits_.least[1];
  }
}

template <class T>
abft::finding tile_worker<T>::verify(const tile_job<T>& job, T* done) {
  if (job.repeated) return compare(job, done);
  const line<T>& transform = *job.transform;
  if (job.along != nullptr) {
    kernel_.sum_signals(signals(job, done), job.along->output_weights(job.inverse), mine_.output);
    return judge(job, done);
  }
  // The sums remove the twiddle factors again, so that this product is verified together with the transform.
  output_sum<T> sum = transform.output_weights(job.inverse, &mine_.output);
  sum.factors = job.check;
  if (job.factors.far != nullptr && job.to.seals != nullptr) {
    sum.seals = mine_.seals.data();
    sum.used = job.used;
    sum.first_sealed = job.to.first_sealed;
  }
  kernel_.sum_outputs(done, transform.rows_out(), sum);
  return judge(job, done);
}

// Compares the two computations of signals. Any NaN equals any NaN.
template <class T>
abft::finding tile_worker<T>::compare(const tile_job<T>& job, T* done) {
  const T* const again = mine_.spare.data();
  const std::int64_t each = scalars_out(job), all = job.used * each;
  const bool same = repeats_along(job, done, true);
  if (!same) repeats_along(job, done, false);  // tells where
  how_.injector.strike(site::checksum, position(job), mine_.output.parity, std::ssize(mine_.output.parity));
  // Only one value says that they are the same.
  std::uint64_t words[2] = {same ? k_lane_pass : ~k_lane_pass, same ? k_lane_pass : ~k_lane_pass};
  how_.injector.strike(site::comparison, position(job), words, 2);
  checks_ += static_cast<std::uint64_t>(job.used);
  abft::finding now;
  if (words[0] == k_lane_pass && words[1] == k_lane_pass) return now;
  now.index = job.index;
  const auto equal = [&](std::int64_t i) {
    return std::bit_cast<word_of<T>>(done[i]) == std::bit_cast<word_of<T>>(again[i]) || (std::isnan(done[i]) && std::isnan(again[i]));
  };
  std::int64_t i = 0;
  if (same) repeats_along(job, done, false);
  while (i < all && equal(i)) ++i;
  // NaN of different bits are no fault. Without them the second computation or the comparison was struck.
  if (i == all && std::any_of(done, done + all, [](T x) { return std::isnan(x); }) && !same) return now;
  now.word = abft::k_fail;
  if (i == all) return now;
  now.index = job.index + i / each * job.index_lane;
  now.residual = std::abs(static_cast<double>(done[i]) - static_cast<double>(again[i]));
  if (now.residual == 0) now.residual = std::numeric_limits<double>::min();  // zeros of different signs
  return now;
}

// Returns whether a tile of signals that were computed twice still has its parity, by one of its two copies. Both copies become what it
// has.
template <class T>
bool tile_worker<T>::has_parity(const tile_job<T>& job, const T* done) {
  const std::uint64_t first = parity_of(mine_.output), second = parity_of(mine_.input);
  kernel_.same_bits(done, done, job.used * scalars_out(job), {mine_.output, mine_.input});
  const std::uint64_t now = parity_of(mine_.output);
  return now == first || now == second;
}

// Compares the sums of a tile.
template <class T>
abft::finding tile_worker<T>::judge(const tile_job<T>& job, const T* done) {
  lane_verdicts& lanes = mine_.verdicts;
  strike_lanes(site::threshold, job, lanes.value, lanes.twin);
  kernel_.compare(mine_.input, mine_.output, rounded_scale(job), lanes);
  if (any_special_) judge_special_lanes(job, done);
  strike_lanes(site::comparison, job, lanes.word[0], lanes.word[1]);
  checks_ += static_cast<std::uint64_t>(k_vectors * job.used);
  abft::finding now;
  std::uint64_t wrong = 0;
  for (int l = 0; l < job.used; ++l) wrong |= (lanes.word[0][l] ^ k_lane_pass) | (lanes.word[1][l] ^ k_lane_pass);
  if (wrong == 0) return now;
  // Report a lane that fails; otherwise one that must repeat with the same bits.
  const auto passes = [&](int v, int l) { return lanes.word[v][l] == k_lane_pass || lanes.word[v][l] == k_lane_repeat; };
  int l = 0, v = 0;
  const auto find = [&](auto&& found) {
    for (l = 0; l < job.used; ++l) {
      for (v = 0; v < k_vectors; ++v) {
        if (found()) return true;
      }
    }
    return false;
  };
  if (find([&] { return !passes(v, l); })) {
    now.word = abft::k_fail;
    now.threshold = lanes.value[l];
  } else {
    find([&] { return lanes.word[v][l] == k_lane_repeat; });
    now.judged = false;
    now.threshold = lanes.value[l] * k_repeat_share;
  }
  now.index = job.index + l * job.index_lane;
  now.residual = lanes.size[v][l];
  return now;
}

template <class T>
std::uint64_t tile_worker<T>::hash(const tile_job<T>& job, const T* done) const {
  abft::result_hash made;
  if (job.along != nullptr) {
    for (std::int64_t i = 0; i < scalars_out(job) * job.used; ++i) made.add(done[i]);
    return made.bits();
  }
  for (std::int64_t j = 0; j < 2 * job.transform->rows_out(); ++j) {
    for (int l = 0; l < job.used; ++l) made.add(done[j * kernel_.lanes + l]);
  }
  return made.bits();
}

// ---- Lanes whose numbers the vector code cannot sum ----

template <class T>
double tile_worker<T>::careful_norm(const T* x, std::int64_t rows, int l) const {
  const std::int64_t half = kernel_.lanes;
  T largest = 0;
  for (std::int64_t j = 0; j < 2 * rows; ++j) {
    const T size = std::abs(x[j * half + l]);
    if (!(size <= largest)) largest = size;
    if (std::isnan(size)) return std::numeric_limits<double>::infinity();
  }
  if (largest == 0 || !std::isfinite(largest)) return static_cast<double>(largest);
  double squares = 0;
  for (std::int64_t j = 0; j < 2 * rows; ++j) {
    const double part = static_cast<double>(x[j * half + l]) / static_cast<double>(largest);
    squares += part * part;
  }
  return std::sqrt(squares) * static_cast<double>(largest);
}

template <class T>
bool tile_worker<T>::is_finite(const T* tile, std::int64_t rows, int l) const {
  for (std::int64_t j = 0; j < 2 * rows; ++j) {
    if (!std::isfinite(tile[j * kernel_.lanes + l])) return false;
  }
  return true;
}

template <class T>
typename tile_worker<T>::wide_sums tile_worker<T>::wide_sum(const T* tile, int l, const encoder<T>& encode, std::int64_t rows) const {
  using W = wide<T>;
  wide_sums total = {};
  for (std::int64_t j = 0; j < rows; ++j) {
    const W re = tile[j * 2 * kernel_.lanes + l];
    const W im = tile[j * 2 * kernel_.lanes + kernel_.lanes + l];
    for (int v = 0; v < k_vectors; ++v) {
      const T* w = encode.weights + (encode.general ? 8 * j + 4 * v : 4 * j + 2 * v);
      total[static_cast<std::size_t>(v)] += encode.general ? std::complex<W>(W(w[0]) * re + W(w[2]) * im, W(w[1]) * re + W(w[3]) * im)
                                                           : multiply(std::complex<W>(re, im), std::complex<W>(w[0], w[1]));
    }
  }
  return total;
}

template <class T>
typename tile_worker<T>::wide_sums tile_worker<T>::wide_sum(const T* tile, int l, const output_sum<T>& of, std::int64_t rows) const {
  using W = wide<T>;
  std::complex<W> half[2] = {};
  for (std::int64_t j = 0; j < rows; ++j) {
    const W re = tile[j * 2 * kernel_.lanes + l];
    const W im = tile[j * 2 * kernel_.lanes + kernel_.lanes + l];
    const T* w = of.weights + (of.general ? 4 : 2) * j;
    half[j < second_half(rows) ? 0 : 1] += of.general ? std::complex<W>(W(w[0]) * re + W(w[2]) * im, W(w[1]) * re + W(w[3]) * im)
                                                      : multiply(std::complex<W>(re, im), std::complex<W>(w[0], w[1]));
  }
  return {half[0] + half[1], half[0] - half[1]};
}

// Overwrites the verdict words of the special lanes.
template <class T>
void tile_worker<T>::judge_special_lanes(const tile_job<T>& job, const T* done) {
  // Read the input again: the transform has overwritten it, and a fault in the tile must not pass as special data.
  T* again = mine_.spare.data();
  load_tile(job, again, nullptr);
  const T* judged = done;
  if (job.along != nullptr) {
    kernel_.load_rows(done, scalars_out(job), job.used, scalars_out(job), mine_.x.data(), encoder<T>{.parity = false});
    judged = mine_.x.data();
  }
  if (job.check.far != nullptr) {
    T* other = done == mine_.x.data() ? mine_.y.data() : mine_.x.data();
    kernel_.twiddle_rows(done, other, job.transform->rows_out(), job.check, true, job.inverse);
    judged = other;
  }
  lane_verdicts& lanes = mine_.verdicts;
  for (int l = 0; l < job.used; ++l) {
    if (!special_[l]) continue;
    const lane_judgement seen = judge_special(job, again, judged, l);
    lanes.word[0][l] = lanes.word[1][l] = seen == lane_judgement::fail     ? ~k_lane_pass
                                          : seen == lane_judgement::repeat ? k_lane_repeat
                                                                           : k_lane_pass;
  }
}

// Sums finite numbers near overflow in a wider range. No checksum can judge Inf and NaN that belong to the data.
template <class T>
typename tile_worker<T>::lane_judgement tile_worker<T>::judge_special(const tile_job<T>& job, const T* again, const T* judged,
                                                                      int l) const {
  const line<T>& transform = *job.transform;
  if (!is_finite(again, transform.rows_in(), l)) return lane_judgement::repeat;
  const double norm = careful_norm(again, transform.rows_in(), l);
  // Data can cause an overflow only if they are large.
  if (!is_finite(judged, transform.rows_out(), l)) return norm > overflow_limit(job) ? lane_judgement::repeat : lane_judgement::fail;
  const double scale = rounded_scale(job);
  const double tau = thresholds::residual<T>(transform.points(), norm, k_kappa * transform.sensitivity()) * scale +
                     thresholds::output_underflow<T>(transform.points());
  lane_judgement found = lane_judgement::pass;
  const wide_sums output = wide_sum(judged, l, transform.output_weights(job.inverse, nullptr), transform.rows_out());
  const wide_sums input = wide_sum(again, l, transform.input_weights(job.inverse, nullptr), transform.rows_encoded());
  for (std::size_t v = 0; v < output.size(); ++v) {
    const double size = static_cast<double>(std::abs(output[v] - input[v] * static_cast<wide<T>>(scale)));
    if (!(size <= tau)) return lane_judgement::fail;
    if (!(size <= tau * k_repeat_share)) found = lane_judgement::repeat;
  }
  return found;
}

// ---- Injection into the check ----

template <class T>
void tile_worker<T>::strike_sums(const tile_job<T>& job) {
  if constexpr (inject::active_injector::enabled) {
    double compact[4 * k_max_lanes];
    for (int i = 0; i < 4; ++i) std::copy_n(mine_.input.high[i], job.used, compact + i * job.used);
    if (!how_.injector.strike(site::checksum, position(job), compact, 4 * job.used)) return;
    for (int i = 0; i < 4; ++i) std::copy_n(compact + i * job.used, job.used, mine_.input.high[i]);
  }
}

// Strikes the used lanes of two arrays as if they were one.
template <class T>
template <class U>
void tile_worker<T>::strike_lanes(inject::site where, const tile_job<T>& job, U* first, U* second) {
  if constexpr (inject::active_injector::enabled) {
    U compact[2 * k_max_lanes];
    std::copy_n(first, job.used, compact);
    std::copy_n(second, job.used, compact + job.used);
    if (!how_.injector.strike(where, position(job), compact, 2 * job.used)) return;
    std::copy_n(compact, job.used, first);
    std::copy_n(compact + job.used, job.used, second);
  }
}

template class tile_worker<float>;
template class tile_worker<double>;

}  // namespace ballast::fft::cpu
