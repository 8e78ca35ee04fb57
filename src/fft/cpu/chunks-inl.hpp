// The table of chunks.hpp for the scalar type BALLAST_FFT_SCALAR and the instruction set that Highway compiles for.
// Layer: backend "cpu".
#include <cstring>

#include "fft/cpu/chunks.hpp"
#include "fft/cpu/memory-inl.hpp"

// Highway includes this file once per target, so an ordinary guard does not work.
#if defined(BALLAST_FFT_CHUNKS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_CHUNKS_INL
#else
#define BALLAST_FFT_CHUNKS_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

// ---- Sums, in double ----

#if BALLAST_FFT_BITS == 32 && HWY_TARGET != HWY_SCALAR
using DD = hn::Repartition<double, D>;
#else
using DD = hn::Rebind<double, D>;
#endif
using VD = hn::Vec<DD>;
constexpr int k_wide = static_cast<int>(hn::MaxLanes(DD()));
constexpr int k_halves = W / k_wide;  // vectors of double that hold W numbers

HWY_INLINE void promote(V x, VD* HWY_RESTRICT to) {
#if BALLAST_FFT_BITS == 64
  to[0] = x;
#elif HWY_TARGET == HWY_SCALAR
  to[0] = hn::PromoteTo(DD(), x);
#else
  const hn::Half<D> half;
  to[0] = hn::PromoteTo(DD(), hn::LowerHalf(half, x));
  to[1] = hn::PromoteTo(DD(), hn::UpperHalf(half, x));
#endif
}

// Continues a parity by a register whose scalars are `Scalars` places further in their signals.
template <int Scalars>
HWY_INLINE word_vector join_one(word_vector parity, V x) {
  return hn::Xor(turn_left<chunk_turn<T> * Scalars>(parity), hn::BitCast(words(), x));
}

// Partial sums of N vectors of double, for Vectors weight vectors.
template <int Vectors, int N, bool Squares>
struct wide_sums {
  VD part[2 * Vectors][N];
  VD square[N];

  HWY_INLINE void clear() {
    for (auto& each : part) {
      for (VD& v : each) v = hn::Zero(DD());
    }
    for (VD& v : square) v = hn::Zero(DD());
  }
  // Vector i takes weight(v, p, i): part p of vector v.
  template <class Weight>
  HWY_INLINE void add(const VD* HWY_RESTRICT x, const Weight& weight) {
#pragma GCC unroll 4
    for (int s = 0; s < 2 * Vectors; ++s) {
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) part[s][i] = hn::MulAdd(weight(s / 2, s % 2, i), x[i], part[s][i]);
    }
    if constexpr (Squares) {
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) square[i] = hn::MulAdd(x[i], x[i], square[i]);
    }
  }
};

// Adds a vector of partial sums of at most k_block terms (f32: of any number, since a double has 29 more bits).
HWY_INLINE void add_partial(double* HWY_RESTRICT high, double* HWY_RESTRICT low, VD x) {
#if BALLAST_FFT_BITS == 64
  add_exactly(DD(), high, low, x);
#else
  static_cast<void>(low);
  hn::StoreU(hn::Add(hn::LoadU(DD(), high), x), DD(), high);
#endif
}

// Sums Width · W lanes from `lane` on.
template <int Vectors, int Width, bool Squares>
HWY_INLINE std::uint64_t sum_lanes(const chunk_sum<T>& of, std::int64_t lane) {
  constexpr int N = Width * k_halves;
  const D d;
  const DD dd;
  const std::int64_t block = sizeof(T) == 8 ? k_block : of.rows;
  word_vector parity[Width];
  for (word_vector& each : parity) each = hn::Zero(words());
  for (std::int64_t first = 0; first < of.rows; first += block) {
    const std::int64_t last = HWY_MIN(of.rows, first + block);
    wide_sums<Vectors, N, Squares> sums;
    sums.clear();
    for (std::int64_t j = first; j < last; ++j) {
      VD x[N];
#pragma GCC unroll 2
      for (int i = 0; i < Width; ++i) {
        const V read = hn::LoadU(d, of.from + j * of.lanes + lane + i * W);
        parity[i] = join_one<1>(parity[i], read);
        promote(read, x + i * k_halves);
      }
      sums.add(x, [&](int v, int p, int) HWY_ATTR { return hn::Set(dd, (p == 0 ? of.re : of.im)[v][j]); });
    }
    for (int s = 0; s < 2 * Vectors; ++s) {
      for (int i = 0; i < N; ++i) {
        const std::int64_t to = s * of.lanes + lane + i * k_wide;
        add_partial(of.high + to, of.low + to, sums.part[s][i]);
      }
    }
    if constexpr (Squares) {
      for (int i = 0; i < N; ++i) {
        double* const to = of.squares + lane + i * k_wide;
        hn::StoreU(hn::Add(hn::LoadU(dd, to), sums.square[i]), dd, to);
      }
    }
  }
  std::uint64_t made = 0;
  for (int i = 0; i < Width; ++i) made ^= joined<lane_order::signal>(parity[i], chunk_turn<T> * (of.rows - 1) + lane + i * W);
  return made;
}

