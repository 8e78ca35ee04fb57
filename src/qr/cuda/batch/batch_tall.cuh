// QR of many matrices of any number of rows, and Q applied to columns: a thread block for each matrix, or for some columns of one.
// Layer: backend "cuda" of QR, device code.
// A block computes a tile from its input. It compares the result with sums from separate loads of the input and, if Q is applied, of V, and
// only then stores the tile. A tile that fails is recomputed. docs/design/qr-cuda-batches.md.
// Source: LAPACK's conventions for xLARFG and xGEQR2.
#pragma once

#include "qr/cuda/batch/tall_tile.cuh"

namespace ballast::qr::cuda {

// The factorization of a tile, one reflector after the other. Column j becomes v_j when all columns have used it.
template <class S, tall_policy P, class Launch>
struct tall_factorization : tall_tile<S, P, Launch> {
  using tile = tall_tile<S, P, Launch>;
  using tile::column, tile::first_row, tile::follows, tile::lane, tile::warp, tile::workers, tile::hash_of, tile::reflect_sums;
  using tile::m, tile::columns, tile::own, tile::x, tile::strike;
  using tile::tile;

  // Scales x_j and its products to about 1, so that no square leaves the range: 2^−e, with e the exponent of the largest of α and the tail.
  __device__ __forceinline__ binary_scale down(int j) const { return binary_scale(-own.exponent_of_tail[j % 2]); }

  // H_j from α, the tail's largest element and its scaled ‖tail‖²: β = −sign(α)‖x‖, τ = (β − α) / β, v = [1; factor · 2^−e x].
  struct reflector {
    double beta, tau, factor;
  };
  __device__ __forceinline__ reflector reflector_of(int j) const {
    const double alpha = down(j)(static_cast<double>(column(j)[j])), squares = own.dot[j];
    if (own.tail[j % 2] == 0) return {static_cast<double>(column(j)[j]), 0, 0};
    const double norm = sqrt(alpha * alpha + squares), all = fabs(alpha) + norm;
    return {binary_scale(own.exponent_of_tail[j % 2])(-copysign(norm, alpha)), static_cast<double>(static_cast<S>(fabs(alpha) / norm + 1)),
            copysign(1 / all, alpha)};
  }
  __device__ __forceinline__ S v_of(const reflector& h, const binary_scale& scale, S value) const {
    return static_cast<S>(h.factor * scale(static_cast<double>(value)));
  }

  // Finds the largest element of column j's tail, and the exponent of the column from row j on. One warp calls it.
  __device__ __forceinline__ void measure(int j, double tail) const {
    tail = tile::largest_of_warp(tail);
    if (lane() != 0) return;
    own.tail[j % 2] = tail;
    own.exponent_of_tail[j % 2] = tile::exponent_or_0(larger_of(tail, fabs(static_cast<double>(column(j)[j]))));
  }
  __device__ __forceinline__ void measure_first() const {
    double tail = 0;
    for (int i = first_row(1); i < m; i += 32) tail = larger_of(tail, fabs(static_cast<double>(x[i])));
    measure(0, tail);
  }

  // Products of the tail of column j with the columns from j on; with itself, of the scaled tail.
  __device__ __forceinline__ void multiply(int j, int count) const {
    const S* const from = column(j);
    const binary_scale scale = down(j);
    for (int k = j + warp(); k < columns; k += count) {
      const S* const with = column(k);
      double dot[1] = {};
#pragma unroll 4
      for (int i = first_row(j + 1); i < m; i += 32) {
        const double y = scale(static_cast<double>(from[i]));
        dot[0] += y * (k == j ? y : static_cast<double>(with[i]));
      }
      ballast::cuda::add_lanes<32, 32, 1>(dot);
      if (lane() == 0) own.dot[k] = dot[0];
    }
  }

