// The rows of all ranks: what the driver asks of single rows, and the sums from which it chooses the normalization.
// Layer: K-Means, ranks (engine.hpp).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kmeans/group/engine.hpp"

namespace ballast::kmeans::ranks {

namespace {

constexpr double k_infinity = std::numeric_limits<double>::infinity();

std::int64_t word_of_number(double x) { return std::bit_cast<std::int64_t>(x); }
double number_of_word(std::int64_t word) { return std::bit_cast<double>(word); }

// The power of two that brings |x| ≤ bound below 1.
double factor_below_one(double bound) {
  if (!(bound > 0) || !std::isfinite(bound)) return 1;
  return std::ldexp(1.0, -std::clamp(std::ilogb(bound) + 1, -1000, 1000));
}

}  // namespace

template <class T>
group_engine<T>::group_engine(const engine_args<T>& args, ballast::backend backend)
    : args_(args),
      over_(*args.rows->over),
      m_(args.rows->all),
      n_(args.points.columns),
      k_(args.clusters),
      threads_(backend == ballast::backend::cpu ? core::thread_count(args.how.threads) : 1),
      own_(args.rows->own),
      at_{},
      sums_(args.rows->all),
      singles_(static_cast<std::int64_t>(args.rows->over->size())) {
  weighted_ = args.rows->weighted;
  for (const row_part<T>& each : args.rows->parts) {
    engine_args<T> local = args;
    local.points = each.points;
    local.weights = each.weights;
    local.rows = nullptr;
    part made;
    made.rows = each;
    made.engine.reset(static_cast<host::host_engine<T>*>(host::make_engine(local, backend).release()));
    parts_.push_back(std::move(made));
  }
  at_.weights = 2 * core::checked_product(k_, n_);
  at_.members = at_.weights + (weighted_ ? 2 * k_ : 0);
  at_.singles = at_.members + k_;
  at_.all = at_.singles + 8;
  // Sums of n squares of numbers below 2, with weights below 2; and of n squares of differences.
  scales_.square = factor_below_one(8 * static_cast<double>(n_));
  scales_.potential = factor_below_one(32 * static_cast<double>(n_));
  direction_ = projection_direction(n_);
}

template <class T>
void group_engine<T>::settle() {
  expect(operation::settle);
  std::int64_t flags[] = {flag()};
  over_.add(flags);
  failed_ = failed_ || flags[0] > 0;
}

template <class T>
abft::finding group_engine<T>::agreed(const abft::finding& own) {
  if (!protects()) return own;
  expect(operation::agree);
  const std::int64_t mine[] = {own.word == abft::k_pass ? 0 : 1, std::bit_cast<std::int64_t>(own.bits), flag()};
  abft::finding made = own;
  abft::result_hash bits;
  for (const words& each : over_.gather(std::span<const std::int64_t>(mine))) {
    if (each[0] != 0 && made.word == abft::k_pass) {
      made.word = abft::k_fail;
      made.check = "group.verdict";
    }
    bits.add(each[1]);
    failed_ = failed_ || each[2] != 0;
  }
  if (!own.judged) made.bits = bits.bits();
  return made;
}

template <class T>
words group_engine<T>::add_gathered(const words& own) {
  words made(own.size(), 0);
  for (const words& each : over_.gather(std::span<const std::int64_t>(own)))
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = wrapping_sum(made[i], each[i]);
  return made;
}

// Σ of each column in units of its factor, Σ of the biased exponents of the numbers other than 0, and their count.
template <class T>
words group_engine<T>::columns_of(const part& of) const {
  const source<T>& from = of.engine->points();
  std::vector<words> slots(at(threads_), words(at(4 * n_), 0));
  for_chunks(of, [&](std::int64_t, std::int64_t first, std::int64_t end, int slot) {
    words& to = slots[at(slot)];
    for (std::int64_t i = first; i < end; ++i) {
      for (std::int64_t f = 0; f < n_; ++f) {
        const T x = from.points(i, f);
        sums_.add(static_cast<double>(x) * scales_.point[at(f)], to[at(4 * f)], to[at(4 * f + 1)]);
        const auto bits = std::bit_cast<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>(x);
        to[at(4 * f + 2)] += static_cast<std::int64_t>((bits << 1) >> std::numeric_limits<T>::digits);
        to[at(4 * f + 3)] += x != 0 ? 1 : 0;
      }
    }
  });
  words made(at(4 * n_), 0);
  for (const words& each : slots)
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = wrapping_sum(made[i], each[i]);
  return made;
}

template <class T>
ranges<T> group_engine<T>::column_stats() {
  // 2 n ranges, the heaviest weight, and the first refused point and weight: row, column, value; each as the bits of a double.
  words own;
  ranges<T> joined;
  joined.low.assign(at(n_), k_infinity);
  joined.high.assign(at(n_), -k_infinity);
  joined.heaviest = 0;
  const auto earlier = [](refused_value<T>& to, const refused_value<T>& other) {
    if (other.row < 0) return;
    if (to.row < 0 || other.column < to.column || (other.column == to.column && other.row < to.row)) to = other;
  };
  const auto join = [&](const ranges<T>& other) {
    for (std::size_t f = 0; f < at(n_); ++f) {
      joined.low[f] = std::min(joined.low[f], other.low[f]);
      joined.high[f] = std::max(joined.high[f], other.high[f]);
    }
    joined.heaviest = std::max(joined.heaviest, other.heaviest);
    earlier(joined.point, other.point);
    earlier(joined.weight, other.weight);
  };
  for (part& each : parts_) {
    ranges<T> seen = each.engine->column_stats();
    if (seen.point.row >= 0) seen.point.row += each.rows.first;
    if (seen.weight.row >= 0) seen.weight.row += each.rows.first;
    join(seen);
  }
  for (const auto* side : {&joined.low, &joined.high})
    for (const double each : *side) own.push_back(word_of_number(each));
  own.push_back(word_of_number(static_cast<double>(joined.heaviest)));
  for (const refused_value<T>* each : {&joined.point, &joined.weight}) {
    own.push_back(each->row);
    own.push_back(each->column);
    own.push_back(word_of_number(static_cast<double>(each->value)));
  }
  expect(operation::ranges);
  for (const words& each : over_.gather(std::span<const std::int64_t>(own))) {
    ranges<T> other;
    other.low.resize(at(n_));
    other.high.resize(at(n_));
    const std::int64_t* at_word = each.data();
    for (auto* side : {&other.low, &other.high})
      for (double& number : *side) number = number_of_word(*at_word++);
    other.heaviest = static_cast<T>(number_of_word(*at_word++));
    for (refused_value<T>* refused : {&other.point, &other.weight}) {
      refused->row = *at_word++;
      refused->column = *at_word++;
      refused->value = static_cast<T>(number_of_word(*at_word++));
    }
    join(other);
  }
  if (!weighted_) joined.heaviest = 1;
  joined.sum.assign(at(n_), 0.0);
  if (joined.point.row >= 0 || joined.weight.row >= 0) return joined;

  scales_.point.clear();
  for (std::size_t f = 0; f < at(n_); ++f)
    scales_.point.push_back(factor_below_one(std::max(std::abs(joined.low[f]), std::abs(joined.high[f]))));
  words columns(at(4 * n_), 0);
  for (const part& each : parts_) {
    const words found = twice("kmeans.range", [&] { return columns_of(each); });
    for (std::size_t i = 0; i < columns.size(); ++i) columns[i] = wrapping_sum(columns[i], found[i]);
  }
  expect(operation::sums);
  columns = add_gathered(columns);
  joined.exponent.assign(at(n_), 0.0);
  for (std::size_t f = 0; f < at(n_); ++f) {
    // The factor is a power of two; the sum is in units of 2⁶⁴.
    joined.sum[f] = std::ldexp(sums_.value(columns[4 * f], columns[4 * f + 1]), -std::ilogb(scales_.point[f]) - 64);
    const double bias = std::numeric_limits<T>::max_exponent - 1;
    if (columns[4 * f + 3] != 0)
      joined.exponent[f] = static_cast<double>(columns[4 * f + 2]) / static_cast<double>(columns[4 * f + 3]) - bias;
  }
  scales_.low = joined.low;
  scales_.high = joined.high;
  return joined;
}

template <class T>
void group_engine<T>::normalize(const normalization<T>& chosen) {
  for (part& each : parts_) each.engine->normalize(chosen);
  const double scale = static_cast<double>(chosen.scale);
  scales_.point.clear();
  for (std::size_t f = 0; f < at(n_); ++f) {
    const double shift = static_cast<double>(chosen.shift[f]);
    const double reach = std::max(std::abs(scales_.low[f] * scale - shift), std::abs(scales_.high[f] * scale - shift));
    // x is rounded at the size of the shift.
    scales_.point.push_back(factor_below_one(1.001 * reach + 4 * abft::unit_roundoff<T> * std::abs(shift)));
  }
}

// Words: of each feature Σ w x, Σ x if there are weights, and Σ x², in units of its factor; Σ ‖x‖² and Σ w ‖x‖²; Σ w; the points of
// positive weight.
template <class T>
words group_engine<T>::measures_of(const part& of) const {
  const source<T>& from = of.engine->points();
  const std::int64_t size = 6 * n_ + 7;
  std::vector<words> slots(at(threads_), words(at(size), 0));
  std::vector<std::vector<double>> rows(at(threads_), std::vector<double>(at(n_)));
  for_chunks(of, [&](std::int64_t, std::int64_t first, std::int64_t end, int slot) {
    words& to = slots[at(slot)];
    double* x = rows[at(slot)].data();
    for (std::int64_t i = first; i < end; ++i) {
      const double w = read_row(from, i, x);
      double square = 0;
      for (std::int64_t f = 0; f < n_; ++f) {
        const double scaled = x[f] * scales_.point[at(f)];
        sums_.add(w * scaled, to[at(6 * f)], to[at(6 * f + 1)]);
        sums_.add(scaled, to[at(6 * f + 2)], to[at(6 * f + 3)]);
        sums_.add(scaled * scaled, to[at(6 * f + 4)], to[at(6 * f + 5)]);
        square += x[f] * x[f];
      }
      std::int64_t* last = to.data() + 6 * n_;
      sums_.add(square * scales_.square, last[0], last[1]);
      sums_.add(w * square * scales_.square, last[2], last[3]);
      sums_.add(w, last[4], last[5]);
      last[6] += w > 0 ? 1 : 0;
    }
  });
  words made(at(size), 0);
  for (const words& each : slots)
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = wrapping_sum(made[i], each[i]);
  return made;
}

template <class T>
point_sums group_engine<T>::measure() {
  words own(at(6 * n_ + 7), 0);
  double largest = 0;
  for (part& each : parts_) {
    each.whole = each.engine->measure();
    if (!(each.whole.largest_square <= largest)) largest = each.whole.largest_square;
    const words found = twice("kmeans.variance", [&] { return measures_of(each); });
    each.constant.clear();
    for (std::size_t f = 0; f < at(n_); ++f) each.constant.insert(each.constant.end(), {found[6 * f], found[6 * f + 1]});
    each.constant.insert(each.constant.end(), found.end() - 3, found.end());  // Σ w, members
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = wrapping_sum(own[i], found[i]);
  }
  own.push_back(word_of_number(largest));
  expect(operation::measure);
  const std::vector<words> all = over_.gather(std::span<const std::int64_t>(own));
  words sums(own.size() - 1, 0);
  largest = 0;
  for (const words& each : all) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = wrapping_sum(sums[i], each[i]);
    const double one = number_of_word(each.back());
    if (!(one <= largest)) largest = one;
  }
  whole_.clear(n_, weighted_);
  const auto value = [&](std::size_t i, double factor) { return sums_.value(sums[i], sums[i + 1]) / factor; };
  for (std::size_t f = 0; f < at(n_); ++f) {
    whole_.first[f] = value(6 * f, scales_.point[f]);
    if (weighted_) whole_.plain[f] = value(6 * f + 2, scales_.point[f]);
    whole_.squares[f] = value(6 * f + 4, scales_.point[f]) / scales_.point[f];
  }
  const std::size_t last = at(6 * n_);
  whole_.total_square = value(last, scales_.square);
  whole_.weighted_square = value(last + 2, scales_.square);
  whole_.largest_square = largest;
  whole_.weight = value(last + 4, 1);
  whole_.members = static_cast<double>(sums[last + 6]);
  whole_.count = static_cast<double>(m_);
  return whole_;
}

