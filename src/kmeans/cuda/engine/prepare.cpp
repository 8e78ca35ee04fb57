// The first read of the points: column statistics, normalization, row statistics, and sums over all points.
// Layer: backend "cuda" of K-Means (engine.hpp).
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "core/counter_rng.hpp"
#include "kmeans/cuda/engine/engine.hpp"
#include "kmeans/cuda/engine/engine_memory.hpp"
#include "kmeans/cuda/layout/fixed.hpp"
#include "kmeans/thresholds.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::cuda {

namespace {

constexpr std::uint64_t k_direction_seed = 0x646972656374;

// Returns whether neighbouring rows are closer in memory than neighbouring features.
template <class T>
bool by_rows(const given_points<T>& from) {
  return std::abs(from.row_stride) < std::abs(from.column_stride);
}

// Returns the largest power of two that keeps values up to `largest` within 2^k_word_bits.
template <class T>
T unit_for(double largest) {
  if (!(largest > 0) || !std::isfinite(largest)) return 1;
  int exponent = 0;
  (void)std::frexp(largest, &exponent);  // largest ≤ 2^exponent
  return std::ldexp(T(1), std::min(k_word_bits - exponent, std::numeric_limits<T>::max_exponent - 2));
}

}  // namespace

template <class T>
core::vector<column_ranges<T>> cuda_engine<T>::sum_ranges(const given_points<T>& from, std::int64_t columns, buffer& parts) {
  column_shape whole = column_shape_of(all_, static_cast<int>(columns));
  whole.strips = static_cast<int>((m_ + whole.strip_rows - 1) / whole.strip_rows);  // those of this device
  const std::int64_t bytes = static_cast<std::int64_t>(sizeof(column_ranges<T>)) * columns;
  parts = allocate(bytes * whole.strips);
  const buffer sums = allocate(bytes);
  const auto add = [&](std::int64_t first, const given_points<T>& rows) {
    range_arguments<T> given;
    given.given = rows;
    given.shape = whole;
    given.shape.m = rows.m;
    given.shape.strips = static_cast<int>((rows.m + whole.strip_rows - 1) / whole.strip_rows);
    given.rows_first = by_rows(rows);
    given.parts = static_cast<column_ranges<T>*>(parts.data()) + first / whole.strip_rows * columns;
    if (&from == &points_.given) return launch_given(k_ranges_kernel, names::ranges, given.shape.blocks(), given);
    launch(
        k_ranges_kernel, [](bool instrumented) { return names::ranges(false, instrumented); }, given.shape.blocks(), given);
  };
  if (&from == &points_.given) {
    each(part::given, [&](const point_piece<T>& piece) { add(piece.first, piece.given); });
  } else {
    add(0, from);
  }
  launch(k_fold_ranges_kernel, names::fold_ranges, columns, fold_arguments{parts.data(), sums.data(), whole.strips, whole.columns, false});
  return download<column_ranges<T>>(sums, columns);
}

