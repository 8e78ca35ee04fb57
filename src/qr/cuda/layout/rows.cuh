// Rows of a tall matrix in the registers of a warp: neighbouring rows of a column, loaded at once (row_groups); and the elements that lane
// 4 g + t holds when tensor cores multiply them in double (arch::mma_m16n8k8_f64).
// Tensor cores multiply real numbers. A row of w complex numbers counts as a row of 2 w reals, x, −y for each x + iy, and a column of m as
// one of 2 m, x above y.
// Layer: backend "cuda" of QR, device code.
#pragma once

#include <cstdint>

#include "cuda/arch/arch.cuh"
#include "cuda/block/unroll.cuh"
#include "qr/cuda/layout/number_types.hpp"
#include "qr/cuda/layout/shapes.hpp"

namespace ballast::qr::cuda {

inline constexpr int k_row_tile = 16;    // rows of a row_tile
inline constexpr int k_column_tile = 8;  // rows of reals of a column_tile
inline constexpr int k_block = 8;        // columns of reals of a block of a row_tile, and columns of one of a column_tile

// Neighbouring rows of a column.
template <class S, int Count>
struct alignas(Count * sizeof(S)) row_group {
  S at[Count];
};

// A matrix whose rows are read and written by groups. S may be const.
template <class S, int Count>
class row_groups {
 public:
  template <class T>
  struct plain {
    using type = T;
  };
  template <class T>
  struct plain<const T> {
    using type = T;
  };
  using group = row_group<typename plain<S>::type, Count>;

  __device__ __forceinline__ row_groups(S* data, std::int64_t ld, std::int64_t rows, int width, std::int64_t row_stride = 1)
      : data_(data),
        ld_(ld),
        rows_(rows),
        stride_(row_stride),
        width_(width),
        whole_((reinterpret_cast<std::uintptr_t>(data) / sizeof(S) | ld) % Count == 0 && row_stride == 1) {}

  __device__ __forceinline__ int width() const { return width_; }
  __device__ __forceinline__ std::int64_t rows() const { return rows_; }
  // Returns whether rows first … first + count − 1 exist, and each of their groups is one aligned load.
  __device__ __forceinline__ bool are_whole(std::int64_t first, int count) const { return whole_ && first + count <= rows_; }
  // Rows and columns outside the matrix are loaded as 0. Whole: are_whole() was true. Itself: by a separate load instruction,
  // arch::load_itself.
  template <bool Whole, bool Itself = false>
  __device__ __forceinline__ group load(std::int64_t row, int column) const {
    group made = {};
    if (column >= width_) return made;
    S* const from = address(row, column);
    const auto read = [](const auto* at) {
      if constexpr (Itself) return arch::load_itself(at);
      return *at;
    };
    if constexpr (Whole) return read(reinterpret_cast<const group*>(from));
    for (int h = 0; h < Count; ++h) {
      if (row + h < rows_) made.at[h] = read(from + h * stride_);
    }
    return made;
  }
  // Called by a warp before it loads them: prefetches rows first … first + count − 1 into L2. It costs about as much as loading them from
  // there.
  __device__ __forceinline__ void ask(std::int64_t first, int count) const {
    if (stride_ != 1 || first + count > rows_) return;
    constexpr int sector = 32 / sizeof(S);
    const int each = count / sector;
#pragma unroll 1
    for (int e = arch::lane(); e < each * width_; e += 32) arch::prefetch_l2(address(first + e % each * sector, e / each));
  }
  template <bool Whole>
  __device__ __forceinline__ void store(const group& value, std::int64_t row, int column) const {
    if (column >= width_) return;
    S* const to = address(row, column);
    if constexpr (Whole) {
      *reinterpret_cast<group*>(to) = value;
    } else {
      for (int h = 0; h < Count; ++h) {
        if (row + h < rows_) to[h * stride_] = value.at[h];
      }
    }
  }

 private:
  // Recomputed for each access; otherwise a loop would keep the addresses of all columns in registers.
  __device__ __forceinline__ S* address(std::int64_t row, int column) const { return data_ + row * stride_ + column * arch::opaque(ld_); }

  S* data_;
  std::int64_t ld_, rows_, stride_;
  int width_;
  bool whole_;
};

template <class S>
using row_pairs = row_groups<S, 2>;
// Groups of two reals of a column.
template <class S>
using real_pairs = row_groups<S, 2 / static_cast<int>(k_reals<typename row_pairs<S>::template plain<S>::type>)>;

// k_row_tile rows of `Blocks` blocks of columns, as loaded: of each block the lane holds rows 2 g, 2 g + 1 of columns 2 t, 2 t + 1 of
// reals.
template <class S, int Blocks>
struct loaded_rows {
  static constexpr int reals = static_cast<int>(k_reals<S>), columns = 2 / reals;
  typename row_pairs<S>::group at[Blocks][columns];