// Every rank sends the rows that it has, in the order in which they are asked for.
template <class T>
void group_engine<T>::read_points(std::span<const std::int64_t> rows, T* to) {
  core::vector<T> own;
  std::vector<std::int64_t> where;
  for (std::size_t e = 0; e < rows.size(); ++e) {
    for (part& each : parts_) {
      const std::int64_t local = rows[e] - each.rows.first;
      if (local < 0 || local >= each.count()) continue;
      where.push_back(static_cast<std::int64_t>(e));
      own.resize(own.size() + at(n_));
      each.engine->read_points({&local, 1}, own.data() + own.size() - at(n_));
    }
  }
  expect(operation::read, static_cast<std::uint64_t>(rows.size()));
  wire::bytes block(8 * where.size() + sizeof(T) * own.size());
  if (!where.empty()) {
    std::memcpy(block.data(), where.data(), 8 * where.size());
    std::memcpy(block.data() + 8 * where.size(), own.data(), sizeof(T) * own.size());
  }
  const std::size_t bytes = 8 + sizeof(T) * at(n_);
  for (const wire::bytes& each : over_.gather(std::span<const std::byte>(block))) {
    const std::size_t count = each.size() / bytes;
    for (std::size_t e = 0; e < count; ++e) {
      std::int64_t index = 0;
      std::memcpy(&index, each.data() + 8 * e, 8);
      if (index < 0 || index >= static_cast<std::int64_t>(rows.size())) continue;
      std::memcpy(to + index * n_, each.data() + 8 * count + sizeof(T) * at(n_) * e, sizeof(T) * at(n_));
    }
  }
}