  // Applies H_j to the later columns.
  __device__ __forceinline__ void apply(int j, int steps, int count) const {
    const S* const from = column(j);
    const reflector h = reflector_of(j);
    const binary_scale scale = down(j);
    for (int k = j + 1 + warp(); k < columns; k += count) {
      S* const to = column(k);
      S product = h.tau == 0 ? S(0) : static_cast<S>(h.tau * (static_cast<double>(to[j]) + h.factor * own.dot[k]));
      strike(site::product, j, steps, k * 32 + lane(), columns * 32, &product);
      double tail = 0;
      __syncwarp();  // row j has been read
#pragma unroll 4
      for (int i = first_row(j); i < m; i += 32) {
        const double v = i == j ? 1.0 : static_cast<double>(v_of(h, scale, from[i]));
        const S made = static_cast<S>(static_cast<double>(to[i]) - static_cast<double>(product) * v);
        to[i] = made;
        if (i > j + 1) tail = larger_of(tail, fabs(static_cast<double>(made)));
      }
      __syncwarp();  // row j + 1 of the next column is stored
      if (k == j + 1) measure(k, tail);
    }
  }

  // Column j ← [R's part; β; v], τ_j. The warp that follows calls it, while the others no longer read the column.
  __device__ __forceinline__ void finish(int j, int steps) const {
    const reflector h = reflector_of(j);
    const binary_scale scale = down(j);
    S* const to = column(j);
    __syncwarp();  // α has been read
    for (int i = first_row(j + 1); i < m; i += 32) {
      S v = v_of(h, scale, to[i]);
      strike(site::reflector, j, steps, i, m, &v);
      to[i] = v;
    }
    if (lane() == 0) {
      S tau = static_cast<S>(h.tau);
      strike(site::tau, j, steps, 0, 1, &tau);
      own.tau[j] = tau;
      to[j] = static_cast<S>(h.beta);
    }
    __syncwarp();  // the column is stored
  }

  // Applies reflector j, as it will be stored, to the sums, and adds its hash.
  __device__ __forceinline__ void follow(int j, std::uint64_t& hash, double& reflectors) const {
    const S scalar = own.tau[j];
    const S* const from = column(j);
    const double tau = static_cast<double>(scalar), squares = reflect_sums(j, tau, [&](int i) { return from[i]; });
    if (tau != 0) reflectors = larger_of(reflectors, fabs(tau * squares - 2));
    for (int i = first_row(j + 1); i < m; i += 32) hash += hash_of(from[i], i, j);
    if (lane() == 0) hash += hash_of(scalar, j, columns);
  }