// Sums the elements of one lane, k_halves vectors of double at a time. Each place of a vector is a partial sum.
template <int Vectors, bool Squares>
HWY_INLINE std::uint64_t sum_line(const chunk_sum<T>& of) {
  const D d;
  const DD dd;
  HWY_ALIGN double high[2 * Vectors * W] = {}, low[2 * Vectors * W] = {}, squares[W] = {};
  const std::int64_t whole = of.rows / W * W;
  const std::int64_t block = sizeof(T) == 8 ? k_block * W : HWY_MAX(whole, std::int64_t{1});
  wide_sums<Vectors, k_halves, Squares> sums;
  word_vector parity = hn::Zero(words());
  const auto put = [&]() HWY_ATTR {
    for (int i = 0; i < k_halves; ++i) {
      for (int s = 0; s < 2 * Vectors; ++s) add_partial(high + s * W + i * k_wide, low + s * W + i * k_wide, sums.part[s][i]);
      if constexpr (Squares) hn::Store(hn::Add(hn::Load(dd, squares + i * k_wide), sums.square[i]), dd, squares + i * k_wide);
    }
  };
  const auto add = [&](V read, const double* const(&re)[2], const double* const(&im)[2], std::int64_t j) HWY_ATTR {
    VD x[k_halves];
    parity = join_one<W>(parity, read);
    promote(read, x);
    sums.add(x, [&](int v, int p, int i) HWY_ATTR { return hn::LoadU(dd, (p == 0 ? re : im)[v] + j + i * k_wide); });
  };
  for (std::int64_t first = 0; first < whole; first += block) {
    sums.clear();
    for (std::int64_t j = first; j < HWY_MIN(whole, first + block); j += W) add(hn::LoadU(d, of.from + j), of.re, of.im, j);
    put();
  }
  if (const std::int64_t rest = of.rows - whole; rest > 0) {
    HWY_ALIGN T x[W] = {};
    HWY_ALIGN double weight[2][2][W] = {};
    std::memcpy(x, of.from + whole, static_cast<std::size_t>(rest) * sizeof(T));
    for (int v = 0; v < Vectors; ++v) {
      std::memcpy(weight[0][v], of.re[v] + whole, static_cast<std::size_t>(rest) * sizeof(double));
      std::memcpy(weight[1][v], of.im[v] + whole, static_cast<std::size_t>(rest) * sizeof(double));
    }
    sums.clear();
    add(hn::Load(d, x), {weight[0][0], weight[0][1]}, {weight[1][0], weight[1][1]}, 0);
    put();
  }
  const auto total = [&](const double* from) {
    double made = 0;
    for (int i = 0; i < W; ++i) made += from[i];
    return made;
  };
  for (int s = 0; s < 2 * Vectors; ++s) {
    of.high[s] += total(high + s * W);
    of.low[s] += total(low + s * W);
  }
  if constexpr (Squares) *of.squares += total(squares);
  return joined<lane_order::chunk>(parity, chunk_turn<T> * ((of.rows + W - 1) / W - 1) * W);
}

template <int Vectors, bool Squares>
HWY_INLINE std::uint64_t sum_chosen(const chunk_sum<T>& of) {
  if (of.lanes == 1) return sum_line<Vectors, Squares>(of);
  constexpr int k_width = sizeof(T) == 8 || Vectors == 1 ? 2 : 1;
  std::int64_t lane = 0;
  std::uint64_t parity = 0;
  for (; lane + k_width * W <= of.lanes; lane += k_width * W) parity ^= sum_lanes<Vectors, k_width, Squares>(of, lane);
  for (; lane < of.lanes; lane += W) parity ^= sum_lanes<Vectors, 1, Squares>(of, lane);
  return parity;
}

std::uint64_t sum_chunk(const chunk_sum<T>& of) {
  if (of.re[1] == nullptr) return of.squares == nullptr ? sum_chosen<1, false>(of) : sum_chosen<1, true>(of);
  return of.squares == nullptr ? sum_chosen<2, false>(of) : sum_chosen<2, true>(of);
}

// ---- Maps ----