template <class T>
core::vector<std::int64_t> group_engine<T>::rows_at(std::span<const std::int64_t> positions, bool positive) {
  core::vector<std::int64_t> made(positions.begin(), positions.end());
  if (!weighted_) return made;
  const auto wanted = [&](const part& of, std::int64_t i) { return (of.engine->points().weights[at(i)] > 0) == positive; };
  std::vector<fixed_sum> counts;
  for (const part& each : parts_) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < each.count(); ++i) count += wanted(each, i) ? 1 : 0;
    counts.push_back({count, 0});
  }
  const std::vector<summed_part> all = gather_parts(counts);
  words found(positions.size(), 0);
  for (std::size_t e = 0; e < positions.size(); ++e) {
    std::int64_t before = 0;
    for (const summed_part& each : all) {
      const std::int64_t rest = positions[e] - before;
      before += each.sum.high;
      if (positions[e] >= before) continue;
      for (const part& mine : parts_) {
        if (each.owner != over_.rank() || mine.rows.first != each.first) continue;
        std::int64_t left = rest;
        for (std::int64_t i = 0; i < mine.count(); ++i)
          if (wanted(mine, i) && left-- == 0) found[e] = mine.rows.first + i;
      }
      break;
    }
  }
  expect(operation::positions, static_cast<std::uint64_t>(positions.size()));
  over_.add(found);
  return {found.begin(), found.end()};
}