  // All reflectors. The last warp follows one column later. Ends with a barrier.
  __device__ __forceinline__ void compute(int steps, bool checks, std::uint64_t& hash, double& reflectors) const {
    const int count = workers(checks);
    const bool works = warp() < count;
    if (warp() == 0) measure_first();
    __syncthreads();  // the first column is measured
    for (int j = 0; j < steps; ++j) {
      if (works) multiply(j, count);
      if (follows() && j > 0) finish(j - 1, steps);
      __syncthreads();  // the products are stored, and column j − 1 is complete
      if (works) apply(j, steps, count);
      if (checks && follows() && j > 0) follow(j - 1, hash, reflectors);
      __syncthreads();  // the later columns are stored, and column j has been read
      this->strike_tile(site::trailing, j, steps);
    }
    if (follows()) {
      finish(steps - 1, steps);
      if (checks) follow(steps - 1, hash, reflectors);
    }
    __syncthreads();  // the last column is complete
  }
};

// A = QR in LAPACK's storage. One block for each matrix.
template <class S, tall_policy P, class Injector>
__global__ void __launch_bounds__(P.threads, P.resident)
    tall_factor_kernel(const __grid_constant__ ballast::cuda::kernel_launch<tall_factor_arguments<S>, Injector> given) {
  using launch = ballast::cuda::kernel_launch<tall_factor_arguments<S>, Injector>;
  const batch_factor_arguments<S>& a = given.arguments.of;
  const int m = a.m, n = a.n, steps = m < n ? m : n;
  const bool checks = a.repeats >= 0;
  for (std::int64_t matrix = blockIdx.x; matrix < a.count; matrix += gridDim.x) {
    tall_factorization<S, P, launch> team(given, given.arguments.slabs, matrix, a.count, m, n);
    auto& own = team.own;
    S* const A = a.A.data + matrix * a.A.stride;
    const tall_source<S> from{A, a.A.row_stride, a.A.column_stride, m, 0, false};
    if (team.thread() == 0) {
      own.state = abft::attempts(a.repeats);
      own.how = static_cast<int>(checks ? abft::outcome::open : abft::outcome::clean);
    }
    for (bool open = true; open;) {
      if (checks) {
        team.draw();
        __syncthreads();  // the weights are stored
        team.encode(from);
      }
      team.template load<true>(from);
      __syncthreads();  // the tile is complete
      team.strike_tile(site::panel, 0, 1);
      std::uint64_t verified = 0;
      double reflectors = 0;
      team.compute(steps, checks, verified, reflectors);
      if (checks) {
        if (team.follows() && team.lane() == 0) own.reflectors = reflectors;
        team.convert_weights();
        __syncthreads();  // the factors are stored
        team.subtract_weighted(steps, verified, [](int row, int column) { return row <= column; });
        team.strike_tile(site::r, 0, 1);
        std::uint64_t stored = team.hash_tile();
        for (int j = team.thread(); j < steps; j += P.threads) stored += team.hash_of(own.tau[j], j, n);
        team.leave_hashes(verified, stored);
        if (team.thread() == 0) {
          abft::finding now = team.judge(a.limits.residual, false, a.repeats);
          int check = 0;
          if (now.judged && now.word == abft::k_pass && !(own.reflectors <= a.limits.reflectors)) {
            check = 1;
            now.word = abft::k_fail;
            now.residual = own.reflectors;
            now.threshold = a.limits.reflectors;
          }
          compare_hash(team.hash_at(0), team.hash_at(1), now);
          own.how = static_cast<int>(batch_verdict<launch>{given, matrix, a.count}.settle(own.state, now, *a.events, matrix, check));
        }
      } else {
        team.strike_tile(site::r, 0, 1);
      }
      __syncthreads();  // the outcome is stored, and the memory may be reused
      const auto how = static_cast<abft::outcome>(own.how);
      open = how == abft::outcome::open;
      if (open || !(a.stores || abft::stands(how))) continue;
      team.template store<true>(A, a.A.row_stride, a.A.column_stride, checks, [](int row, int column) { return row <= column; });
      for (int j = team.thread(); j < steps; j += P.threads) a.tau[matrix * steps + j] = ballast::cuda::loaded_twice(own.tau[j]);
    }
    __syncthreads();  // the tile has been stored, and the memory may be reused
  }
}

// X ← op(Q) X. A block has up to `width` columns of one matrix.
template <class S, tall_policy P, class Launch>
struct tall_application : tall_tile<S, P, Launch> {
  using tile = tall_tile<S, P, Launch>;
  using tile::column, tile::first_row, tile::follows, tile::lane, tile::warp, tile::workers, tile::reflect_sums;
  using tile::m, tile::columns, tile::strike;
  using tile::tile;

  // The number of the reflector of step s, and its elements.
  __device__ __forceinline__ int number(const batch_apply_arguments<S>& a, int s) const { return a.ascending ? s : a.reflectors - 1 - s; }

  // Applies all reflectors to the tile. A warp has its columns for itself.
  __device__ __forceinline__ void compute(const batch_apply_arguments<S>& a, const S* V, const S* tau, bool checks) const {
    constexpr int together = k_tall_columns_at_once;
    const int count = workers(checks);
    for (int c = warp() * together; warp() < count && c < columns; c += count * together) {
      for (int s = 0; s < a.reflectors; ++s) {
        const int j = number(a, s);
        const S* const v = V + j * a.V.column_stride;
        const double scalar = static_cast<double>(tau[j]);
        double sums[together] = {};
#pragma unroll 4
        for (int i = first_row(j); i < m; i += 32) {
          const double here = i == j ? 1.0 : static_cast<double>(v[i * a.V.row_stride]);
          for (int k = 0; k < together; ++k) sums[k] += c + k < columns ? here * static_cast<double>(column(c + k)[i]) : 0;
        }
        ballast::cuda::add_lanes<32, 32, 1>(sums);
        S product[together];
        for (int k = 0; k < together; ++k) product[k] = scalar == 0 ? S(0) : static_cast<S>(scalar * sums[k]);
        for (int k = 0; k < together && c + k < columns; ++k)
          strike(site::product, s, a.reflectors, (c + k) * 32 + lane(), columns * 32, &product[k]);
#pragma unroll 4
        for (int i = first_row(j); scalar != 0 && i < m; i += 32) {
          const double here = i == j ? 1.0 : static_cast<double>(v[i * a.V.row_stride]);
          for (int k = 0; k < together && c + k < columns; ++k) {
            S& to = column(c + k)[i];
            to = static_cast<S>(static_cast<double>(to) - static_cast<double>(product[k]) * here);
          }
        }
      }
    }
  }

