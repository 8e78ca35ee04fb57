// The first look at the points: their ranges, their place in the frame, the facts about each row, and sums over all of them.
// Layer: backend "cuda" of K-Means (engine.hpp).
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>

#include "abft/threshold.hpp"
#include "core/counter_rng.hpp"
#include "kmeans/cuda/engine.hpp"
#include "kmeans/cuda/engine_memory.hpp"
#include "kmeans/cuda/fixed.hpp"
#include "run/attempt.hpp"

namespace ballast::kmeans::cuda {

namespace {

constexpr std::uint64_t k_direction_seed = 0x646972656374;

// Neighbouring rows lie nearer to one another than neighbouring features.
template <class T>
bool by_rows(const given_points<T>& from) {
  return std::abs(from.row_stride) < std::abs(from.column_stride);
}

}  // namespace

// Sums over the rows of each column, by one of the two ways.
template <class T>
template <class Sums>
std::vector<Sums> cuda_engine<T>::sum_columns(work what, const given_points<T>& from, std::int64_t columns, bool from_placed,
                                              bool mirrored) {
  column_arguments<T> given;
  given.given = from;
  given.placed = placed_;
  given.shape = column_shape_of(from.m, static_cast<int>(columns));
  given.from_placed = from_placed;
  given.mirrored = mirrored;
  given.rows_first = !from_placed && by_rows(from);
  const std::int64_t bytes = static_cast<std::int64_t>(sizeof(Sums)) * columns;
  const buffer parts = allocate(bytes * given.shape.strips);
  const buffer sums = allocate(bytes);
  given.parts = parts.data();
  launch(names::columns(what, false), names::columns(what, true), given.shape.blocks(), given);
  launch(names::fold(what), columns, fold_arguments{parts.data(), sums.data(), given.shape.strips, given.shape.columns, mirrored});
  return download<Sums>(sums, columns);
}

// The same by both ways, until they agree bit for bit. before(number) is done in front of attempt `number`.
template <class T>
template <class Sums, class Before>
std::vector<Sums> cuda_engine<T>::verified_columns(work what, const given_points<T>& from, std::int64_t columns, const char* site,
                                                   Before&& before) {
  std::vector<Sums> made;
  if (!protect_) {
    before(0);
    return sum_columns<Sums>(what, from, columns, false, false);
  }
  run::attempt(what_.seen, what_.how.protection, site, 0, [&](int number) {
    before(number);
    made = sum_columns<Sums>(what, from, columns, false, false);
    const std::vector<Sums> again = sum_columns<Sums>(what, from, columns, true, true);
    what_.seen.checked(at(columns));
    abft::finding found;
    for (std::int64_t c = 0; c < columns; ++c) {
      if (std::memcmp(&made[at(c)], &again[at(c)], sizeof(Sums)) == 0) continue;
      found.word = abft::k_fail;
      found.residual = std::numeric_limits<double>::quiet_NaN();
      found.index = c;
      break;
    }
    return found;
  });
  return made;
}

// The driver verifies the ranges by what is measured later, from other loads.
template <class T>
ranges<T> cuda_engine<T>::survey() {
  using sums = column_ranges<T>;
  ranges<T> made;
  // The lowest row of a column that has a value without meaning.
  const auto find = [&](const T* values, std::int64_t stride, bool weights, std::int64_t column) {
    clear_flags();
    launch(names::find(), std::min<std::int64_t>((m_ + k_column_threads - 1) / k_column_threads, 1024),
           find_arguments<T>{values, stride, m_, weights, flags()});
    refused_value<T> refused;
    refused.row = read_flags().index;
    refused.column = column;
    if (refused.row >= 0) download(&refused.value, values + refused.row * stride, sizeof(T));
    return refused;
  };
  if (weighted()) {
    given_points<T> column = given_;
    column.points = given_.weights;
    column.row_stride = 1;
    column.column_stride = m_;
    column.n = 1;
    const sums seen = sum_columns<sums>(work::ranges, column, 1, false, false)[0];
    made.heaviest = seen.high;
    if (!(seen.low >= 0) || !(seen.poison == 0)) made.weight = find(given_.weights, 1, true, 0);
  }
  const std::vector<sums> seen = sum_columns<sums>(work::ranges, given_, n_, false, false);
  for (std::int64_t f = 0; f < n_; ++f) {
    const sums& each = seen[at(f)];
    made.low.push_back(static_cast<double>(each.low));
    made.high.push_back(static_cast<double>(each.high));
    made.sum.push_back(each.sum);
    if (!(each.poison == 0) && made.point.row < 0) made.point = find(given_.points + f * given_.column_stride, given_.row_stride, false, f);
  }
  return made;
}

// x and weights in the frame.
template <class T>
void cuda_engine<T>::place_rows() {
  place_arguments<T> given;
  given.given = given_;
  given.x = static_cast<T*>(x_.data());
  given.weight = static_cast<T*>(weight_.data());
  given.stride = placed_.stride;
  given.lanes = std::min(placed_.stride & -placed_.stride, 32);
  given.rows_first = by_rows(given_);
  const std::int64_t rows = k_row_threads * k_place_elements / given.lanes;
  launch(names::place(false), names::place(true), (m_ + rows - 1) / rows * (placed_.stride / given.lanes), given);
}

// The unit of each column: the largest power of two with which its values keep within 2^k_word_bits. And how many words a sum needs.
template <class T>
void cuda_engine<T>::choose_units() {
  placed_.words = sizeof(T) == 8 ? 2 : 1;
  units_.clear();
  for (const column_sizes& each : sizes_) {
    int exponent = 0;
    if (each.largest > 0 && std::isfinite(each.largest)) {
      (void)std::frexp(each.largest, &exponent);  // largest ≤ 2^exponent
      exponent = std::min(k_word_bits - exponent, std::numeric_limits<T>::max_exponent - 2);
    }
    units_.push_back(std::ldexp(T(1), exponent));
    const double mean = each.size / static_cast<double>(m_);
    if (each.largest > std::ldexp(mean, k_wide_ratio)) placed_.words = 2;
  }
  units_.resize(at(placed_.stride) + 1, T(1));
  unit_ = upload(units_);
  placed_.unit = static_cast<const T*>(unit_.data());
}

// Norm, projection and signature of each row, from the points; and, with protection, again from x as it was placed.
template <class T>
void cuda_engine<T>::make_facts() {
  const std::int64_t blocks = (m_ + k_row_threads - 1) / k_row_threads;
  const buffer squares = allocate(blocks * static_cast<std::int64_t>(sizeof(block_squares)));
  facts_arguments<T> given;
  given.given = given_;
  given.placed = placed_;
  given.norm = static_cast<T*>(norm_.data());
  given.rounding = static_cast<T*>(rounding_.data());
  given.projection = static_cast<T*>(projection_.data());
  given.signature = static_cast<std::uint64_t*>(signature_.data());
  given.squares = static_cast<block_squares*>(squares.data());
  given.flags = flags();
  given.check = protect_;
  clear_flags();
  launch(names::facts(placed_.words, false), names::facts(placed_.words, true), blocks, given);
  squares_ = download<block_squares>(squares, blocks);
}

template <class T>
void cuda_engine<T>::place(const frame<T>& chosen) {
  frame_ = sealed<frame<T>>(chosen);
  lloyd_.reset();
  const auto size = static_cast<std::int64_t>(sizeof(T));
  shift_ = upload(chosen.shift);
  given_.shift = static_cast<const T*>(shift_.data());
  given_.scale = chosen.scale;
  given_.weight_scale = chosen.weight_scale;
  placed_.m = m_;
  placed_.n = static_cast<int>(n_);
  placed_.stride = static_cast<int>(padded_features<T>(n_));
  placed_.columns = static_cast<int>(columns());
  // Rows behind the last point are 0.
  const auto rows = [&](std::int64_t bytes) {
    buffer made = allocate(core::checked_product(padded_rows(m_), bytes));
    device_->zero(static_cast<unsigned char*>(made.data()) + m_ * bytes, (padded_rows(m_) - m_) * bytes, call_.order());
    return made;
  };
  x_ = rows(placed_.stride * size);
  placed_.x = static_cast<const T*>(x_.data());
  if (weighted()) weight_ = rows(size);
  placed_.weight = static_cast<const T*>(weight_.data());
  norm_ = rows(size);
  rounding_ = rows(size);
  projection_ = rows(size);
  signature_ = rows(8);
  placed_.norm = static_cast<const T*>(norm_.data());
  placed_.rounding = static_cast<const T*>(rounding_.data());
  placed_.projection = static_cast<const T*>(projection_.data());
  placed_.signature = static_cast<const std::uint64_t*>(signature_.data());
  std::vector<T> direction(at(placed_.stride), T(0));
  for (std::int64_t f = 0; f < n_; ++f) {
    const std::uint64_t bits = core::random_bits(k_direction_seed, 3, static_cast<std::uint64_t>(f));
    direction[at(f)] = (1 + static_cast<T>(bits % 256) / 256) * ((bits >> 8) % 2 == 0 ? T(1) : T(-1));
  }
  direction_ = upload(direction);
  placed_.direction = static_cast<const T*>(direction_.data());

  sizes_ = verified_columns<column_sizes>(work::sizes, given_, columns(), "kmeans.points", [&](int) { place_rows(); });
  choose_units();
  if (!protect_) return make_facts();
  run::attempt(what_.seen, what_.how.protection, "kmeans.points", 0, [&](int number) {
    if (number > 0) place_rows();
    make_facts();
    what_.seen.checked(at(m_));
    return read_flags();
  });
}

template <class T>
point_sums cuda_engine<T>::measure() {
  totals_ = verified_columns<column_totals>(placed_.words == 1 ? work::totals_one_word : work::totals_two_words, given_, columns(),
                                            "kmeans.variance", [](int) {});
  point_sums made;
  made.clear(n_, weighted());
  const auto gather = [&] {
    for (std::int64_t f = 0; f < n_; ++f) made.squares[at(f)] = sizes_[at(f)].squares;
    made.total_square = made.weighted_square = made.largest_square = 0;
    for (const block_squares& each : squares_) {
      made.total_square += each.square;
      made.weighted_square += each.weighted;
      if (!std::isnan(made.largest_square) && !(each.largest <= made.largest_square)) made.largest_square = each.largest;
    }
  };
  gather();
  if (protect_) {
    run::attempt(what_.seen, what_.how.protection, "kmeans.variance", 0, [&](int number) {
      if (number > 0) {
        sizes_ = sum_columns<column_sizes>(work::sizes, given_, columns(), false, false);
        make_facts();
        gather();
      }
      const double by_features = std::accumulate(made.squares.begin(), made.squares.end(), 0.0);
      abft::finding found;
      found.residual = by_features - made.total_square;
      // Squares may underflow where the frame is made for centroids that are far away.
      found.threshold = 1e-12 * std::sqrt(static_cast<double>(m_)) * made.total_square +
                        static_cast<double>(m_) * static_cast<double>(n_) * std::numeric_limits<double>::denorm_min();
      // Squares that overflow say that the frame is wrong, which the driver will see.
      if (std::isfinite(by_features) || std::isfinite(made.total_square))
        found.word = abft::verify(found.residual, abft::guarded_threshold(found.threshold));
      what_.seen.checked(1);
      return found;
    });
  }
  const auto value = [&](std::int64_t c) {
    double sum = 0;
    for (int w = placed_.words; w-- > 0;) sum += static_cast<double>(static_cast<std::int64_t>(totals_[at(c)].word[w])) * word_value(w);
    return sum / static_cast<double>(units_[at(c)]);
  };
  for (std::int64_t f = 0; f < n_; ++f) {
    made.first[at(f)] = value(f);
    if (weighted()) made.plain[at(f)] = sizes_[at(f)].plain;
  }
  made.count = static_cast<double>(m_);
  made.weight = weighted() ? value(n_) : made.count;
  made.members = weighted() ? static_cast<double>(totals_[at(n_)].positive) : made.count;
  std::vector<std::uint64_t> expected;
  for (int w = 0; w < placed_.words; ++w)
    for (const column_totals& each : totals_) expected.push_back(each.word[w]);
  expected_ = upload(expected);
  lloyd_.reset();
  return made;
}

template <class T>
void cuda_engine<T>::read_points(std::span<const std::int64_t> rows, T* to) {
  const auto count = static_cast<std::int64_t>(rows.size());
  if (count == 0) return;
  const std::int64_t bytes = count * n_ * static_cast<std::int64_t>(sizeof(T));
  const buffer list = upload(std::vector<std::int64_t>(rows.begin(), rows.end()));
  const buffer made = allocate(bytes), again = allocate(bytes);
  const gather_arguments<T> given{
      given_, placed_.x,     static_cast<const std::int64_t*>(list.data()), static_cast<T*>(made.data()), static_cast<T*>(again.data()),
      count,  placed_.stride};
  const std::int64_t blocks = (count * n_ + k_row_threads - 1) / k_row_threads;
  const auto once = [&] {
    launch(names::gather(), protect_ ? 2 * blocks : blocks, given);
    download(to, made.data(), bytes);
  };
  if (!protect_) return once();
  run::attempt(what_.seen, what_.how.protection, "kmeans.points", 0, [&](int) {
    once();
    const std::vector<T> twin = download<T>(again, count * n_);
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
std::vector<std::int64_t> cuda_engine<T>::rows_at(std::span<const std::int64_t> places, bool positive) {
  std::vector<std::int64_t> made(places.begin(), places.end());
  if (!weighted()) return made;
  const std::vector<T>& weights = host_weights();
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < m_; ++i)
    if ((weights[at(i)] > 0) == positive) rows.push_back(i);
  for (std::int64_t& each : made) each = rows[at(each)];
  return made;
}

template ranges<float> cuda_engine<float>::survey();
template void cuda_engine<float>::place(const frame<float>&);
template point_sums cuda_engine<float>::measure();
template void cuda_engine<float>::read_points(std::span<const std::int64_t>, float*);
template std::vector<std::int64_t> cuda_engine<float>::rows_at(std::span<const std::int64_t>, bool);
template ranges<double> cuda_engine<double>::survey();
template void cuda_engine<double>::place(const frame<double>&);
template point_sums cuda_engine<double>::measure();
template void cuda_engine<double>::read_points(std::span<const std::int64_t>, double*);
template std::vector<std::int64_t> cuda_engine<double>::rows_at(std::span<const std::int64_t>, bool);

}  // namespace ballast::kmeans::cuda
