// Checks of a tile of products: checksums within a warp (FT K-Means; Kosaian's detection) and over the block's tile (Wu).
// Layer: backend "cuda" of K-Means, device code.
// Source: FT K-Means, section IV and Figure 6; docs/design/kmeans-cuda.md, "The schemes of the paper", has thresholds and coverage.
#pragma once

#include "kmeans/cuda/schemes/tile_product.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

// Checks detect and warp. A lane sums the fragments that its warp multiplies: e₁ gives Σ x_i and e₂ gives Σ i x_i over the fragments i
// down, and likewise across. Products of these sums are sums over all fragments of the products, at the same positions of a fragment:
//   one = Σ_ij p_ij, across = Σ_ij j p_ij, down = Σ_ij i p_ij     (i, j from 1)
// So each lane verifies, locates and corrects its own elements.
template <class T, tile_policy P, class Injector>
struct warp_check {
  using product = tile_product<T, P, Injector>;
  using fragment = typename product::fragment;
  static constexpr int k_down = product::k_down, k_across = product::k_across, k_scores = product::k_scores, k_halves = product::k_halves;
  static constexpr bool k_locates = P.check == tile_check::warp;

  static constexpr bool k_coarse = sizeof(T) == 4;  // the sums are rounded to TF32

  product& self;
  T one[k_scores] = {}, across[k_scores] = {}, down[k_scores] = {};
  // Sums of squares of the sums that this lane has computed: of rows by e₁ and e₂, of columns likewise. They bound the rounding of these
  // sums.
  T x_size[k_halves][2] = {}, c_size[2] = {};

  __device__ __forceinline__ explicit warp_check(product& of) : self(of) {}

  // Bounds of the residuals of correct elements at one position.
  struct limits {
    T one, down, across;
  };

  // Adds the sums of one k-slice's operands, multiplied.
  __device__ __forceinline__ void see(const features<T> (&x)[k_down][k_halves], const features<T> (&c)[k_across]) {
    features<T> x1[k_halves] = {}, x2[k_halves] = {}, c1 = {}, c2 = {};
#pragma unroll
    for (int v = 0; v < k_vector<T>; ++v) {
#pragma unroll
      for (int h = 0; h < k_halves; ++h)
#pragma unroll
        for (int i = 0; i < k_down; ++i) {
          x1[h].at[v] += x[i][h].at[v];
          x2[h].at[v] = fma(static_cast<T>(i + 1), x[i][h].at[v], x2[h].at[v]);
        }
#pragma unroll
      for (int j = 0; j < k_across; ++j) {
        c1.at[v] += c[j].at[v];
        c2.at[v] = fma(static_cast<T>(j + 1), c[j].at[v], c2.at[v]);
      }
    }
    if constexpr (k_coarse) {
#pragma unroll
      for (int v = 0; v < k_vector<T>; ++v) {
#pragma unroll
        for (int h = 0; h < k_halves; ++h) {
          x_size[h][0] = fma(x1[h].at[v], x1[h].at[v], x_size[h][0]);
          if constexpr (k_locates) x_size[h][1] = fma(x2[h].at[v], x2[h].at[v], x_size[h][1]);
        }
        c_size[0] = fma(c1.at[v], c1.at[v], c_size[0]);
        if constexpr (k_locates) c_size[1] = fma(c2.at[v], c2.at[v], c_size[1]);
      }
    }
#pragma unroll
    for (int h = 0; h < k_halves; ++h) x1[h] = rounded(x1[h]), x2[h] = rounded(x2[h]);
    const typename fragment::rows e1 = product::as_rows(x1);
    const typename fragment::vector ones = packed(rounded(c1));
    fragment::multiply_add(one, e1, ones);
    if constexpr (k_locates) {
      fragment::multiply_add(across, e1, packed(rounded(c2)));
      fragment::multiply_add(down, product::as_rows(x2), ones);
    }
  }