// The driver verifies these column statistics, except the exponents, by sums that are measured later, from other loads.
template <class T>
ranges<T> cuda_engine<T>::column_stats() {
  using sums = column_ranges<T>;
  ranges<T> made;
  made.zero_row = statistics_.zero_row;
  if (made.zero_row >= 0) return made;
  buffer parts;
  // Finds the lowest row of a column that has an invalid value.
  const auto find = [&](const given_points<T>& values, std::int64_t column, bool weights) {
    clear_flags();
    const std::int64_t blocks = std::min<std::int64_t>((m_ + k_column_threads - 1) / k_column_threads, 1024);
    const find_arguments<T> given{values, static_cast<int>(column), weights, flags()};
    if (weights) {
      launch(
          k_find_kernel, [] { return names::find(false); }, blocks, given);
    } else {
      launch_given(k_find_kernel, names::find, blocks, given);
    }
    refused_value<T> refused;
    refused.row = read_flags().index;
    refused.column = column;
    if (refused.row < 0) return refused;
    const std::int64_t at = refused.row * values.row_stride + column * values.column_stride;
    if (weights || !half()) {
      download(&refused.value, static_cast<const T*>(values.points) + at, sizeof(T));
    } else {
      std::uint16_t bits = 0;
      download(&bits, static_cast<const std::uint16_t*>(values.points) + at, sizeof bits);
      refused.value = static_cast<T>(values.brain ? widened(bfloat16{bits}) : widened(float16{bits}));
    }
    return refused;
  };
  if (weighted()) {
    given_points<T> column = points_.given;
    column.points = points_.given.weights;
    column.row_stride = 1;
    column.column_stride = m_;
    column.n = 1;
    const sums seen = sum_ranges(column, 1, parts)[0];
    made.heaviest = seen.high;
    if (!(seen.low >= 0) || !(seen.poison == 0)) made.weight = find(column, 0, true);
  }
  core::vector<sums> seen;
  const auto sum = [&] { seen = sum_ranges(points_.given, n_, parts); };
  if (!protect_) {
    sum();
  } else {
    run::attempt(what_.seen, what_.how.protection, "kmeans.range", 0, [&](int) {
      sum();
      what_.seen.checked(at(n_));
      const auto differs = std::find_if(seen.begin(), seen.end(), [&](const sums& each) { return !each.agree(m_); });
      abft::finding found;
      if (differs != seen.end()) {
        found.word = abft::k_fail;
        found.residual = std::numeric_limits<double>::quiet_NaN();
        found.index = differs - seen.begin();
      }
      return found;
    });
  }
  if (ranks_) seen = join_ranges(parts, n_);
  statistics_.exponents.clear();
  for (std::int64_t f = 0; f < n_; ++f) {
    const sums& each = seen[at(f)];
    made.low.push_back(static_cast<double>(each.low));
    made.high.push_back(static_cast<double>(each.high));
    made.sum.push_back(each.sum);
    const double bias = std::numeric_limits<T>::max_exponent - 1;
    made.exponent.push_back(each.others == 0 ? 0 : static_cast<double>(each.exponents) / static_cast<double>(each.others) - bias);
    statistics_.exponents.push_back(made.exponent.back());
    if (each.poison == 0 || made.point.row >= 0) continue;
    if (points_.given.points != nullptr) {
      made.point = find(points_.given, f, false);
      continue;
    }
    for (std::int64_t i = 0; i < m_ && made.point.row < 0; ++i)
      if (const T value = point_at(i, f); !std::isfinite(value)) made.point = {i, f, value};
  }
  if (ranks_) join_refused(made);
  statistics_.low = made.low;
  statistics_.high = made.high;
  statistics_.heaviest = static_cast<double>(made.heaviest);
  return made;
}

// Normalizes the points and weights of a piece.
template <class T>
void cuda_engine<T>::normalize_piece(const point_piece<T>& piece) {
  normalize_arguments<T> given;
  given.given = piece.given;
  given.x = const_cast<T*>(piece.normalized.x);
  given.operand = const_cast<operand_of<T>*>(piece.normalized.operand);
  given.weight = const_cast<T*>(piece.normalized.weight);
  given.stride = points_.normalized.stride;
  given.lanes = std::min(points_.normalized.stride & -points_.normalized.stride, 32);
  given.rows_first = by_rows(piece.given);
  const std::int64_t rows = k_row_threads * k_normalize_elements / given.lanes;
  launch_given(k_normalize_kernel, names::normalize, (piece.given.m + rows - 1) / rows * (points_.normalized.stride / given.lanes), given);
}

template <class T>
void cuda_engine<T>::normalize_rows() {
  // Pieces that do not stay on the device are normalized each time they are used.
  if (point_stream_.kept() == kept_points::none) return;
  each(part::given, [&](const point_piece<T>& piece) { normalize_piece(piece); });
}

