// The step between a complex transform of m points and the half spectrum of 2m reals, along a signal in memory. kernels.hpp describes it.
// Layer: backend "cpu". It computes the same formulas as split_real and join_real in stages-inl.hpp, whose vectors lie across signals.
#include "fft/cpu/kernels.hpp"
#include "fft/cpu/memory-inl.hpp"

// Highway includes this file once per target, so an ordinary guard does not work.
#if defined(BALLAST_FFT_PAIRS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_PAIRS_INL
#else
#define BALLAST_FFT_PAIRS_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

// ---- One pair, as vectors or as scalars ----

// a = z_k, b = conj(z_{m−k}), w = w_k. Returns x_k in `first` and conj(x_{m−k}) in `second`; with `join` the reverse, times 2.
HWY_INLINE void transform_pair(complex_vector a, complex_vector b, V wr, V wi, bool join, complex_vector& first, complex_vector& second) {
  const D d;
  const V size = hn::Set(d, join ? T(1) : T(0.5));
  a = {hn::Mul(size, a.re), hn::Mul(size, a.im)};
  b = {hn::Mul(size, b.re), hn::Mul(size, b.im)};
  const complex_vector S = a + b;
  const complex_vector P = times(a - b, wr, join ? hn::Neg(wi) : wi);
  const complex_vector minus = minus_i(S, P), plus = plus_i(S, P);
  first = join ? plus : minus;
  second = join ? minus : plus;
}

// Scalar pairs take the same instructions, in the first lane.
HWY_INLINE complex_vector one_number(const T* from) {
  const D d;
  return {hn::Set(d, from[0]), hn::Set(d, from[1])};
}

HWY_INLINE void put_number(const complex_vector& v, T* out) {
  out[0] = hn::GetLane(v.re);
  out[1] = hn::GetLane(v.im);
}

// Compares the bits of two computations of numbers; any NaN equals any NaN.
struct bit_comparison {
  word_vector different;
  std::uint64_t different_number = 0;

  HWY_INLINE bit_comparison() : different(hn::Zero(words())) {}
  HWY_INLINE void vectors(V computed, V found) {
    const words d;
    const auto both_nan = hn::RebindMask(d, hn::And(hn::IsNaN(computed), hn::IsNaN(found)));
    different = hn::Or(different, hn::IfThenZeroElse(both_nan, hn::Xor(hn::BitCast(d, computed), hn::BitCast(d, found))));
  }
  HWY_INLINE void number(const complex_vector& computed, const T* found) {
    const T again[2] = {hn::GetLane(computed.re), hn::GetLane(computed.im)};
    for (int i = 0; i < 2; ++i) {
      if (!(found[i] != found[i] && again[i] != again[i]))
        different_number |= std::bit_cast<word_of<T>>(found[i]) ^ std::bit_cast<word_of<T>>(again[i]);
    }
  }
  HWY_INLINE bool same() const { return hn::AllTrue(words(), hn::Eq(different, hn::Zero(words()))) && different_number == 0; }
};

// Returns W complex numbers from memory, in reverse order.
HWY_INLINE complex_vector load_reversed(const T* from) {
  const D d;
  const complex_vector v = deinterleave(hn::LoadU(d, from), hn::LoadU(d, from + W));
  return {hn::Reverse(d, v.re), hn::Reverse(d, v.im)};
}

HWY_INLINE complex_vector conjugate(const complex_vector& v) { return {v.re, hn::Neg(v.im)}; }

// ---- A run of pairs ----

