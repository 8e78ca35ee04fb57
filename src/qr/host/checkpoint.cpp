// The checkpoint of V: three weighted sums and the squared norm of every column, and the repair of up to two struck elements from them.
// Layer: backend (host). See factorizer.hpp.
// Source: P. Du et al., 2011, §6.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "core/parallel.hpp"
#include "qr/host/factorizer.hpp"
#include "qr/host/largest.hpp"

namespace ballast::qr::host {

namespace {

std::size_t at(index i) { return static_cast<std::size_t>(i); }

// One column of V below its diagonal, v(i) for first < i < m with v(first) = 1, and the four sums that it must have.
template <class S>
class guarded_column {
 public:
  guarded_column(S* v, index first, index m, const double* weight, const std::array<double, 4>& kept)
      : v_(v), first_(first), m_(m), weight_(weight), kept_(kept) {}

  // What rounding of the sums explains.
  double slack() const { return 16 * abft::unit_roundoff<double> * std::sqrt(static_cast<double>(m_)); }

  // Whether values for row i1 (and i2, if it is not negative) make all four sums come out; writes them if `commit`.
  bool settle(index i1, index i2, bool commit) {
    sums rest = without(i1, i2);
    const long double a = kept_[0] - rest[0], c = kept_[1] - rest[1];
    S x1 = 0, x2 = 0;
    if (i2 < 0) {
      x1 = static_cast<S>(a);
    } else {
      const long double gap = static_cast<long double>(weight_[i2]) - weight_[i1];
      x2 = static_cast<S>((c - weight_[i1] * a) / gap);
      x1 = static_cast<S>(a - static_cast<long double>(x2));
    }
    add(rest, i1, x1);
    if (i2 >= 0) add(rest, i2, x2);
    for (std::size_t q = 0; q < 4; ++q) {
      if (!(std::abs(static_cast<double>(rest[q]) - kept_[q]) <= slack() * std::max(1.0, std::abs(kept_[q])))) return false;
    }
    if (commit) v_[i1] = x1;
    if (commit && i2 >= 0) v_[i2] = x2;
    return true;
  }

 private:
  using sums = std::array<long double, 4>;  // this path is rare: long double costs nothing

  void add(sums& to, index i, long double x) const {
    to[0] += x;
    to[1] += weight_[i] * x;
    to[2] += static_cast<long double>(weight_[i]) * weight_[i] * x;
    to[3] += x * x;
  }

  sums without(index i1, index i2) const {
    sums rest = {1, weight_[first_], static_cast<long double>(weight_[first_]) * weight_[first_], 1};
    for (index i = first_ + 1; i < m_; ++i) {
      if (i != i1 && i != i2) add(rest, i, v_[i]);
    }
    return rest;
  }

