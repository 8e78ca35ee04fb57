// Products of complex numbers in memory with factors in memory, and the second computation that is compared with them. kernels.hpp
// describes them.
// Layer: backend "cpu".
#include "fft/cpu/kernels.hpp"
#include "fft/cpu/memory-inl.hpp"
#include "fft/cpu/pairs-inl.hpp"

// Highway includes this file once per target, so an ordinary guard does not work.
#if defined(BALLAST_FFT_PRODUCTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_PRODUCTS_INL
#else
#define BALLAST_FFT_PRODUCTS_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

// Calls vectors(j, product) for W products from number j on, then number(j, product) for each of the rest.
template <class Vectors, class Number>
HWY_INLINE void each_product(const product_call<T>& call, Vectors&& vectors, Number&& number) {
  const D d;
  const V scale = hn::Set(d, call.scale);
  const auto product = [&](const complex_vector& z, const complex_vector& w) HWY_ATTR {
    const complex_vector made = times(z, w.re, w.im);
    return complex_vector{hn::Mul(scale, made.re), hn::Mul(scale, made.im)};
  };
  const auto loaded = [&](const T* from) HWY_ATTR { return deinterleave(hn::LoadU(d, from), hn::LoadU(d, from + W)); };
  std::int64_t j = 0;
  for (; j + W <= call.count; j += W) vectors(j, product(loaded(call.numbers + 2 * j), loaded(call.factors + 2 * j)));
  for (; j < call.count; ++j) number(j, product(one_number(call.numbers + 2 * j), one_number(call.factors + 2 * j)));
}

void make_products(const product_call<T>& call, T* to) {
  const D d;
  each_product(
      call,
      [&](std::int64_t j, const complex_vector& made) HWY_ATTR {
        V x, y;
        interleave(made, x, y);
        hn::StoreU(x, d, to + 2 * j);
        hn::StoreU(y, d, to + 2 * j + W);
      },
      [&](std::int64_t j, const complex_vector& made) HWY_ATTR { put_number(made, to + 2 * j); });
}

bool same_products(const product_call<T>& call, const T* made) {
  const D d;
  bit_comparison by;
  read_again();
  each_product(
      call,
      [&](std::int64_t j, const complex_vector& again) HWY_ATTR {
        V x, y;
        interleave(again, x, y);
        by.vectors(x, hn::LoadU(d, made + 2 * j));
        by.vectors(y, hn::LoadU(d, made + 2 * j + W));
      },
      [&](std::int64_t j, const complex_vector& again) HWY_ATTR { by.number(again, made + 2 * j); });
  return by.same();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
