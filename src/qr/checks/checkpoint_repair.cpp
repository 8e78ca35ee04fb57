// Repairs up to two struck elements of a column of V from its checkpoint.
// Layer: algorithm, backend-free. See checkpoint_repair.hpp.
#include "qr/checks/checkpoint_repair.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "abft/threshold.hpp"
#include "core/at.hpp"

namespace ballast::qr {

using core::at;

namespace {

// One column of V below its diagonal as real components, v(i) for below ≤ i < m with v(first) = 1, and the four sums that its checkpoint
// holds. Components between `first` and `below` are 0.
template <class S>
class guarded_column {
 public:
  guarded_column(S* v, index first, index below, index m, const double* weight, const std::array<double, 4>& kept)
      : v_(v), first_(first), below_(below), m_(m), weight_(weight), kept_(kept) {}

  // The relative difference that rounding of the sums explains.
  double slack() const { return 16 * abft::unit_roundoff<double> * std::sqrt(static_cast<double>(m_)); }

  // Returns whether values for row i1 (and row i2, unless it is negative) make all four sums agree; writes the values if `commit`.
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
  using sums = std::array<long double, 4>;  // this path is rare, so that long double costs nothing

  void add(sums& to, index i, long double x) const {
    to[0] += x;
    to[1] += weight_[i] * x;
    to[2] += static_cast<long double>(weight_[i]) * weight_[i] * x;
    to[3] += x * x;
  }

  sums without(index i1, index i2) const {
    sums rest = {1, weight_[first_], static_cast<long double>(weight_[first_]) * weight_[first_], 1};
    for (index i = below_; i < m_; ++i) {
      if (i != i1 && i != i2) add(rest, i, v_[i]);
    }
    return rest;
  }

  S* v_;
  index first_, below_, m_;
  const double* weight_;
  const std::array<double, 4>& kept_;
};

}  // namespace

// The differences of the three sums locate the rows of the struck elements; the sums over the other rows give their values. ‖v‖² confirms
// the repair.
template <class S>
bool checkpoint_repair<S>::column(S* column, index j, const double* kept_sums, const double* sums, index stride, index* struck) {
  real_of<S>* const v = reals(column);
  const index m = k_reals<S> * m_, below = k_reals<S> * (j + 1);
  const double* const weight = weight_;
  core::vector<index>& order = order_;
  std::array<double, 4> kept{}, delta{};
  bool differs = false;
  for (index q = 0; q < 4; ++q) {
    kept[at(q)] = kept_sums[q * stride];
    delta[at(q)] = kept[at(q)] - sums[q * stride];
    differs |= !(kept_sums[q * stride] == sums[q * stride]);
  }
  if (!differs) return true;
  *struck = j;
  guarded_column<real_of<S>> guarded(v, k_reals<S> * j, below, m, weight, kept);
  const double slack = guarded.slack();

  // Inf and NaN show their rows directly.
  core::vector<index> odd;
  for (index i = below; i < m && odd.size() < 3; ++i) {
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
  // Returns the position in `order` of the weight nearest to `wanted`.
  const auto nearest = [&](double wanted) -> std::size_t {
    auto up = std::lower_bound(order.begin(), order.end(), wanted, [&](index i, double value) { return weight[i] < value; });
    if (up == order.end()) --up;
    if (up != order.begin() && std::abs(weight[*(up - 1)] - wanted) < std::abs(weight[*up] - wanted)) --up;
    return static_cast<std::size_t>(up - order.begin());
  };

  // One fault: d2 / d1 is the weight of its row.
  const std::size_t here = nearest(d2 / d1);
  const index one = order[here];
  if (one >= below && guarded.settle(one, -1, false)) {
    // A fault is not located if it is so small that a row with a neighbouring weight would explain the sums as well.
    const auto told_apart = [&, d1 = d1](std::size_t other) {
      return std::abs(d1) * std::abs(weight[order[other]] - weight[one]) > 4 * slack;
    };
    if ((here > 0 && !told_apart(here - 1)) || (here + 1 < order.size() && !told_apart(here + 1))) return false;
    return guarded.settle(one, -1, true);
  }

  // Two faults: for each row i the sums determine the weight of its partner, and exactly one pair may fit.
  index first = -1, second = -1;
  for (index i = below; i < m; ++i) {
    const double rest = d2 - weight[i] * d1;
    const double wanted = (d3 - weight[i] * d2) / rest;
    if (!(wanted >= 1 - 1e-6 && wanted <= 2 + 1e-6) || 1e-9 * std::abs(rest) < slack) continue;
    const index other = order[nearest(wanted)];
    // The sums are accurate to about 1e-16 of their size; most rows have no partner with a weight that near.
    if (other <= i || std::abs(weight[other] - wanted) > 1e-9 || !guarded.settle(i, other, false)) continue;
    if (first >= 0) return false;
    first = i;
    second = other;
  }
  return first >= 0 && guarded.settle(first, second, true);
}

template class checkpoint_repair<float>;
template class checkpoint_repair<double>;
template class checkpoint_repair<std::complex<float>>;
template class checkpoint_repair<std::complex<double>>;

}  // namespace ballast::qr