  // Bounds the rounding of the sums of products, from the norms of rows and columns; and of the operands' sums, from their own norms.
  __device__ __forceinline__ limits limits_of(int s) const {
    const tile_arguments<T>& a = self.a;
    T x = 0, c = 0;
#pragma unroll
    for (int i = 0; i < k_down; ++i) x += a.points.norm[self.first_row + self.row_of(i, s)];
#pragma unroll
    for (int j = 0; j < k_across; ++j) {
      const int column = self.first_column + self.column_of(j, s);
      c += column < a.k ? a.norms[column] : T(0);
    }
    const T sums = a.slack * sqrt(static_cast<T>(k_down * k_across)) * sqrt(x) * sqrt(c) + smallest();
    limits made{sums, k_down * sums, k_across * sums};
    if constexpr (k_coarse) {
      // A relative error of 2^-11 in each of two operands; if features are alike, all errors have the same sign.
      constexpr T rounding = T(0x1.01p-10);
      T rows[2], columns[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        rows[e] = sqrt(add_quad(x_size[s / 2][e]));
        columns[e] = sqrt(__shfl_sync(0xffffffffu, add_quad(c_size[e]), 8 * self.t + s % 2 * 4));
      }
      made.one += rounding * rows[0] * columns[0];
      made.down += rounding * rows[1] * columns[0];
      made.across += rounding * rows[0] * columns[1];
    }
    return made;
  }

  // Verifies this lane's elements and corrects those it can locate. Returns false if a fault remains.
  __device__ __forceinline__ bool verify(int chunk) {
    self.given.strike(index<k_scores>{}, site::checksum, self.here(chunk), one);
    bool right = true;
#pragma unroll
    for (int s = 0; s < k_scores; ++s) {
      T sum = 0;
#pragma unroll
      for (int i = 0; i < k_down; ++i)
#pragma unroll
        for (int j = 0; j < k_across; ++j) sum += self.sums[i][j][s];
      limits limit = limits_of(s);
      self.given.strike(index<1>{}, site::threshold, self.here(chunk), &limit.one);
      const T residual = one[s] - sum;
      std::uint32_t word = abs(residual) <= limit.one ? 0u : 1u;
      self.given.strike(index<1>{}, site::comparison, self.here(chunk), &word);
      if (word == 0) continue;
      if constexpr (k_locates) {
        right = correct(s, residual, limit) && right;
      } else {
        right = false;
      }
    }
    return right;
  }
  __device__ static constexpr T smallest() { return sizeof(T) == 4 ? T(1e-30) : T(1e-290); }

  // Locates the wrong element among those at position s, from ratios of residuals, and replaces it by the checksum minus the others. The
  // correction stands only if the other two residuals, which were not used to compute it, are those of a correct element.
  __device__ __forceinline__ bool correct(int s, T residual, const limits& limit) {
    T over_down = 0, over_across = 0, largest = -1;
    int i_largest = 0, j_largest = 0;
#pragma unroll
    for (int i = 0; i < k_down; ++i)
#pragma unroll
      for (int j = 0; j < k_across; ++j) {
        const T p = self.sums[i][j][s];
        over_down = fma(static_cast<T>(i + 1), p, over_down);
        over_across = fma(static_cast<T>(j + 1), p, over_across);
        if (!(abs(p) <= largest)) largest = p == p ? abs(p) : std::numeric_limits<T>::infinity(), i_largest = i, j_largest = j;
      }
    const T residual_down = down[s] - over_down, residual_across = across[s] - over_across;
    // Bounds of the error of a ratio of residuals, times the residual. The location is certain only if it is less than half of the
    // residual.
    const T off_limit_down = limit.down + k_down * limit.one, off_limit_across = limit.across + k_across * limit.one;
    if (abs(residual) < 2 * off_limit_down || abs(residual) < 2 * off_limit_across) return false;
    const bool finite = abs(residual_down) < large() && abs(residual_across) < large();
    if (finite && abs(residual_down) <= limit.down && abs(residual_across) <= limit.across) {
      // The checksum itself was corrupted.
      one[s] -= residual;
      product::report(self.given, abft::outcome::corrected, static_cast<double>(residual), static_cast<double>(limit.one), -1, check::row);
      return one[s] == one[s];
    }
    // If the residuals are not finite, the largest number is the wrong one; otherwise the ratios of residuals give its location.
    const int i_wrong = finite ? static_cast<int>(rint(residual_down / residual)) - 1 : i_largest;
    const int j_wrong = finite ? static_cast<int>(rint(residual_across / residual)) - 1 : j_largest;
    T others = 0, others_down = 0, others_across = 0;
#pragma unroll
    for (int i = 0; i < k_down; ++i)
#pragma unroll
      for (int j = 0; j < k_across; ++j) {
        const T p = i == i_wrong && j == j_wrong ? T(0) : self.sums[i][j][s];
        others += p;
        others_down = fma(static_cast<T>(i + 1), p, others_down);
        others_across = fma(static_cast<T>(j + 1), p, others_across);
      }
    const T value = one[s] - others;
    const T off_down = down[s] - fma(static_cast<T>(i_wrong + 1), value, others_down);
    const T off_across = across[s] - fma(static_cast<T>(j_wrong + 1), value, others_across);
    if (i_wrong < 0 || i_wrong >= k_down || j_wrong < 0 || j_wrong >= k_across) return false;
    if (!(abs(off_down) <= off_limit_down) || !(abs(off_across) <= off_limit_across)) return false;
    std::int64_t point = 0;
#pragma unroll
    for (int i = 0; i < k_down; ++i)
#pragma unroll
      for (int j = 0; j < k_across; ++j)
        if (i == i_wrong && j == j_wrong) {
          self.sums[i][j][s] = value;
          point = self.first_row + self.row_of(i, s);
        }
    product::report(self.given, abft::outcome::corrected, static_cast<double>(residual), static_cast<double>(limit.one), point, check::row);
    return true;
  }
  __device__ static constexpr T large() { return sizeof(T) == 4 ? T(1e30) : T(1e290); }
};