// A piece that is copied again is verified by its row statistics, which were computed from an earlier copy.
template <class T>
void cuda_engine<T>::each(part wanted, core::function_ref<void(const point_piece<T>&)> use) {
  constexpr int flag = 3;
  const bool checks = protect_ && points_.known;
  std::optional<abft::attempts> state;
  const auto start = [&](const point_piece<T>& piece) {
    normalize_piece(piece);
    if (!checks) return;
    if (!state) state.emplace(run::repeats_of(what_.how.protection));
    device_->zero(flags() + flag, sizeof(row_flags), call_.order());
    row_stats_arguments<T> given = row_stats_of(piece);
    given.flags = flags() + flag;
    given.known = true;
    launch_row_stats(piece.normalized.m, given, false);
    what_.seen.checked(at(piece.normalized.m));
  };
  const auto arrived = [&] {
    if (!checks) return true;
    const abft::outcome how = state->judge(read_flags(flag));
    if (how == abft::outcome::open) return false;
    what_.seen.settled("kmeans.points", how, *state, 0);
    state.reset();
    return true;
  };
  point_stream_.each(wanted, points_.given, points_.normalized, start, arrived, use);
}

// Reads a number of points in host memory, each time again.
template <class T>
T cuda_engine<T>::point_at(std::int64_t row, std::int64_t f) const {
  if (half()) return static_cast<T>(what_.half.at(row, f));
  const volatile T& point = what_.points(row, f);
  return point;
}

// Returns a bound on |y| for each column (column_sums) from the ranges: without weights it is the largest |y|, since normalization is
// monotone. 1 if there are no ranges: the candidates of k-means‖ are normalized already.
template <class T>
core::vector<double> cuda_engine<T>::reach_of_columns() const {
  if (statistics_.low.empty()) return core::vector<double>(at(columns()), 1.0);
  const normalization<T>& chosen = normalization_.values();
  const double heaviest = weighted() ? statistics_.heaviest * static_cast<double>(chosen.weight_scale) : 1;
  core::vector<double> made;
  for (std::int64_t f = 0; f < n_; ++f) {
    const auto size = [&](double point) {
      const T scaled = static_cast<T>(point) * chosen.scale, x = scaled - chosen.shift[at(f)];
      return std::abs(static_cast<double>(x));
    };
    made.push_back(std::max(size(statistics_.low[at(f)]), size(statistics_.high[at(f)])) * heaviest);
  }
  if (weighted()) made.push_back(heaviest);
  return made;
}

// Chooses the unit of each column, the largest power of two that keeps its values within 2^k_word_bits.
template <class T>
void cuda_engine<T>::choose_units(const core::vector<double>& reach) {
  statistics_.units.clear();
  for (const double each : reach) statistics_.units.push_back(unit_for<T>(each));
  statistics_.units.resize(at(points_.normalized.stride) + 1, T(1));
  points_.unit = upload(statistics_.units);
  points_.normalized.unit = static_cast<const T*>(points_.unit.data());
}

// Returns whether the row statistics have to be computed again for the largest |y| that they found, which `reach` then has: with other
// units, since `reach` was a bound for weighted points or a fault struck the ranges; or with two words per sum.
template <class T>
bool cuda_engine<T>::measured_otherwise(core::vector<double>& reach) {
  bool changed = false, wide = false;
  for (std::size_t c = 0; c < reach.size(); ++c) {
    const column_sums& seen = statistics_.sums[c];
    changed = changed || unit_for<T>(seen.largest) != statistics_.units[c];
    reach[c] = seen.largest;
    wide = wide || seen.largest > std::ldexp(seen.size / static_cast<double>(all_), k_wide_ratio);
  }
  if (changed && protect_ && !weighted() && !statistics_.low.empty())
    what_.seen.detected("kmeans.range", -1, std::numeric_limits<double>::quiet_NaN(), 0,
                        repairs() ? action::recomputed : action::uncorrectable, 0);
  if (!wide || points_.normalized.words == 2) return changed;
  points_.normalized.words = 2;
  return true;
}

// Chooses whether the host sums.
template <class T>
void cuda_engine<T>::choose_sums() {
  host_.sums = false;
  host_.rows.clear();
  for (std::size_t f = 0; f < statistics_.exponents.size(); ++f) {
    const double typical = std::exp2(statistics_.exponents[f]) * static_cast<double>(normalization_.values().scale);
    const double heaviest = weighted() ? statistics_.sums[at(n_)].largest : 1;
    host_.sums = host_.sums || statistics_.sums[f].largest > std::ldexp(typical * heaviest, k_host_ratio<T>);
  }
}