  // Loads the rows from `row` on. Elements outside the matrix are 0.
  __device__ __forceinline__ void load(const row_pairs<const S>& from, std::int64_t row) {
    if (from.are_whole(row, k_row_tile)) {
      each_pair([&](auto& to, int first, int column) { to = from.template load<true>(row + first, column); });
    } else {
      each_pair([&](auto& to, int first, int column) { to = from.template load<false>(row + first, column); });
    }
  }
  __device__ __forceinline__ void store(const row_pairs<S>& to, std::int64_t row) {
    if (to.are_whole(row, k_row_tile)) {
      each_pair([&](const auto& from, int first, int column) { to.template store<true>(from, row + first, column); });
    } else {
      each_pair([&](const auto& from, int first, int column) { to.template store<false>(from, row + first, column); });
    }
  }

 private:
  // Calls use(pair, first row of the pair, column).
  template <class Use>
  __device__ __forceinline__ void each_pair(Use use) {
    const int g = arch::lane() / 4, t = arch::lane() % 4;
    ballast::cuda::unrolled<Blocks>([&](auto b) {
      for (int c = 0; c < columns; ++c) use(at[decltype(b)::value][c], 2 * g, k_block / reals * decltype(b)::value + columns * t + c);
    });
  }
};

// The same rows in the layout of a product's accumulators, row by row. As the left operand of a product, whose inner index then is the
// column, they are the same numbers in the same registers.
template <int Blocks>
struct row_tile {
  double at[Blocks][4];

  // A load brings two rows of a column into neighbouring registers; in a product two columns of a row are neighbours. They are exchanged
  // here once (arch::apart); otherwise the compiler moves them for each product.
  template <class S>
  __device__ __forceinline__ void take(const loaded_rows<S, Blocks>& from) {
    each([&](double& number, auto b, int c, int h) {
      if constexpr (is_complex<S>) {
        const S& two = from.at[decltype(b)::value][0].at[h];
        number = moved<double>(c == 0 ? two.re : -two.im);
      } else {
        number = moved<double>(from.at[decltype(b)::value][c].at[h]);
      }
    });
  }
  template <class S>
  __device__ __forceinline__ void give(loaded_rows<S, Blocks>& to) {
    each([&](double& number, auto b, int c, int h) {
      if constexpr (is_complex<S>) {
        S& two = to.at[decltype(b)::value][0].at[h];
        if (c == 0) {
          two.re = moved<real_of<S>>(number);
        } else {
          two.im = moved<real_of<S>>(-number);
        }
      } else {
        to.at[decltype(b)::value][c].at[h] = moved<S>(number);
      }
    });
  }

 private:
  template <class To, class From>
  __device__ __forceinline__ static To moved(From value) {
    if constexpr (sizeof(To) == sizeof(From)) return arch::apart(value);
    return static_cast<To>(value);
  }
  template <class Use>
  __device__ __forceinline__ void each(Use use) {
    ballast::cuda::unrolled<Blocks>([&](auto b) {
      for (int q = 0; q < 4; ++q) use(at[decltype(b)::value][q], b, q % 2, q / 2);
    });
  }
};

// d += x B. x: the rows of a block in the layout of row_tile, or of a product's result. B: a tile of 8 × 8, of which lane 4 g + t holds
// rows 2 t, 2 t + 1 of column g.
__device__ __forceinline__ void multiply_rows(double (&d)[4], const double (&x)[4], const double (&B)[2]) {
  arch::mma_m16n8k8_f64(d, {x[0], x[2], x[1], x[3]}, B);
}

// k_column_tile rows of reals of `Blocks` blocks of columns: of each block the lane holds rows 2 t, 2 t + 1 of column g. The order of the
// rows within a product is irrelevant, as long as both operands agree.
template <class S, int Blocks>
struct column_tile {
  static constexpr int rows = k_column_tile / static_cast<int>(k_reals<S>);  // rows of numbers
  real_of<S> at[Blocks][2];

  __device__ __forceinline__ void load(const real_pairs<const S>& from, std::int64_t row, int column = 0) {
    if (from.are_whole(row, rows)) {
      load_pairs<true>(from, row, column);
    } else {
      load_pairs<false>(from, row, column);
    }
  }

 private:
  template <bool Whole>
  __device__ __forceinline__ void load_pairs(const real_pairs<const S>& from, std::int64_t row, int column) {
    const int g = arch::lane() / 4, t = arch::lane() % 4;
    ballast::cuda::unrolled<Blocks>([&](auto b) {
      constexpr int block = decltype(b)::value;
      const auto two = from.template load<Whole>(row + rows / 4 * t, column + k_block * block + g);
      if constexpr (is_complex<S>) {
        at[block][0] = two.at[0].re;
        at[block][1] = two.at[0].im;
      } else {
        for (int h = 0; h < 2; ++h) at[block][h] = two.at[h];
      }
    });
  }
};

// d += [x, y]ᵀ z, a block of columns each: the operands are laid out as in column_tile. The results of lane 4 g + t are the products of
// columns g of x and of y with columns 2 t, 2 t + 1 of z.
__device__ __forceinline__ void multiply_columns(double (&d)[4], const double (&x)[2], const double (&y)[2], const double (&z)[2]) {
  arch::mma_m16n8k8_f64(d, {x[0], y[0], x[1], y[1]}, z);
}

}  // namespace ballast::qr::cuda