// Check threadblock. While a stage passes through registers, Σ x over the rows of the block's tile and Σ c over its columns are computed.
// Their products with each column and row are the expected sums of the tile's columns and rows. An element that is wrong in one row and one
// column is set to 0, and then to the remaining residual.
template <class T, tile_policy P, class Injector>
struct block_check {
  using product = tile_product<T, P, Injector>;
  using vector = typename product::vector;
  static constexpr int k_threads = product::k_threads, k_warps = P.warps();
  static constexpr int k_own_rows = (P.rows + k_threads - 1) / k_threads, k_own_columns = (P.columns + k_threads - 1) / k_threads;
  static constexpr int k_down = product::k_down, k_across = product::k_across, k_scores = product::k_scores;
  static constexpr int k_warps_down = P.rows / P.warp_rows, k_warps_across = product::k_warps_across;

  product& self;
  T* const partial;                                // warps × {x, c} × k-slice
  T* const encoded;                                // {x, c} × k-slice
  T* const row_sums;                               // warps across × rows
  T* const column_sums;                            // warps down × columns
  T* const sizes;                                  // Σ‖x‖² and Σ‖c‖² of the tile
  int* const found;                                // number of failed rows and the last of them; the same for columns
  T of_row[k_own_rows], of_column[k_own_columns];  // expected sums of the own rows and columns

  __device__ __forceinline__ block_check(product& of, unsigned char* memory)
      : self(of),
        partial(reinterpret_cast<T*>(memory)),
        encoded(partial + 2 * k_slice<T> * k_warps),
        row_sums(encoded + 2 * k_slice<T>),
        column_sums(row_sums + k_warps_across * P.rows),
        sizes(column_sums + k_warps_down * P.columns),
        found(reinterpret_cast<int*>(sizes + 2)) {}

  __device__ __forceinline__ void clear() {
    for (T& each : of_row) each = 0;
    for (T& each : of_column) each = 0;
  }
  __device__ __forceinline__ T norm_of_row(int r) const { return self.a.points.norm[self.first_row + r]; }
  __device__ __forceinline__ T norm_of_column(int c) const {
    return self.first_column + c < self.a.k ? self.a.norms[self.first_column + c] : T(0);
  }
  // Called by all threads; a barrier must follow.
  __device__ __forceinline__ void measure() const {
    if (threadIdx.x >= 2) return;
    T sum = 0;
    for (int e = 0; e < (threadIdx.x == 0 ? P.rows : P.columns); ++e) sum += threadIdx.x == 0 ? norm_of_row(e) : norm_of_column(e);
    sizes[threadIdx.x] = sum;
  }