template <class T>
row_stats_arguments<T> cuda_engine<T>::row_stats_of(const point_piece<T>& piece) {
  row_stats_arguments<T> made;
  made.given = piece.given;
  made.normalized = piece.normalized;
  made.norm = const_cast<T*>(piece.normalized.norm);
  made.rounding = const_cast<T*>(piece.normalized.rounding);
  made.projection = const_cast<T*>(piece.normalized.projection);
  made.signature = const_cast<std::uint64_t*>(piece.normalized.signature);
  made.squares = nullptr;
  made.columns = made.columns_again = nullptr;
  made.flags = flags();
  made.check = protect_;
  made.rows_first = by_rows(piece.given);
  return made;
}

template <class T>
void cuda_engine<T>::launch_row_stats(std::int64_t rows, const row_stats_arguments<T>& given, bool strike) {
  launch(
      k_row_stats_kernel + points_.normalized.words - 1 + (half() ? 2 : 0),
      [&](bool instrumented) { return names::row_stats(points_.normalized.words, half(), instrumented); },
      (rows + k_row_threads - 1) / k_row_threads, given, strike);
}

// Computes norm, rounding, projection and signature of each row, and the sums of the columns, from the given points; with protection, again
// from the stored x. If x does not stay on the device, both came from the same copy, so a second copy is compared as well. The sums of
// blocks are added twice. Returns the finding.
template <class T>
abft::finding cuda_engine<T>::make_row_stats() {
  const std::int64_t blocks = (m_ + k_row_threads - 1) / k_row_threads, bytes = columns() * static_cast<std::int64_t>(sizeof(column_sums));
  const std::int64_t times = protect_ ? 2 : 1;
  // One sum for each segment, so that those of a group can be added in the order of rows; without a group there is one segment.
  const std::int64_t in_segment = ranks_ ? rows_of_segment(all_) / k_row_threads : blocks, segments = this->segments();
  const buffer parts = allocate(core::checked_product(times * blocks, bytes));
  auto* const sums = reinterpret_cast<column_sums*>(room());
  auto* const squares = reinterpret_cast<block_squares*>(sums + times * segments * columns());
  column_sums* const columns_again = static_cast<column_sums*>(parts.data()) + blocks * columns();
  points_.known = false;
  clear_flags();
  const auto add = [&](const point_piece<T>& piece, bool known) {
    const std::int64_t block = piece.first / k_row_threads;
    row_stats_arguments<T> given = row_stats_of(piece);
    given.squares = squares + block;
    given.columns = static_cast<column_sums*>(parts.data()) + block * columns();
    given.columns_again = protect_ ? columns_again + block * columns() : nullptr;
    given.known = known;
    launch_row_stats(piece.given.m, given, true);
  };
  each(part::both, [&](const point_piece<T>& piece) { add(piece, false); });
  if (protect_ && point_stream_.kept() == kept_points::none) each(part::normalized, [&](const point_piece<T>& piece) { add(piece, true); });
  points_.known = true;
  core::vector<column_sums> both(at(2 * segments * columns()));
  for (const bool again : {false, true}) {
    const column_sums* const from = again ? columns_again : static_cast<const column_sums*>(parts.data());
    column_sums* const to = sums + (again ? segments * columns() : 0);
    for (std::int64_t s = 0; s < segments && (protect_ || !again); ++s) {
      const auto count = static_cast<int>(std::min(in_segment, blocks - s * in_segment));
      launch(k_fold_sums_kernel, names::fold_sums, columns(),
             fold_arguments{from + s * in_segment * columns(), to + s * columns(), count, static_cast<int>(columns()), again});
    }
  }
  statistics_.own_squares.resize(at(blocks));
  row_flags seen{};
  const reading results[] = {{statistics_.own_squares.data(), squares, blocks * static_cast<std::int64_t>(sizeof(block_squares))},
                             {both.data(), sums, times * segments * bytes},
                             {&seen, flags(), sizeof seen}};
  read(results);
  abft::finding found = finding_of(seen);
  const auto middle = both.begin() + static_cast<std::ptrdiff_t>(segments * columns());
  using words = std::array<std::uint64_t, sizeof(column_sums) / sizeof(std::uint64_t)>;
  const auto differ = [](const column_sums& a, const column_sums& b) { return std::bit_cast<words>(a) != std::bit_cast<words>(b); };
  if (protect_ && found.word == abft::k_pass && !std::equal(both.begin(), middle, middle, std::not_fn(differ))) {
    found.word = abft::k_fail;
    found.residual = std::numeric_limits<double>::quiet_NaN();
  }
  both.resize(at(segments * columns()));
  statistics_.segments = std::move(both);
  return found;
}