// W numbers that lie `stride`, 1 or 2, apart. first: those between them belong to the complex numbers whose first parts these are.
HWY_INLINE V load_strided(const T* from, std::int64_t stride, bool first) {
  const D d;
  if (stride == 1) return hn::LoadU(d, from);
  const T* const pairs = first ? from : from - 1;
  const complex_vector both = deinterleave(hn::LoadU(d, pairs), hn::LoadU(d, pairs + W));
  return first ? both.re : both.im;
}

// The terms of results `row`, W lanes from l on.
HWY_INLINE V mapped(const chunk_map<T>& of, std::int64_t row, std::int64_t o, std::int64_t l) {
  const D d;
  V sum = hn::Zero(d);
  for (std::int64_t t = of.begin[row]; t < of.begin[row + 1]; ++t) {
    const row_place& s = of.source[t];
    const V x = load_strided(of.from + s.offset + s.stride * (o * of.from_outer + l), s.stride, s.offset % 2 == 0);
    sum = hn::MulAdd(hn::Set(d, of.factors[t]), x, sum);
  }
  return sum;
}
HWY_INLINE T mapped_number(const chunk_map<T>& of, std::int64_t row, std::int64_t o, std::int64_t l) {
  const hn::CappedTag<T, 1> d;
  auto sum = hn::Zero(d);
  for (std::int64_t t = of.begin[row]; t < of.begin[row + 1]; ++t) {
    const row_place& s = of.source[t];
    sum = hn::MulAdd(hn::Set(d, of.factors[t]), hn::Set(d, of.from[s.offset + s.stride * (o * of.from_outer + l)]), sum);
  }
  return hn::GetLane(sum);
}

void map_chunk(const chunk_map<T>& of) {
  const D d;
  const std::int64_t whole = of.lanes / W * W;
  for (std::int64_t o = 0; o < of.outer; ++o) {
    for (std::int64_t i = 0; i < of.rows; ++i) {
      const row_place& at = of.target[i];
      T* const to = of.to + at.offset + at.stride * o * of.to_outer;
      if (of.paired[i] != 0) {
        for (std::int64_t l = 0; l < whole; l += W) {
          V low, high;
          interleave({mapped(of, i, o, l), mapped(of, i + 1, o, l)}, low, high);
          hn::StoreU(low, d, to + 2 * l);
          hn::StoreU(high, d, to + 2 * l + W);
        }
        for (std::int64_t l = whole; l < of.lanes; ++l) {
          const T re = mapped_number(of, i, o, l), im = mapped_number(of, i + 1, o, l);
          to[2 * l] = re;
          to[2 * l + 1] = im;
        }
        ++i;
        continue;
      }
      for (std::int64_t l = 0; l < whole; l += W) {
        const V made = mapped(of, i, o, l);
        if (at.stride == 1) {
          hn::StoreU(made, d, to + l);
        } else {
          HWY_ALIGN T each[W];
          hn::Store(made, d, each);
          for (int k = 0; k < W; ++k) to[at.stride * (l + k)] = each[k];
        }
      }
      for (std::int64_t l = whole; l < of.lanes; ++l) to[at.stride * l] = mapped_number(of, i, o, l);
    }
  }
}

// ---- Copies ----

void gather_chunk(const chunk_copy<T>& of) {
  for (std::int64_t l = 0; l < of.lanes; l += W) {
    const T* const from = of.from + l * of.distance;
    std::int64_t j = 0;
    for (; j + W <= of.count; j += W) transpose_in(from + j, of.distance, W, of.to + j * of.lanes + l, of.lanes);
    for (; j < of.count; ++j) {
      for (int i = 0; i < W; ++i) of.to[j * of.lanes + l + i] = from[i * of.distance + j];
    }
  }
}

void scatter_chunk(const chunk_copy<T>& of) {
  const D d;
  for (std::int64_t l = 0; l < of.lanes; l += W) {
    T* const to = of.to + l * of.distance;
    std::int64_t j = 0;
    for (; j + W <= of.count; j += W) {
      V v[W];
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) v[i] = hn::LoadU(d, of.from + (j + i) * of.lanes + l);
      transpose(v);
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) hn::StoreU(v[i], d, to + i * of.distance + j);
    }
    for (; j < of.count; ++j) {
      for (int i = 0; i < W; ++i) to[i * of.distance + j] = of.from[j * of.lanes + l + i];
    }
  }
}

const chunk_kernels<T>* chunk_table_for_target() {
  static const chunk_kernels<T> table = {W, sum_chunk, map_chunk, gather_chunk, scatter_chunk};
  return &table;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