// Calls vectors(k, low, high) and then numbers(k, low, high, which) with the results of all pairs. `high` is in the order of memory. Twice:
// the last vectors may have pairs of those before them again.
template <bool Twice = false, class Vectors, class Numbers>
HWY_INLINE void each_pair(const pair_call<T>& call, Vectors&& vectors, Numbers&& numbers) {
  const D d;
  const std::int64_t end = call.first + call.count, m = call.m;
  const V cr = hn::Set(d, call.coarse[0]), ci = hn::Set(d, call.coarse[1]);
  const auto factor = [&](const complex_vector& fine) HWY_ATTR { return times(fine, cr, ci); };
  std::int64_t k = call.first;
  if (k == 0) {
    // z_0 makes x_0 and x_m, whose imaginary parts are zero and ignored.
    const complex_vector a = one_number(call.low);
    const complex_vector b = call.join ? one_number(call.high + 2 * (end - 1)) : a;
    const V imaginary = call.join ? b.re : a.im;
    const V sum = hn::Add(a.re, imaginary), difference = hn::Sub(a.re, imaginary);
    const V zero = hn::Zero(d);
    numbers(k, call.join ? complex_vector{sum, difference} : complex_vector{sum, zero}, complex_vector{difference, zero},
            call.join ? sides::low : sides::both);
    ++k;
  }
  const std::int64_t last = HWY_MIN(end, (m + 1) / 2) - W;  // the last vectors begin here at most
  while (k <= last || (Twice && last >= HWY_MAX(call.first, std::int64_t{1}) && k < last + W)) {
    if (Twice) k = HWY_MIN(k, last);
    const T* const low = call.low + 2 * (k - call.first);
    const T* const high = call.high + 2 * (end - k - W);
    const complex_vector a = deinterleave(hn::LoadU(d, low), hn::LoadU(d, low + W));
    const complex_vector b = load_reversed(high);
    const T* const fine = call.fine + 2 * (k - call.first);
    const complex_vector w = factor(deinterleave(hn::LoadU(d, fine), hn::LoadU(d, fine + W)));
    complex_vector first, second;
    transform_pair(a, conjugate(b), w.re, w.im, call.join, first, second);
    second = conjugate(second);
    vectors(k, first, complex_vector{hn::Reverse(d, second.re), hn::Reverse(d, second.im)});
    k += W;
  }
  for (; k < end; ++k) {
    const T* const low = call.low + 2 * (k - call.first);
    const T* const high = call.high + 2 * (end - 1 - k);
    const bool middle = 2 * k == m;
    const complex_vector w = factor(one_number(call.fine + 2 * (k - call.first)));
    complex_vector first, second;
    transform_pair(one_number(low), conjugate(one_number(high)), w.re, w.im, call.join, first, second);
    numbers(k, first, conjugate(second), middle ? sides::low : sides::both);
  }
}

void make_pairs(const pair_call<T>& call, const pair_results<T>& to) {
  const D d;
  const std::int64_t end = call.first + call.count;
  each_pair<true>(
      call,
      [&](std::int64_t k, const complex_vector& low, const complex_vector& high) HWY_ATTR {
        V x, y;
        interleave(low, x, y);
        hn::StoreU(x, d, to.low + 2 * (k - call.first));
        hn::StoreU(y, d, to.low + 2 * (k - call.first) + W);
        interleave(high, x, y);
        hn::StoreU(x, d, to.high + 2 * (end - k - W));
        hn::StoreU(y, d, to.high + 2 * (end - k - W) + W);
      },
      [&](std::int64_t k, const complex_vector& low, const complex_vector& high, sides which) HWY_ATTR {
        put_number(low, to.low + 2 * (k - call.first));
        if (which == sides::both) put_number(high, to.high + 2 * (end - 1 - k));
      });
}

bool same_pairs(const pair_call<T>& call, const pair_results<T>& made) {
  const D d;
  const std::int64_t end = call.first + call.count;
  bit_comparison by;
  const auto compare_run = [&](const complex_vector& computed, const T* from) HWY_ATTR {
    V x, y;
    interleave(computed, x, y);
    by.vectors(x, hn::LoadU(d, from));
    by.vectors(y, hn::LoadU(d, from + W));
  };
  read_again();
  each_pair(
      call,
      [&](std::int64_t k, const complex_vector& low, const complex_vector& high) HWY_ATTR {
        compare_run(low, made.low + 2 * (k - call.first));
        compare_run(high, made.high + 2 * (end - k - W));
      },
      [&](std::int64_t k, const complex_vector& low, const complex_vector& high, sides which) HWY_ATTR {
        by.number(low, made.low + 2 * (k - call.first));
        if (which == sides::both) by.number(high, made.high + 2 * (end - 1 - k));
      });
  return by.same();
}