  // load() and store() copy a chunk through registers; store() also sums the thread's vectors.
  __device__ __forceinline__ void load(int chunk, features<T> (&held)[product::k_held]) const {
#pragma unroll
    for (int e = 0; e < product::k_held; ++e) {
      const int number = static_cast<int>(threadIdx.x) + e * k_threads;
      int to = 0;
      const T* const from = number < product::k_stage_vectors ? self.source(chunk, number, to) : nullptr;
      held[e] = {};
      if (from != nullptr) held[e] = load_features(from);
    }
  }
  __device__ __forceinline__ void store(vector* stage, const features<T> (&held)[product::k_held]) const {
    features<T> sums[2] = {};
#pragma unroll
    for (int e = 0; e < product::k_held; ++e) {
      const int number = static_cast<int>(threadIdx.x) + e * k_threads, line = number / 4;
      if (number >= product::k_stage_vectors) break;
      stage[product::stage_index(0, line, number % 4)] = packed(held[e]);
      const features<T> seen = P.unit == tile_unit::tensor ? rounded(held[e]) : held[e];
      const bool point = line < P.rows;
#pragma unroll
      for (int v = 0; v < k_vector<T>; ++v) {
        sums[0].at[v] += point ? seen.at[v] : T(0);
        sums[1].at[v] += point ? T(0) : seen.at[v];
      }
    }
#pragma unroll
    for (int which = 0; which < 2; ++which)
#pragma unroll
      for (int v = 0; v < k_vector<T>; ++v) {
        T sum = sums[which].at[v];
        for (int distance = 4; distance < 32; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        if (self.lane < 4) partial[(self.warp * 2 + which) * k_slice<T> + self.lane * k_vector<T> + v] = sum;
      }
  }
  // Called between two barriers.
  __device__ __forceinline__ void encode() const {
    for (int e = static_cast<int>(threadIdx.x); e < 2 * k_slice<T>; e += k_threads) {
      T sum = 0;
      for (int w = 0; w < k_warps; ++w) sum += partial[w * 2 * k_slice<T> + e];
      encoded[e] = sum;
    }
  }
  // Updates the checksums of the own rows and columns.
  __device__ __forceinline__ void add(const vector* stage) {
#pragma unroll
    for (int e = 0; e < k_own_rows; ++e) {
      const int r = static_cast<int>(threadIdx.x) + e * k_threads;
      if (r < P.rows) of_row[e] = add_line(stage, r, encoded + k_slice<T>, of_row[e]);
    }
#pragma unroll
    for (int e = 0; e < k_own_columns; ++e) {
      const int c = static_cast<int>(threadIdx.x) + e * k_threads;
      if (c < P.columns) of_column[e] = add_line(stage, P.rows + c, encoded, of_column[e]);
    }
  }
  __device__ static __forceinline__ T add_line(const vector* stage, int line, const T* with, T sum) {
    for (int q = 0; q < 4; ++q) {
      const features<T> read = unpacked(stage[product::stage_index(0, line, q)]);
      const features<T> own = P.unit == tile_unit::tensor ? rounded(read) : read;
#pragma unroll
      for (int v = 0; v < k_vector<T>; ++v) sum = fma(own.at[v], with[q * k_vector<T> + v], sum);
    }
    return sum;
  }

  // The injection position for data of rows.
  __device__ __forceinline__ inject::device_position here(int chunk) const {
    inject::device_position made = self.here(chunk);
    made.threads = P.rows < k_threads ? P.rows : k_threads;
    return made;
  }

  // Returns the failed rows and columns: their number, the last of them, and its residual. Called by all threads; all get the same result.
  struct outcome {
    int rows, row, columns, column;
    T of_row, of_column;
  };
  __device__ __forceinline__ outcome compare(int chunk, bool strikes) {
    if (strikes && threadIdx.x < P.rows) self.given.strike(index<1>{}, site::checksum, here(chunk), of_row);
#pragma unroll
    for (int i = 0; i < k_down; ++i)
#pragma unroll
      for (int h = 0; h < product::k_halves; ++h) {
        T sum = 0;
#pragma unroll
        for (int j = 0; j < k_across; ++j) sum += self.sums[i][j][2 * h] + self.sums[i][j][2 * h + 1];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (self.t == 0) row_sums[self.warp % k_warps_across * P.rows + self.row_of(i, 2 * h)] = sum;
      }
#pragma unroll
    for (int j = 0; j < k_across; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        T sum = 0;
#pragma unroll
        for (int i = 0; i < k_down; ++i)
#pragma unroll
          for (int h = 0; h < product::k_halves; ++h) sum += self.sums[i][j][2 * h + c];
        for (int distance = 4; distance < 32; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        if (self.g == 0) column_sums[self.warp / k_warps_across * P.columns + self.column_of(j, c)] = sum;
      }
    if (threadIdx.x < 4) found[threadIdx.x] = 0;
    __syncthreads();  // the sums of the warps are stored
#pragma unroll
    for (int e = 0; e < k_own_rows; ++e) {
      const int r = static_cast<int>(threadIdx.x) + e * k_threads;
      if (r < P.rows) {
        T sum = 0;
        for (int w = 0; w < k_warps_across; ++w) sum += row_sums[w * P.rows + r];
        judge(of_row[e] - sum, sqrt(static_cast<T>(P.columns)) * sqrt(norm_of_row(r)) * sqrt(sizes[1]), r, found, row_sums, chunk, strikes);
      }
    }
#pragma unroll
    for (int e = 0; e < k_own_columns; ++e) {
      const int c = static_cast<int>(threadIdx.x) + e * k_threads;
      if (c < P.columns) {
        T sum = 0;
        for (int w = 0; w < k_warps_down; ++w) sum += column_sums[w * P.columns + c];
        judge(of_column[e] - sum, sqrt(static_cast<T>(P.rows)) * sqrt(norm_of_column(c)) * sqrt(sizes[0]), c, found + 2, column_sums, chunk,
              false);
      }
    }
    __syncthreads();  // the failures are stored
    const outcome made{found[0], found[1], found[2], found[3], row_sums[found[1]], column_sums[found[3]]};
    __syncthreads();  // and has been read
    return made;
  }
  // Compares a residual with its threshold; if it fails, the residual replaces the sum.
  __device__ __forceinline__ void judge(T residual, T size, int where, int* to, T* sums, int chunk, bool strikes) const {
    T limit = self.a.slack * size + warp_check<T, P, Injector>::smallest();
    if (strikes) self.given.strike(index<1>{}, site::threshold, here(chunk), &limit);
    std::uint32_t word = abs(residual) <= limit ? 0u : 1u;
    if (strikes) self.given.strike(index<1>{}, site::comparison, here(chunk), &word);
    if (word == 0) return;
    sums[where] = residual;
    atomicAdd(to, 1);
    atomicExch(to + 1, where);
  }

  __device__ __forceinline__ void set(int r, int c, T value) {
#pragma unroll
    for (int i = 0; i < k_down; ++i)
#pragma unroll
      for (int j = 0; j < k_across; ++j)
#pragma unroll
        for (int s = 0; s < k_scores; ++s)
          if (self.row_of(i, s) == r && self.column_of(j, s) == c) self.sums[i][j][s] = value;
  }

  // Verifies the tile and corrects one wrong element. Returns false if another fault remains. Called by all threads.
  __device__ __forceinline__ bool verify(int chunk) {
    const outcome first = compare(chunk, true);
    if (first.rows == 0 && first.columns == 0) return true;
    if (first.rows != 1 || first.columns != 1) return false;
    set(first.row, first.column, 0);
    const outcome without = compare(chunk, false);
    if (without.rows != 0 || without.columns != 0) {
      // One of the two sums may miss a small element, but not both.
      const bool by_row = without.rows == 1 && without.row == first.row, by_column = without.columns == 1 && without.column == first.column;
      if ((without.rows != 0 && !by_row) || (without.columns != 0 && !by_column)) return false;
      set(first.row, first.column, by_row ? without.of_row : without.of_column);
      const outcome last = compare(chunk, false);
      if (last.rows != 0 || last.columns != 0) return false;
    }
    if (threadIdx.x == 0)
      product::report(self.given, abft::outcome::corrected, static_cast<double>(first.of_row), 0, self.first_row + first.row, check::row);
    return true;
  }
};

}  // namespace ballast::kmeans::cuda
