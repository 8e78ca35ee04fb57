// The end of a section of centroids: the results of its blocks are combined, and its check tile is computed.
// Layer: backend "cuda" of K-Means, device code. update_rows.cuh declares and documents these members.
#pragma once

#include "kmeans/cuda/update/update_rows.cuh"
#include "kmeans/sites.hpp"

namespace ballast::kmeans::cuda {

template <class T, update_policy P, class Injector>
__device__ __forceinline__ void update<T, P, Injector>::join(section_result& made) {
#pragma unroll 1
  for (int distance = 16; distance > 0; distance /= 2) {
    const auto partner = [&](auto value) { return __shfl_xor_sync(0xffffffffu, value, distance); };
#pragma unroll
    for (int v = 0; v < section_result::k_sums; ++v) {
      if (P.check || (v != section_result::root_twin && v != section_result::root_square_twin)) made.sums[v] += partner(made.sums[v]);
    }
#pragma unroll
    for (int twin = 0; twin < (P.check ? 2 : 1); ++twin) {
      made.largest[twin] = max(made.largest[twin], partner(made.largest[twin]));
      made.smallest[twin] = min(made.smallest[twin], partner(made.smallest[twin]));
      made.ratio[twin] = max(made.ratio[twin], partner(made.ratio[twin]));
    }
    made.empty += partner(made.empty);
    made.failed += partner(made.failed);
  }
}

template <class T, update_policy P, class Injector>
__device__ __forceinline__ void update<T, P, Injector>::join_block(section_result& made, bool has) {
#pragma unroll 1
  for (int level = 0;; ++level) {
    if (level == 1 || __any_sync(0xffffffffu, has))
      join(made);  // all shuffles of a block share one unit, so warps without contribution
                   // skip them
    if (level == 1) return;
    if (lane == 0) shared.results[warp] = made;
    __syncthreads();
    if (warp != 0) return;
    made = lane < k_warps ? shared.results[lane] : nothing();
  }
}

template <class T, update_policy P, class Injector>
__device__ __forceinline__ void update<T, P, Injector>::close_columns(int thread, int threads, section_result& made) const {
  const part_result* const results = a.results + static_cast<std::int64_t>(section) * shape.data_tiles * parts;
#pragma unroll 1
  for (int i = thread; i < shape.data_tiles * parts; i += threads) {
    const part_result& each = results[i];
    made.sums[section_result::half_norms] += arch::load_keep(&each.half_norms);
    made.sums[section_result::shift] += arch::load_keep(&each.shift);
    made.sums[section_result::shift_twin] += arch::load_keep(&each.shift_twin);
    made.empty += arch::load_keep(&each.empty);
    made.failed += arch::load_keep(&each.failed);
  }
#pragma unroll 1
  for (int i = thread; i < shape.section_columns(); i += threads) {
    const int j = section * shape.section_columns() + i, c = i % k_tile_columns;
    const bool there = j < shape.k;
    const part_result* const of = results + i / k_tile_columns * parts;
    const double w = there ? arch::load_keep(&of->weights[c]) : 0;
    double squares[2] = {}, cuts[2] = {};
#pragma unroll 4
    for (int p = 0; p < parts; ++p) {
      squares[0] += arch::load_keep(&of[p].squares[c]), cuts[0] += arch::load_keep(&of[p].cuts[c]);
      if constexpr (P.check) squares[1] += arch::load_keep(&of[p].squares_twin[c]), cuts[1] += arch::load_keep(&of[p].cuts_twin[c]);
    }
    const double square = squares[0];
    T start = there ? static_cast<T>(-0.5 * square) : k_no_score<T>;
    if (there) given.strike(index<1>{}, site::norm, inject::device_position{j, shape.k, 0, 3, 0, 1}, &start);
    T* const at = column_at(section * shape.section_tiles + i / k_tile_columns, c);
    at[0] = start;
    at[k_tile_columns] = static_cast<T>(w);
    if (!there) continue;
    a.squares[j] = square;
#pragma unroll
    for (int twin = 0; twin < (P.check ? 2 : 1); ++twin) {
      const double length = sqrt(squares[twin]), half = w * squares[twin] / 2;
      made.sums[section_result::root + twin] += w * w * squares[twin];
      made.sums[section_result::root_square + twin] += half * half;
      made.largest[twin] = max(made.largest[twin], length);
      made.smallest[twin] = min(made.smallest[twin], length);
      if (squares[twin] > 0) made.ratio[twin] = max(made.ratio[twin], cuts[twin] / squares[twin]);
    }
  }
}

template <class T, update_policy P, class Injector>
__device__ __forceinline__ void update<T, P, Injector>::close_features(section_result& made) const {
  const int thread = static_cast<int>(threadIdx.x), share = thread / k_part, f = begin + thread % k_part;
  const double* const checksums = a.checksums + static_cast<std::int64_t>(section) * shape.data_tiles * stride + f;
  double rest = 0;
#pragma unroll 8
  for (int i = share; i < (f < stride ? shape.data_tiles : 0); i += k_shares)
    rest += arch::load_keep(checksums + static_cast<std::int64_t>(i) * stride);
  shared.products[share][thread % k_part] = rest;
  meet_makers();
  if (share != 0 || f >= stride) return;
  const auto direction = static_cast<double>(a.points.direction[f]);
#pragma unroll
  for (int other = 1; other < k_shares; ++other) rest += shared.products[other][thread];
  made.sums[section_result::checksum_square] = rest * rest;
  made.sums[section_result::direction] = direction * direction;
  // Columns: three parts of the checksum, the direction, and zeros. Scales are powers of two.
  operand_of<T>* to = operand_at(section * shape.section_tiles + shape.data_tiles, 0, f);
  const int step = shape.unit == product_unit::warp ? k_slice<T> : 8;  // distance from column to column
  double scale = check_scale<T>(0), inverse = 1 / check_scale<T>(0);
#pragma unroll 1
  for (int column = 0; column < k_tile_columns; ++column, to += step) {
    auto value = static_cast<T>(rest * scale);
    rest -= static_cast<double>(multiplied(value)) * inverse;
    if (column >= 3) value = column == 3 ? static_cast<T>(direction) : T(0);
    *to = as_operand(value);
    scale *= check_scale<T>(1) / check_scale<T>(0), inverse *= check_scale<T>(0) / check_scale<T>(1);
  }
}

template <class T, update_policy P, class Injector>
__device__ __forceinline__ bool update<T, P, Injector>::close_section(section_result& all, bool& fits) {
  const int thread = static_cast<int>(threadIdx.x);
  std::uint32_t* const ticket = a.tickets + section * (parts + 1);
  // Without checks there is no check tile to compute.
  if (!(P.check ? is_last(ticket + begin / k_part, shape.data_tiles) : is_last(ticket, shape.data_tiles * parts))) return false;
#pragma unroll 1
  for (bool last = !P.check || parts == 1;; last = true) {
    const bool only = last && shape.sections == 1;
    totals_share share{};
    if (only) load_totals(share);  // in flight while the section is completed
    bool has = false;              // this thread has a share of the section's sums
    // The branches run in different warps, so neither waits for the instructions of the other.
    if (thread >= k_closers) {
      if (last) close_columns(thread - k_closers, k_threads - k_closers, all);
      has = last && thread - k_closers < max(shape.data_tiles * parts, shape.section_columns());
    } else if (!last || parts == 1) {
      close_features(all);
      has = thread < k_part && begin + thread < stride;
    } else {
      has = thread < parts;
      for (int p = thread; p < parts; p += k_closers) {
        const part_result& each = a.results[static_cast<std::int64_t>(section) * shape.data_tiles * parts + p];
        all.sums[section_result::checksum_square] += arch::load_keep(&each.checksum_square);
        all.sums[section_result::direction] += arch::load_keep(&each.direction);
      }
    }
    if (only) fits = totals_fit(share);
    join_block(all, has);
    if (last) break;
    if (thread == 0) {
      part_result& each = a.results[static_cast<std::int64_t>(section) * shape.data_tiles * parts + begin / k_part];
      each.checksum_square = all.sums[section_result::checksum_square];
      each.direction = all.sums[section_result::direction];
    }
    if (!is_last(ticket + parts, parts)) return false;
    all = nothing();
  }
  if (warp == 0) store_limits(all);
  return true;
}

template <class T, update_policy P, class Injector>
__device__ __forceinline__ void update<T, P, Injector>::store_limits(const section_result& all) const {
  if (shape.sections > 1 && lane == 0) a.sections[section] = all;
  if constexpr (P.check) {
    const int check_tile = section * shape.section_tiles + shape.data_tiles;
    if (lane < k_tile_columns) {
      // Columns 0 and 1 start with the two parts of the norms.
      constexpr double first = check_scale<T>(0), second = check_scale<T>(1), third = check_scale<T>(2);
      const double half = -all.sums[section_result::half_norms];
      const auto high = static_cast<T>(half * first);
      const auto low = static_cast<T>((half - static_cast<double>(high) * (1 / first)) * second);
      T* const at = column_at(check_tile, lane);
      at[0] = lane == 0 ? high : lane == 1 ? low : T(0);
      at[k_tile_columns] = static_cast<T>(lane == 0 ? -1 / first : lane == 1 ? -1 / second : lane == 2 ? -1 / third : 0);
    }
    if (lane < 2) {
      // The squares of walk · (√root + √checksum_square) and of walk · 4 · √root_square; the walk bounds the rounding of a score. The
      // second copy comes from the second norms. Both share the norm of the checksum centroid, which is at most Σ w‖c‖ ≤ √columns · √root.
      const double root = lane == 0 ? all.sums[section_result::root] : all.sums[section_result::root_twin];
      const double root_square = lane == 0 ? all.sums[section_result::root_square] : all.sums[section_result::root_square_twin];
      const double checksum = min(all.sums[section_result::checksum_square], 1.01 * shape.section_columns() * root);
      const double walk = a.walk * a.walk;
      section_limits<T> limits;
      limits.row_slope = static_cast<T>(2 * walk * (root + checksum + 2 * sqrt(root * checksum)));
      limits.row_offset = static_cast<T>(32 * walk * root_square) + (sizeof(T) == 4 ? T(1e-37) : T(1e-300));
      limits.projection_slope = static_cast<T>(walk * all.sums[section_result::direction]);
      limits.excess = static_cast<T>(thresholds::row_excess(abft::unit_roundoff<T>, a.walk, shape.section_columns()));
      a.centroids.limits[2 * section + lane] = limits;
    }
  }
}

}  // namespace ballast::kmeans::cuda