// Computes them until both computations agree.
template <class T>
void cuda_engine<T>::verify_own_row_stats() {
  if (!protect_) {
    (void)make_row_stats();
    return;
  }
  run::attempt(what_.seen, what_.how.protection, "kmeans.points", 0, [&](int number) {
    if (number > 0) normalize_rows();
    what_.seen.checked(at(m_ + columns()));
    return make_row_stats();
  });
}

// The same for all points of the call.
template <class T>
void cuda_engine<T>::verify_row_stats() {
  verify_own_row_stats();
  if (ranks_) return join_row_stats();
  statistics_.sums = statistics_.segments;
  statistics_.squares = statistics_.own_squares;
}

// Sends the shift to the device, twice if the points are used as they are given, each time from a copy of its own. After feature n it is 0.
template <class T>
void cuda_engine<T>::send_shift() {
  const auto send = [&](buffer& to) {
    core::vector<T> shift = normalization_.values().shift;
    shift.resize(at(padded_features<T>(n_)), T(0));
    const auto bytes = static_cast<std::int64_t>(shift.size() * sizeof(T));
    if (to.bytes() == 0) to = allocate(bytes);
    device_->copy(to.data(), shift.data(), bytes, call_.order());
  };
  send(points_.shift);
  if (serves_) send(points_.shift_again);
  points_.given.shift = static_cast<const T*>(points_.shift.data());
}

template <class T>
void cuda_engine<T>::normalize(const normalization<T>& chosen) {
  normalization_ = sealed<normalization<T>>(chosen);
  lloyd_.reset();
  bare_lloyd_.reset();
  const auto size = static_cast<std::int64_t>(sizeof(T));
  send_shift();
  points_.given.scale = chosen.scale;
  points_.given.weight_scale = chosen.weight_scale;
  points_.normalized.m = m_;
  points_.normalized.first = first_;
  points_.normalized.n = static_cast<int>(n_);
  points_.normalized.stride = static_cast<int>(padded_features<T>(n_));
  points_.normalized.columns = static_cast<int>(columns());
  if (serves_) return;
  // Rows after the last point are 0.
  const auto rows = [&](buffer& made, std::int64_t bytes) {
    const std::int64_t all = core::checked_product(padded_rows(m_), bytes);
    if (made.bytes() != all) made = allocate(all);  // reuses the memory if the call normalizes again: there may be no room for both
    const std::int64_t first = whole_block_rows(m_);
    device_->zero(static_cast<unsigned char*>(made.data()) + first * bytes, (padded_rows(m_) - first) * bytes, call_.order());
  };
  points_.known = false;
  if (point_stream_.kept() != kept_points::none) {
    rows(points_.x, points_.normalized.stride * size);
    if constexpr (sizeof(T) == 4) rows(points_.operand, points_.normalized.stride * operand_bytes<T>);
  }
  points_.normalized.x = static_cast<const T*>(points_.x.data());
  points_.normalized.operand = static_cast<const operand_of<T>*>(points_.operand.data());
  if (weighted()) rows(points_.weight, size);
  points_.normalized.weight = static_cast<const T*>(points_.weight.data());
  rows(points_.norm, size);
  rows(points_.rounding, size);
  rows(points_.projection, size);
  rows(points_.signature, 8);
  points_.normalized.norm = static_cast<const T*>(points_.norm.data());
  points_.normalized.rounding = static_cast<const T*>(points_.rounding.data());
  points_.normalized.projection = static_cast<const T*>(points_.projection.data());
  points_.normalized.signature = static_cast<const std::uint64_t*>(points_.signature.data());
  core::vector<T> direction(at(points_.normalized.stride), T(0));
  for (std::int64_t f = 0; f < n_; ++f) {
    const std::uint64_t bits = core::random_bits(k_direction_seed, 3, static_cast<std::uint64_t>(f));
    direction[at(f)] = (1 + static_cast<T>(bits % 256) / 256) * ((bits >> 8) % 2 == 0 ? T(1) : T(-1));
  }
  points_.direction = upload(direction);
  points_.normalized.direction = static_cast<const T*>(points_.direction.data());

  points_.normalized.words = sizeof(T) == 8 ? 2 : 1;
  normalize_rows();
  core::vector<double> reach = reach_of_columns();
  constexpr int most = 3;  // only without protection a fault can change the sums each time
  for (int number = 0; number < most; ++number) {
    choose_units(reach);
    verify_row_stats();
    if (!measured_otherwise(reach)) break;
  }
  choose_sums();
  statistics_.unread = true;
}

