// Sums points by label; computes their projections and the sums over labels that verify them. Lanes are features or points.
// Layer: kernels "cpu" of the host backend.
#include <algorithm>

#include "kmeans/cpu/vectors-inl.hpp"

// Included once per target, so an ordinary include guard does not work.
#if defined(BALLAST_KMEANS_CPU_UPDATE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_KMEANS_CPU_UPDATE_INL
#undef BALLAST_KMEANS_CPU_UPDATE_INL
#else
#define BALLAST_KMEANS_CPU_UPDATE_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::kmeans::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// Adds points of weight 1 and of Vectors · lanes features, which lie side by side, to the sums of their labels.
template <class T, int Vectors>
HWY_NOINLINE void accumulate_short(const source<T>& from, const point_block<T>& block, cluster_sums& into) {
  const wide<T> d;
  const narrow<T> dn;
  constexpr std::int64_t lanes = k_lanes<double>, n = Vectors * lanes;
  const auto scale = hn::Set(dn, from.scale);
  hn::Vec<narrow<T> > shift[Vectors];
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) shift[v] = hn::LoadU(dn, from.shift.data() + v * lanes);
  const T* x = from.points.data + (block.first - from.origin) * from.points.row_stride;
  double* const all = into.sums.data();
  std::int64_t* const members = into.members.data();
  const std::int32_t* const label = block.label.data();
  const std::int64_t count = block.count, stride = from.points.row_stride;
  for (std::int64_t p = 0; p < count; ++p, x += stride) {
    const std::int64_t j = label[p];
    double* const sums = all + j * n;
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      const auto value = promoted<T>(hn::Sub(hn::Mul(hn::LoadU(dn, x + v * lanes), scale), shift[v]));
      hn::StoreU(hn::Add(hn::LoadU(d, sums + v * lanes), value), d, sums + v * lanes);
    }
    members[j] += 1;
  }
}

template <class T>
HWY_NOINLINE void accumulate(const source<T>& from, const point_block<T>& block, cluster_sums& into) {
  const wide<T> d;
  const narrow<T> dn;
  constexpr std::int64_t lanes = k_lanes<double>;
  const std::int64_t n = block.n;
  const bool weighted = into.weights.size() != 0;
  if (!weighted && from.points.column_stride == 1) {
    if (n == lanes) return accumulate_short<T, 1>(from, block, into);
    if (n == 2 * lanes) return accumulate_short<T, 2>(from, block, into);
    if (n == 4 * lanes) return accumulate_short<T, 4>(from, block, into);
  }
  const auto scale = hn::Set(dn, from.scale);
  const T* shift = from.shift.data();
  for (std::int64_t p = 0; p < block.count; ++p) {
    const std::int64_t j = block.label[p];
    const T* x = fetch(from, block.first + p, n, block.row);
    double* sums = into.sums.data() + j * n;
    std::int64_t f = 0;
    if (!weighted) {
      for (; f + lanes <= n; f += lanes) {
        const auto value = promoted<T>(hn::Sub(hn::Mul(hn::LoadU(dn, x + f), scale), hn::LoadU(dn, shift + f)));
        hn::StoreU(hn::Add(hn::LoadU(d, sums + f), value), d, sums + f);
      }
      for (; f < n; ++f) sums[f] += static_cast<double>(x[f] * from.scale - shift[f]);
      into.members[j] += 1;
      continue;
    }
    const double w = static_cast<double>(block.weight[p]);
    const auto weight = hn::Set(d, w);
    for (; f + lanes <= n; f += lanes) {
      const auto value = promoted<T>(hn::Sub(hn::Mul(hn::LoadU(dn, x + f), scale), hn::LoadU(dn, shift + f)));
      hn::StoreU(hn::Add(hn::LoadU(d, sums + f), hn::Mul(weight, value)), d, sums + f);
    }
    for (; f < n; ++f) sums[f] += w * static_cast<double>(x[f] * from.scale - shift[f]);
    into.weights[j] += w;
    into.members[j] += w > 0 ? 1 : 0;
  }
}

template <class T>
HWY_NOINLINE void project(const point_block<T>& block, const double* direction, double* projection) {
  const wide<T> d;
  const narrow<T> dn;
  constexpr std::int64_t lanes = k_lanes<double>;
  constexpr std::int64_t width = k_width<T>;
  for (std::int64_t p = 0; p < block.count; p += lanes) {
    const T* x = block.x.data() + p / width * width * block.n + p % width;
    auto sum = hn::Zero(d);
    for (std::int64_t f = 0; f < block.n; ++f) sum = hn::MulAdd(hn::Set(d, direction[f]), promoted<T>(hn::LoadU(dn, x + f * width)), sum);
    HWY_ALIGN double shown[lanes];
    hn::Store(hn::Mul(sum, promoted<T>(hn::LoadU(dn, block.weight.data() + p))), d, shown);
    std::copy_n(shown, std::min(lanes, block.count - p), projection + p);
  }
}

template <class T>
HWY_NOINLINE void sum_labels(const point_block<T>& block, const double* projection, cluster_sums& into) {
  const wide<T> d;
  [[maybe_unused]] const narrow<T> dn;
  const hn::Rebind<std::int32_t, wide<T> > di;
  constexpr std::int64_t lanes = k_lanes<double>;
  const bool weighted = into.weights.size() != 0;
  auto projected = hn::Zero(d), more = projected, labels = projected, weights = projected;
  std::int64_t p = 0;
  if (!weighted) {
    for (; p + 2 * lanes <= block.count; p += 2 * lanes) {
      const auto label = hn::PromoteTo(d, hn::LoadU(di, block.label.data() + p));
      const auto next = hn::PromoteTo(d, hn::LoadU(di, block.label.data() + p + lanes));
      projected = hn::MulAdd(label, hn::LoadU(d, projection + p), projected);
      more = hn::MulAdd(next, hn::LoadU(d, projection + p + lanes), more);
      labels = hn::Add(labels, hn::Add(label, next));
    }
    projected = hn::Add(projected, more);
  }
  for (; p + lanes <= block.count; p += lanes) {
    const auto label = hn::PromoteTo(d, hn::LoadU(di, block.label.data() + p));
    projected = hn::MulAdd(label, hn::LoadU(d, projection + p), projected);
    if (!weighted) {
      labels = hn::Add(labels, label);
    } else {
      const auto weight = promoted<T>(hn::LoadU(dn, block.weight.data() + p));
      weights = hn::MulAdd(label, weight, weights);
      labels = hn::Add(labels, hn::IfThenElseZero(hn::Gt(weight, hn::Zero(d)), label));
    }
  }
  into.labelled_projection += hn::GetLane(hn::SumOfLanes(d, projected));
  into.labelled_weight += hn::GetLane(hn::SumOfLanes(d, weights));
  into.labelled_members += hn::GetLane(hn::SumOfLanes(d, labels));
  for (; p < block.count; ++p) {
    const double label = block.label[p];
    into.labelled_projection += label * projection[p];
    into.labelled_weight += label * static_cast<double>(block.weight[p]);
    into.labelled_members += block.weight[p] > 0 ? label : 0;
  }
}

#endif

}  // namespace ballast::kmeans::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