  S* v_;
  index first_, m_;
  const double* weight_;
  const std::array<double, 4>& kept_;
};

}  // namespace

// c1, c2, c3 and ‖v‖² of each column of V (4 × width) over one slab.
template <class S>
void blocked_factorizer<S>::checkpoint_slab(index k, const slab<S>& part, double* sums) const {
  const layout::block& b = shape_[k];
  std::fill_n(sums, 4 * b.width, 0.0);
  kernels_.moments(part.rows, b.width, part.X, part.ld, row_weights_.data() + b.first + part.top, sums, b.width);
}

// The same over all of V.
template <class S>
void blocked_factorizer<S>::checkpoint(index k, std::vector<double>& sums) const {
  const block_reflector<S> H = reflector(k);
  const index size = 4 * H.width;
  const index tasks = slabs(H);
  std::vector<double> partial(at(tasks * size));
  core::parallel_for(run_.threads, tasks, [&](index t, int) { checkpoint_slab(k, slab_of(H, t), partial.data() + t * size); });
  sums.assign(at(size), 0.0);
  for (std::size_t i = 0; i < partial.size(); ++i) sums[i % at(size)] += partial[i];
}

// V is summed over as it is stored now, its triangle included. The same sums in the same order agree to the bit, or V has changed.
template <class S>
double blocked_factorizer<S>::change_of_v(index k, std::vector<double>& sums) {
  copy_v1(k);
  checkpoint(k, sums);
  const std::vector<double>& kept = checkpoints_[at(k)];
  largest worst;
  for (std::size_t i = 0; i < sums.size(); ++i) worst.add(sums[i] == kept[i] ? 0 : sums[i] - kept[i]);
  return worst.value();
}

template <class S>
void blocked_factorizer<S>::measure_v(index k, double* change) {
  std::vector<double> sums;
  *change = change_of_v(k, sums);
}

// T and tau to the bit.
template <class S>
double blocked_factorizer<S>::change_of_t(index k) const {
  abft::result_hash seal;
  for (index i = 0; i < shape_[k].width * shape_[k].width; ++i) seal.add(t(k)[i]);
  return seal.bits() != T_seal_[at(k)] ? std::numeric_limits<double>::quiet_NaN() : taus_differ(k);
}

template <class S>
bool blocked_factorizer<S>::repair_v(index k, index* column) {
  const layout::block& b = shape_[k];
  const std::vector<double>& kept = checkpoints_[at(k)];
  std::vector<double> sums;
  change_of_v(k, sums);
  std::vector<index> order;  // rows by weight, once they are needed
  for (index l = 0; l < b.width; ++l) {
    bool differs = false;
    for (int q = 0; q < 4; ++q) differs |= !(kept[at(l + q * b.width)] == sums[at(l + q * b.width)]);
    if (!differs) continue;
    *column = b.first + l;
    if (!repair_column_of_v(k, l, sums, order)) return false;
  }
  copy_v1(k);
  return true;
}

// The differences of the three sums give the rows of the struck elements, and the sums of the others their values. ‖v‖² is the witness.
template <class S>
bool blocked_factorizer<S>::repair_column_of_v(index k, index l, const std::vector<double>& sums, std::vector<index>& order) {
  const layout::block& b = shape_[k];
  const index m = shape_.m, j = b.first + l;
  const double* const weight = row_weights_.data();
  S* const v = A_ + j * lda_;
  std::array<double, 4> kept{}, delta{};
  for (index q = 0; q < 4; ++q) {
    kept[at(q)] = checkpoints_[at(k)][at(l + q * b.width)];
    delta[at(q)] = kept[at(q)] - sums[at(l + q * b.width)];
  }
  guarded_column<S> guarded(v, j, m, weight, kept);
  const double slack = guarded.slack();

  // Inf and NaN show their rows themselves.
  std::vector<index> odd;
  for (index i = j + 1; i < m && odd.size() < 3; ++i) {
    if (!std::isfinite(v[i])) odd.push_back(i);
  }
  if (!odd.empty()) return odd.size() <= 2 && guarded.settle(odd[0], odd.size() == 2 ? odd[1] : -1, true);

  const auto [d1, d2, d3, squares] = delta;
  if (!std::isfinite(d1) || !std::isfinite(d2) || !std::isfinite(d3)) return false;
  if (order.empty()) {
    order.resize(at(m));
    std::iota(order.begin(), order.end(), index{0});
    std::sort(order.begin(), order.end(), [&](index a, index c) { return weight[a] < weight[c]; });
  }
  // Where in `order` the weight nearest to `wanted` is.
  const auto nearest = [&](double wanted) -> std::size_t {
    auto up = std::lower_bound(order.begin(), order.end(), wanted, [&](index i, double value) { return weight[i] < value; });
    if (up == order.end()) --up;
    if (up != order.begin() && std::abs(weight[*(up - 1)] - wanted) < std::abs(weight[*up] - wanted)) --up;
    return static_cast<std::size_t>(up - order.begin());
  };

  // One fault: d2 / d1 is the weight of its row.
  const std::size_t here = nearest(d2 / d1);
  const index one = order[here];
  if (one > j && guarded.settle(one, -1, false)) {
    // A fault so small that a neighbour by weight would explain the sums as well is not placed.
    const auto told_apart = [&, d1 = d1](std::size_t other) {
      return std::abs(d1) * std::abs(weight[order[other]] - weight[one]) > 4 * slack;
    };
    if ((here > 0 && !told_apart(here - 1)) || (here + 1 < order.size() && !told_apart(here + 1))) return false;
    return guarded.settle(one, -1, true);
  }

  // Two faults: each row i asks for a partner of a certain weight, and exactly one pair may fit.
  index first = -1, second = -1;
  for (index i = j + 1; i < m; ++i) {
    const double rest = d2 - weight[i] * d1;
    const double wanted = (d3 - weight[i] * d2) / rest;
    if (!(wanted >= 1 - 1e-6 && wanted <= 2 + 1e-6) || 1e-9 * std::abs(rest) < slack) continue;
    const index other = order[nearest(wanted)];
    // The sums are known to about 1e-16 of their size; most rows have no partner that near.
    if (other <= i || std::abs(weight[other] - wanted) > 1e-9 || !guarded.settle(i, other, false)) continue;
    if (first >= 0) return false;
    first = i;
    second = other;
  }
  return first >= 0 && guarded.settle(first, second, true);
}

template class blocked_factorizer<float>;
template class blocked_factorizer<double>;

}  // namespace ballast::qr::host
