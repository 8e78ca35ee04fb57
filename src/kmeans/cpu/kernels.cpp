// The kernels of block.hpp with SIMD: lanes are points in distance computations, features in sums of points.
// Layer: kernels "cpu" of the host backend. Highway chooses the instruction set at run time; the host backend runs the threads.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kmeans/cpu/kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "kmeans/cpu/assign-inl.hpp"
#include "kmeans/cpu/distances-inl.hpp"
#include "kmeans/cpu/load-inl.hpp"
#include "kmeans/cpu/update-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace ballast::kmeans::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
// Without SIMD (no AVX2, no NEON) the plain loops are as fast; the host backend still runs them on all threads.
const kernels<float>* table_f32() { return &reference_kernels<float>(); }
const kernels<double>* table_f64() { return &reference_kernels<double>(); }
#else

template <class T>
const kernels<T>* table() {
  static constexpr kernels<T> all = {k_width<T>,    load<T>,   sign<T>,          sign_source<T>,    add_ranges<T>, sum_rows<T>,
                                     measure<T>,    assign<T>, keep_in_range<T>, check<T>,          accumulate<T>, project<T>,
                                     sum_labels<T>, exact<T>,  distances<T>,     store_distances<T>};
  return &all;
}

const kernels<float>* table_f32() { return table<float>(); }
const kernels<double>* table_f64() { return table<double>(); }

#endif

}  // namespace ballast::kmeans::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast::kmeans {

HWY_EXPORT(table_f32);
HWY_EXPORT(table_f64);

template <>
const kernels<float>& cpu_kernels<float>() {
  return *HWY_DYNAMIC_DISPATCH(table_f32)();
}

template <>
const kernels<double>& cpu_kernels<double>() {
  return *HWY_DYNAMIC_DISPATCH(table_f64)();
}

}  // namespace ballast::kmeans
#endif