  // Applies the reflectors to the sums; V and tau are loaded again. Returns whether one of them is not finite. The warp that follows calls
  // it.
  __device__ __forceinline__ bool follow(const batch_apply_arguments<S>& a, const S* V, const S* tau) const {
    bool odd = false;
    for (int s = 0; s < a.reflectors; ++s) {
      const int j = number(a, s);
      const S* const v = V + j * a.V.column_stride;
      const double scalar = static_cast<double>(tau[j]);
      const double squares = reflect_sums(j, scalar, [&](int i) { return v[i * a.V.row_stride]; });
      odd |= !tile::is_finite(squares) || !tile::is_finite(fabs(scalar));
    }
    return odd;
  }
};

template <class S, tall_policy P, class Injector>
__global__ void __launch_bounds__(P.threads, P.resident)
    tall_apply_kernel(const __grid_constant__ ballast::cuda::kernel_launch<tall_apply_arguments<S>, Injector> given) {
  using launch = ballast::cuda::kernel_launch<tall_apply_arguments<S>, Injector>;
  const batch_apply_arguments<S>& a = given.arguments.of;
  const int width = given.arguments.width;
  const bool checks = a.repeats >= 0;
  const std::int64_t items = a.count * a.chunks;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t matrix = item / a.chunks;
    const int first = static_cast<int>(item % a.chunks) * width, columns = a.n - first < width ? a.n - first : width;
    tall_application<S, P, launch> team(given, given.arguments.slabs, item, items, a.m, columns);
    auto& own = team.own;
    const S* const V = a.V.data + matrix * a.V.stride;
    const S* const tau = a.tau + matrix * a.reflectors;
    S* const X = a.X.data + matrix * a.X.stride + first * a.X.column_stride;
    const tall_source<S> from{a.identity ? V : a.from.data + matrix * a.from.stride + first * a.from.column_stride,
                              a.from.row_stride,
                              a.from.column_stride,
                              a.given,
                              first,
                              a.identity};
    if (team.thread() == 0) {
      own.state = abft::attempts(a.repeats);
      own.how = static_cast<int>(checks ? abft::outcome::open : abft::outcome::clean);
    }
    for (bool open = true; open;) {
      if (checks) {
        team.draw();
        __syncthreads();  // the weights are stored
        team.encode(from);
      }
      team.template load<false>(from);
      __syncthreads();  // the tile is complete
      team.strike_tile(site::q, 0, 2);
      team.compute(a, V, tau, checks);
      if (checks && team.follows()) {
        const bool odd = team.follow(a, V, tau);
        if (team.lane() == 0) own.odd[team.warp()] |= odd ? 1 : 0;
      }
      __syncthreads();  // the tile and the sums are complete
      team.strike_tile(site::q, 1, 2);
      if (checks) {
        std::uint64_t verified = 0;
        team.convert_weights();
        __syncthreads();  // the factors are stored
        team.subtract_weighted(a.m, verified, [](int, int) { return true; });
        team.leave_hashes(verified, team.hash_tile());
        if (team.thread() == 0) {
          abft::finding now =
              team.judge(thresholds::residual<S>(1, static_cast<int>(arch::opaque(static_cast<unsigned>(a.m))), columns), false, a.repeats);
          compare_hash(team.hash_at(0), team.hash_at(1), now);
          own.how = static_cast<int>(batch_verdict<launch>{given, item, items}.settle(own.state, now, *a.events, matrix, 2));
        }
        __syncthreads();  // the outcome is stored, and the memory may be reused
      }
      const auto how = static_cast<abft::outcome>(own.how);
      open = how == abft::outcome::open;
      if (open || !(a.stores || abft::stands(how))) continue;
      team.template store<false>(X, a.X.row_stride, a.X.column_stride, checks, [](int, int) { return true; });
    }
    __syncthreads();  // the tile has been stored, and the memory may be reused
  }
}

}  // namespace ballast::qr::cuda