// The sums of all parts of all ranks, in the order of rows. `own`: of this rank's parts.
template <class T>
auto group_engine<T>::gather_parts(const std::vector<fixed_sum>& own) -> std::vector<summed_part> {
  words mine = {flag()};
  for (std::size_t p = 0; p < parts_.size(); ++p) mine.insert(mine.end(), {parts_[p].rows.first, own[p].high, own[p].low});
  std::vector<summed_part> made;
  const std::vector<words> all = over_.gather(std::span<const std::int64_t>(mine));
  for (std::size_t r = 0; r < all.size(); ++r) {
    failed_ = failed_ || all[r][0] != 0;
    for (std::size_t p = 1; p + 2 < all[r].size(); p += 3) made.push_back({all[r][p], {all[r][p + 1], all[r][p + 2]}, over_.members()[r]});
  }
  std::ranges::sort(made, {}, &summed_part::first);
  return made;
}

template <class T>
std::unique_ptr<engine<T>> make_engine(const engine_args<T>& what, ballast::backend backend) {
  return std::make_unique<group_engine<T>>(what, backend);
}

template std::unique_ptr<engine<float>> make_engine(const engine_args<float>&, ballast::backend);
template std::unique_ptr<engine<double>> make_engine(const engine_args<double>&, ballast::backend);
template auto group_engine<float>::gather_parts(const std::vector<fixed_sum>&) -> std::vector<summed_part>;
template auto group_engine<double>::gather_parts(const std::vector<fixed_sum>&) -> std::vector<summed_part>;

}  // namespace ballast::kmeans::ranks