template <class T>
point_sums cuda_engine<T>::measure() {
  if (serves_) return measure_as_given();
  if (!std::exchange(statistics_.unread, false)) verify_row_stats();
  point_sums made;
  made.clear(n_, weighted());
  const auto gather = [&] {
    for (std::int64_t f = 0; f < n_; ++f) made.squares[at(f)] = statistics_.sums[at(f)].squares;
    made.total_square = made.weighted_square = made.largest_square = 0;
    for (const block_squares& each : statistics_.squares) {
      made.total_square += each.square;
      made.weighted_square += each.weighted;
      if (!std::isnan(made.largest_square) && !(each.largest <= made.largest_square)) made.largest_square = each.largest;
    }
  };
  gather();
  if (protect_) {
    run::attempt(what_.seen, what_.how.protection, "kmeans.variance", 0, [&](int number) {
      if (number > 0) {
        verify_row_stats();
        gather();
      }
      const double by_features = std::accumulate(made.squares.begin(), made.squares.end(), 0.0);
      abft::finding found;
      found.residual = by_features - made.total_square;
      // Squares may underflow if the normalization was chosen for centroids that are far away.
      found.threshold = thresholds::square(static_cast<double>(all_), static_cast<double>(n_)) * made.total_square +
                        static_cast<double>(all_) * static_cast<double>(n_) * std::numeric_limits<double>::denorm_min();
      // If squares overflow, the normalization is wrong; the driver detects that.
      if (std::isfinite(by_features) || std::isfinite(made.total_square))
        found.word = abft::verify(found.residual, abft::guarded_threshold(found.threshold));
      what_.seen.checked(1);
      return ranks_ ? ranks_.agreed(found) : found;
    });
  }
  const auto value = [&](std::int64_t c) {
    double sum = 0;
    for (int w = points_.normalized.words; w-- > 0;)
      sum += static_cast<double>(static_cast<std::int64_t>(statistics_.sums[at(c)].word[w])) * word_value(w);
    return sum / static_cast<double>(statistics_.units[at(c)]);
  };
  for (std::int64_t f = 0; f < n_; ++f) {
    made.first[at(f)] = value(f);
    if (weighted()) made.plain[at(f)] = statistics_.sums[at(f)].plain;
  }
  made.count = static_cast<double>(all_);
  made.weight = weighted() ? value(n_) : made.count;
  made.members = weighted() ? static_cast<double>(statistics_.sums[at(n_)].positive) : made.count;
  core::vector<std::uint64_t> expected;
  for (int w = 0; w < points_.normalized.words; ++w)
    for (const column_sums& each : statistics_.sums) expected.push_back(each.word[w]);
  points_.expected = upload(expected);
  lloyd_.reset();
  bare_lloyd_.reset();
  if (ranks_) joined_.sums = made;
  return made;
}

template <class T>
void cuda_engine<T>::read_points(std::span<const std::int64_t> rows, T* to) {
  if (ranks_) return read_joined_points(rows, to);
  read_own_points(rows, to);
}