// ---- Seals of numbers that wait ----

// Number k joins the seal as a word: the sum of its real part and its imaginary part, which is rotated by half a word, rotated by 1 + (k
// mod 16) bits. Each step is a bijection of each word, so a change of one always shows. Equal flips in 16 neighbouring words hit different
// bits, and others change the sum by what depends on the numbers. The order in which numbers join does not matter.
constexpr int k_rotations = 16;
static_assert(k_rotations % W == 0);

HWY_INLINE word_vector sealed(const complex_vector& z, hn::Vec<words> left) {
  const words d;
  const auto both = hn::Add(hn::BitCast(d, z.re), hn::RotateRight<k_bits / 2>(hn::BitCast(d, z.im)));
  return hn::Or(hn::Shl(both, left), hn::Shr(both, hn::Sub(hn::Set(d, static_cast<word>(k_bits)), left)));
}

// Returns the sum of the first `used` lanes.
HWY_INLINE std::uint64_t sum_of(word_vector seal, int used) {
  HWY_ALIGN word lanes[W];
  hn::Store(seal, words(), lanes);
  word sum = 0;
  for (int l = 0; l < used; ++l) sum = static_cast<word>(sum + lanes[l]);
  return sum;
}

// Returns the rotations of the lanes if lane 0 has number `first`.
HWY_INLINE word_vector rotations(std::int64_t first) {
  const words d;
  const auto index = hn::Add(hn::Iota(d, 0), hn::Set(d, static_cast<word>(first % k_rotations)));
  return hn::Add(hn::And(index, hn::Set(d, word{k_rotations - 1})), hn::Set(d, word{1}));
}

std::uint64_t seal_numbers(const T* from, std::int64_t count, std::int64_t first) {
  const D d;
  word_vector seal = hn::Zero(words());
  std::int64_t i = 0;
  for (; i + W <= count; i += W)
    seal = hn::Add(seal, sealed(deinterleave(hn::LoadU(d, from + 2 * i), hn::LoadU(d, from + 2 * i + W)), rotations(first + i)));
  if (i < count) {
    HWY_ALIGN T rest[2 * W] = {};
    std::memcpy(rest, from + 2 * i, static_cast<std::size_t>(2 * (count - i)) * sizeof(T));
    seal = hn::Add(seal, sealed(deinterleave(hn::Load(d, rest), hn::Load(d, rest + W)), rotations(first + i)));
  }
  return sum_of(seal, W);
}

std::uint64_t seal_tile(const T* tile, std::int64_t rows, int used, std::int64_t first, std::int64_t step) {
  const words d;
  word_vector seal = hn::Zero(d);
  for (std::int64_t j = 0; j < rows; ++j) seal = hn::Add(seal, sealed(complex_at(tile, j), rotations(first + j * step)));
  return sum_of(seal, used);
}

// ---- Runs ----

std::uint64_t join_run(const T* from, std::int64_t scalars) {
  const D d;
  word_vector parity = hn::Zero(words());
  std::int64_t i = 0;
  read_again();
  for (; i + 2 * W <= scalars; i += 2 * W) parity = join(parity, hn::LoadU(d, from + i), hn::LoadU(d, from + i + W));
  run_parity run;
  run.add(parity, 0);
  run.add_scalars(from + i, scalars - i, i);
  return run.done();
}

std::uint64_t store_run(const T* from, std::int64_t scalars, T* to) {
  const std::int64_t whole = scalars / (2 * W) * (2 * W);
  word_vector parity = hn::Zero(words());
  store_vectors<false>(from, whole, to, parity);
  run_parity run;
  run.add(parity, 0);
  store_rest(from + whole, scalars - whole, to + whole, run, whole);
  return run.done();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