// The same for rows of this device, by their numbers here.
template <class T>
void cuda_engine<T>::read_own_points(std::span<const std::int64_t> rows, T* to) {
  const auto count = static_cast<std::int64_t>(rows.size());
  if (count == 0) return;
  // Read by the host if it has the points and they pass through the device: a device copy could only be compared with itself.
  const auto by_host = [&](T* into) {
    for (std::int64_t e = 0; e < count; ++e)
      for (std::int64_t f = 0; f < n_; ++f) {
        into[e * n_ + f] = point_at(rows[at(e)], f) * normalization_.values().scale - normalization_.values().shift[at(f)];
      }
  };
  const bool stays = points_.given.points != nullptr, gathers = stays || points_.normalized.x != nullptr;
  const std::int64_t bytes = count * n_ * static_cast<std::int64_t>(sizeof(T));
  const buffer list = upload(core::vector<std::int64_t>(rows.begin(), rows.end()));
  const buffer made = allocate(bytes), again = allocate(stays ? bytes : 0);
  const gather_arguments<T> given{points_.given,
                                  points_.normalized.x,
                                  static_cast<const std::int64_t*>(list.data()),
                                  static_cast<T*>(made.data()),
                                  static_cast<T*>(again.data()),
                                  count,
                                  points_.normalized.stride};
  const std::int64_t blocks = (count * n_ + k_row_threads - 1) / k_row_threads;
  core::vector<T> twin(protect_ ? at(count * n_) : 0);
  const auto once = [&] {
    if (!gathers) return by_host(to);
    const bool both = protect_ && stays;
    launch_given(k_gather_kernel, names::gather, both ? 2 * blocks : blocks, given);
    const reading parts[] = {{to, made.data(), bytes}, {twin.data(), again.data(), bytes}};
    read(std::span(parts, both ? 2 : 1));
  };
  if (!protect_) return once();
  run::attempt(what_.seen, what_.how.protection, "kmeans.points", 0, [&](int) {
    once();
    if (!stays) by_host(twin.data());
    what_.seen.checked(at(count));
    abft::finding found;
    for (std::int64_t e = 0; e < count; ++e) {
      if (std::equal(to + e * n_, to + (e + 1) * n_, twin.begin() + e * n_)) continue;
      found.word = abft::k_fail;
      found.residual = std::numeric_limits<double>::quiet_NaN();
      found.index = rows[at(e)];
    }
    return found;
  });
}

template <class T>
core::vector<std::int64_t> cuda_engine<T>::rows_at(std::span<const std::int64_t> positions, bool positive) {
  core::vector<std::int64_t> made(positions.begin(), positions.end());
  if (!weighted()) return made;
  if (ranks_) return joined_rows_at(positions, positive);
  const core::vector<T>& weights = host_weights();
  core::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < m_; ++i)
    if ((weights[at(i)] > 0) == positive) rows.push_back(i);
  for (std::int64_t& each : made) each = rows[at(each)];
  return made;
}

template ranges<float> cuda_engine<float>::column_stats();
template void cuda_engine<float>::normalize(const normalization<float>&);
template void cuda_engine<float>::each(part, core::function_ref<void(const point_piece<float>&)>);
template point_sums cuda_engine<float>::measure();
template void cuda_engine<float>::read_points(std::span<const std::int64_t>, float*);
template void cuda_engine<float>::read_own_points(std::span<const std::int64_t>, float*);
template void cuda_engine<float>::verify_own_row_stats();
template core::vector<std::int64_t> cuda_engine<float>::rows_at(std::span<const std::int64_t>, bool);
template ranges<double> cuda_engine<double>::column_stats();
template void cuda_engine<double>::normalize(const normalization<double>&);
template void cuda_engine<double>::each(part, core::function_ref<void(const point_piece<double>&)>);
template point_sums cuda_engine<double>::measure();
template void cuda_engine<double>::read_points(std::span<const std::int64_t>, double*);
template void cuda_engine<double>::read_own_points(std::span<const std::int64_t>, double*);
template void cuda_engine<double>::verify_own_row_stats();
template core::vector<std::int64_t> cuda_engine<double>::rows_at(std::span<const std::int64_t>, bool);

}  // namespace ballast::kmeans::cuda
