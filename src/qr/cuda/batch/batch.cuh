// QR of many small matrices, Q applied to columns, and triangular systems: a team of threads for each matrix, which it keeps in registers.
// Layer: backend "cuda" of QR, device code.
// A team computes a tile from its input. It compares the result with sums from separate loads of the input and, if Q is applied, of V, and
// only then stores the tile. A tile that fails is recomputed. docs/design/qr-cuda-batches.md.
#pragma once

#include "abft/attempt.hpp"
#include "cuda/block/launch.cuh"
#include "qr/cuda/batch/batch_args.hpp"
#include "qr/cuda/batch/batch_check.cuh"
#include "qr/sites.hpp"
#include "qr/thresholds.hpp"

namespace ballast::qr::cuda {

// Returns the index of the team's problem among those of the launch.
template <batch_policy P>
__device__ __forceinline__ std::int64_t item_of() {
  return static_cast<std::int64_t>(blockIdx.x) / P.blocks * P.matrices + static_cast<int>(threadIdx.x) / batch_shape<P>::team;
}

// Returns the same number. The compiler computes anew in each attempt what follows from it: a limit that was struck once would fail them
// all.
__device__ __forceinline__ int again_of(int number) { return static_cast<int>(arch::opaque(static_cast<unsigned>(number))); }

// A = QR in LAPACK's storage. One team for each matrix.
template <class S, batch_policy P, class Injector>
__global__ void __launch_bounds__(batch_shape<P>::threads, batch_shape<P>::resident(sizeof(real_of<S>)))
    batch_factor_kernel(const __grid_constant__ ballast::cuda::kernel_launch<batch_factor_arguments<S>, Injector> given) {
  using shape = batch_shape<P>;
  const batch_factor_arguments<S>& a = given.arguments;
  batch_weights<P>& weights = draw_weights<S, P>(a.repeats >= 0);
  const std::int64_t matrix = item_of<P>();
  const bool there = matrix < a.count;
  if (shape::team >= 32 && !there) return;
  batch_team<S, P, ballast::cuda::kernel_launch<batch_factor_arguments<S>, Injector>> team(given, weights, matrix, a.count);
  auto& own = team.own;
  S* const A = a.A.data + (there ? matrix : a.count - 1) * a.A.stride;
  const std::int64_t down = a.A.row_stride, across = a.A.column_stride;
  const int m = a.m, n = a.n, steps = m < n ? m : n;
  if (team.verifies() && team.checker() == 0) own.state = abft::attempts(a.repeats);
  if constexpr (P.blocks > 1) team_barrier<P>();  // all blocks have started, so that they can be sent to
  for (bool open = there, again = false; team.goes_on(open); again = true) {
    team.template read<true>(a.repeats >= 0, again, A, down, across, m, n, 0, false, a.conjugated);
    team.strike_tile(site::panel, 0, 1);
    team.new_phase();
    typename decltype(team)::seen found;
    const bool follows = a.repeats >= 0 && team.verifies();
    if constexpr (shape::panels == 1) {
      team.factor_panel(0, steps, follows, [&](int j) {
        team.strike_tile(site::trailing, j, steps);
        if (follows) team.follow(own.v[0][0], j, m, found);
      });
    } else {
      for (int p = 0; p * shape::panel < steps; ++p) {
        const int half = p % 2, begin = p * shape::panel;
        if (team.panel() == p) team.factor_panel(half, steps, true, [](int) {});
        // After this barrier the panel's reflectors are complete, and those of the panel before it, in the other half of v, have been read.
        team_barrier<P>();
        if (team.panel() > p) {
          for (int chunk = 0; chunk < shape::panel / shape::at_once && begin + chunk * shape::at_once < steps; ++chunk)
            team.apply_chunk(half, chunk, begin, steps);
        }
        team.strike_tile(site::trailing, p, (steps + shape::panel - 1) / shape::panel);
        // The warp that verifies owns the first panel, and has no other work afterwards.
        if (!follows) continue;
        for (int j = begin; j < begin + shape::panel && j < steps; ++j) team.follow(own.v[half][j - begin], j, m, found);
      }
    }
    bool stands = true;
    if (a.repeats >= 0) {
      team.new_phase();
      team.add_weighted(m, n, [](int row, int column) { return row <= column; });
      team.strike_tile(site::r, 0, 1);
      team.new_phase();
      team.hash_tile(m, n);
      team_barrier<P>();  // sums and hashes are stored
      if (team.verifies()) {
        const std::uint64_t verified = team.tile_hash(0) + team.add_hash(found.hash);
        std::uint64_t stored = 0;
        for (int j = team.checker(); j < steps; j += shape::checkers) stored += team.hash_of(own.tau[j], j, shape::width);
        stored = team.tile_hash(1) + team.add_hash(stored);
        found.hash = verified;
        found.odd = team.any_odd();
        abft::finding now = team.judge_sums(m, a.limits.residual, found, a.repeats);
        int check = 0;
        const double limit = a.limits.reflectors;
        if (now.judged && now.word == abft::k_pass && !(found.reflectors <= limit)) {
          check = 1;
          now.word = abft::k_fail;
          now.residual = found.reflectors;
          now.threshold = limit;
        }
        compare_hash(verified, stored, now);
        if (open) team.settle(now, a.events, matrix, check);
      }
      team_barrier<P>();  // the outcome is stored, and the memory may be reused
      const auto how = static_cast<abft::outcome>(own.how);
      if (!open || how == abft::outcome::open) continue;
      stands = a.stores || abft::stands(how);
    } else {
      team.strike_tile(site::r, 0, 1);
      team_barrier<P>();  // tau is stored
      if (!open) continue;
    }
    open = false;
    if (!stands) continue;
    team.new_phase();
    team.template store<true>(A, down, across, m, n, a.repeats >= 0, a.conjugated,
                              [](int row, int column) { return row <= column; });  // v does not depend on the unit
    if (team.rank == 0) {
      for (int j = team.thread; j < steps; j += shape::team) a.tau[matrix * steps + j] = number_loaded_twice(own.tau[j]);
    }
  }
  if constexpr (P.blocks > 1) team_barrier<P>();  // no block exits while others may still send to it
}

// The columns of X that a team computes, and the reflectors (Solves false) or the triangular T (Solves true) that it applies to them.
template <class S, batch_policy P, bool Solves>
struct batch_application {
  using shape = batch_shape<P>;
  using real = real_of<S>;
  using wide = wide_of<S>;

  const batch_apply_arguments<S>& a;
  batch_memory<S, P>& own;
  const std::int64_t matrix;  // the number of the matrix
  const S* const V;           // the reflectors, or T
  const S* const tau;
  const S* const from;
  S* const X;
  const int m, k, columns;

  __device__ __forceinline__ batch_application(const batch_apply_arguments<S>& given, batch_memory<S, P>& memory, std::int64_t which,
                                               int first_column)
      : a(given),
        own(memory),
        matrix(which),
        V(a.V.data + matrix * a.V.stride),
        tau(a.tau == nullptr ? nullptr : a.tau + matrix * a.reflectors),
        from(a.identity ? V : a.from.data + matrix * a.from.stride + first_column * a.from.column_stride),
        X(a.X.data + matrix * a.X.stride + first_column * a.X.column_stride),
        m(a.m),
        k(a.reflectors),
        columns(a.n - first_column < shape::width ? a.n - first_column : shape::width) {}

  // Returns the number of the reflector, or of the unknown, of step s + l.
  __device__ __forceinline__ int number(int s, int l) const { return a.ascending ? s + l : k - 1 - s - l; }
  // Returns the scalar of reflector j as it is applied: H_jᴴ has the conjugate.
  __device__ __forceinline__ S scalar_of(int j) const { return conjugated_if(a.ascending, tau[j]); }
  // Returns the element in row i of column j of the reflectors or of T, without its diagonal.
  __device__ __forceinline__ S element(int i, int j) const {
    const bool inside = i < m && (!Solves || a.ascending ? i > j : i < j);
    return inside ? conjugated_if(a.V_conjugated, V[i * a.V.row_stride + j * a.V.column_stride]) : S(0);
  }
  __device__ __forceinline__ S diagonal(int j) const { return conjugated_if(a.V_conjugated, V[j * (a.V.row_stride + a.V.column_stride)]); }

  // Loads the columns of steps s … s + count − 1 into shared memory, one by each group.
  template <class Team>
  __device__ __forceinline__ void load_strip(const Team& team, int s, int count) const {
    if (team.group >= count) return;
    const int j = number(s, team.group);
    for (int r = 0; r < P.rows; ++r) {
      const int row = team.row_of(r);
      own.strip[team.group].lane[team.lane].row[r] = !Solves && row == j ? S(1) : element(row, j);
      if constexpr (Solves) {
        if (row < j && depends(diagonal(j), *above(row, j), a.least_pivot)) note_dependence(row, j);
      }
    }
    if (team.lane != 0) return;
    const S scalar = Solves ? diagonal(j) : scalar_of(j);
    own.tau[team.group] = scalar;
    if (Solves && scalar == 0) note_dependence(j, j);
  }

  // Returns the place of element `row` of column j of U: row j of V if U is applied transposed.
  __device__ __forceinline__ const S* above(int row, int j) const {
    return V + (a.ascending ? j * a.V.row_stride + row * a.V.column_stride : row * a.V.row_stride + j * a.V.column_stride);
  }
  // Returns whether an element of a column of U, beside the column's pivot, shows that the column depends on those before it:
  // thresholds::least_pivot.
  static __device__ __forceinline__ bool depends(S pivot, S element, double limit) {
    const double size = size_of_number(element);
    return size > 0 && size <= abft::k_largest<double> && size_of_number(pivot) <= limit * size;
  }

  // Reports that column j of the triangle depends on the columns before it, as its element in this row shows; row = j: the pivot is 0. Both
  // are loaded again and compared with a second copy of the limit: a good matrix is not refused for a number that was loaded wrong.
  __device__ __forceinline__ void note_dependence(int row, int j) const {
    const S pivot = loaded_again(above(j, j)), element = loaded_again(above(row, j));
    if (row == j ? !(pivot == 0) : !depends(pivot, element, a.least_pivot_twin)) return;
    atomicMax(reinterpret_cast<long long*>(a.singular), static_cast<long long>((a.count - matrix) * k_singular_columns - j));
  }

  // Computes unknown j from column l of the strip, and subtracts its share from the other rows.
  template <class Team>
  __device__ __forceinline__ void eliminate(Team& team, int l, int j, int step) const {
    S v[P.rows], value[P.columns] = {};
    real_of<S> unit[P.rows];
    for (int r = 0; r < P.rows; ++r) {
      const int row = team.row_of(r);
      v[r] = own.strip[l].lane[team.lane].row[r];
      unit[r] = real_of<S>(row == j);
    }
    for (int c = 0; c < P.columns; ++c) {
      for (int r = 0; r < P.rows; ++r) {
        if (team.row_of(r) == j) value[c] = team.x[c][r];
      }
    }
    for (int distance = 1; distance < P.lanes; distance *= 2) {
      for (int c = 0; c < P.columns; ++c) value[c] += __shfl_xor_sync(0xffffffffu, value[c], distance);
    }
    for (int c = 0; c < P.columns; ++c) value[c] = quotient(value[c], own.tau[l]);
    team.template strike<P.columns>(site::product, step, k, value);
    for (int c = 0; c < P.columns; ++c) {
      for (int r = 0; r < P.rows; ++r) {
        const S y = v[r] == 0 ? team.x[c][r] : minus_product(team.x[c][r], value[c], v[r]);
        team.x[c][r] = unit[r] != 0 ? value[c] : y;
      }
    }
  }

  // Applies all reflectors, or computes all unknowns.
  template <class Team>
  __device__ __forceinline__ void compute(Team& team) const {
    for (int s = 0; s < k; s += shape::strip) {
      const int count = k - s < shape::strip ? k - s : shape::strip;
      load_strip(team, s, count);
      team_barrier<P>();  // the strip is complete
      for (int l = 0; l < count; ++l) {
        if constexpr (Solves) {
          eliminate(team, l, number(s, l), s + l);
        } else {
          team.reflect(own.strip[l], own.tau[l], s + l, k);
        }
      }
      team_barrier<P>();  // the strip has been read
    }
  }

  // Applies the reflectors to the sums of the check. V and tau are loaded again, one reflector ahead of its use.
  template <class Team, class Seen>
  __device__ __forceinline__ void reflect_sums(const Team& team, Seen& found) const {
    S ahead[shape::of_lane], tau_ahead = 0;
    const auto read = [&](int s) {
      if (s >= k) return;
      const int j = number(s, 0);
      for (int i = 0; i < shape::of_lane; ++i) ahead[i] = element(team.checker() % shape::span + shape::span * i, j);
      tau_ahead = scalar_of(j);
    };
    read(0);
    for (int s = 0; s < k; ++s) {
      const int j = number(s, 0);
      S here[shape::of_lane];
      for (int i = 0; i < shape::of_lane; ++i) here[i] = ahead[i];
      const wide factor = widened(tau_ahead);
      read(s + 1);
      const double squares = team.reflect_sums([&](int i, int row) { return row == j ? wide(1) : widened(here[i]); }, factor);
      found.odd |= !(squares <= abft::k_largest<double>) || !(size_of_number(factor) <= abft::k_largest<double>);
    }
  }

  // Compares T (Xw) with Bw, row by row; T is loaded again.
  template <class Team>
  __device__ __forceinline__ abft::worst_comparison compare_rows(const Team& team) const {
    abft::worst_comparison worst;
    const int unknowns = again_of(k);
    for (int row = team.checker(); row < m; row += shape::checkers) {
      wide rest[k_certificates] = {own.sum[0][row], own.sum[1][row]};
      double size = 0, sizes = 0;
#pragma unroll 2
      for (int j = 0; j < k; ++j) {
        const S here = diagonal(j);
        const wide t = widened(row == j ? here : element(row, j));
        for (int q = 0; q < k_certificates; ++q) rest[q] = minus_product(rest[q], t, own.rest[0][q][j]);
        size += size_of_number(t) * real_part(own.rest[0][k_certificates][j]);
        sizes += size_of_number(t);
      }
      size += size_of_number(own.sum[0][row]) + size_of_number(own.sum[1][row]);
      // Rounding, and the part of an element of x that underflow may take.
      constexpr double smallest = sizeof(real) == 4 ? 0x1p-149 : 0x1p-1074;
      const double allowed = thresholds::solve<real>(size, k_reals<S> * unknowns) + 4 * smallest * (sizes + unknowns);
      for (int q = 0; q < k_certificates; ++q) worst.take(size_of_number(rest[q]), allowed);
    }
    for (int distance = 1; distance < shape::checkers; distance *= 2) {
      const double other = __shfl_xor_sync(0xffffffffu, worst.residual, distance);
      const double bound = __shfl_xor_sync(0xffffffffu, worst.limit, distance);
      worst.take(other, bound);
    }
    return worst;
  }

  template <class Team>
  __device__ __forceinline__ void store(Team& team) const {
    team.template store<false>(X, a.X.row_stride, a.X.column_stride, m, columns, a.repeats >= 0, a.X_conjugated,
                               [](int, int) { return true; });
  }
};

// X ← op(Q) X (Solves false), or X ← T⁻¹ X with a triangular T. One team has up to `width` columns of one matrix.
template <class S, batch_policy P, bool Solves, class Injector>
__global__ void __launch_bounds__(batch_shape<P>::threads, batch_shape<P>::resident(sizeof(real_of<S>)))
    batch_apply_kernel(const __grid_constant__ ballast::cuda::kernel_launch<batch_apply_arguments<S>, Injector> given) {
  using shape = batch_shape<P>;
  const batch_apply_arguments<S>& a = given.arguments;
  batch_weights<P>& weights = draw_weights<S, P>(a.repeats >= 0);
  const std::int64_t item = item_of<P>(), items = a.count * a.chunks;
  const bool there = item < items;
  if (shape::team >= 32 && !there) return;
  const std::int64_t matrix = there ? item / a.chunks : a.count - 1;
  const int first_column = static_cast<int>(item % a.chunks) * shape::width;
  batch_team<S, P, ballast::cuda::kernel_launch<batch_apply_arguments<S>, Injector>> team(given, weights, item, items);
  auto& own = team.own;
  const batch_application<S, P, Solves> job(a, own, matrix, first_column);
  const int m = job.m, columns = job.columns;
  if (team.verifies() && team.checker() == 0) own.state = abft::attempts(a.repeats);
  for (bool open = there, again = false; team.goes_on(open); again = true) {
    team.template read<false>(a.repeats >= 0, again, job.from, a.from.row_stride, a.from.column_stride, a.given, columns, first_column,
                              a.identity, a.X_conjugated);
    team.strike_tile(site::q, 0, 2);
    team.new_phase();
    job.compute(team);
    team.strike_tile(site::q, 1, 2);
    team.new_phase();
    if (a.repeats < 0) {
      team_barrier<P>();  // the shifts are stored
      if (open) job.store(team);
      open = false;
      continue;
    }
    typename decltype(team)::seen found;
    if (!Solves && team.verifies()) job.reflect_sums(team, found);
    team.add_weighted(m, columns, [](int, int) { return true; });
    if constexpr (Solves) {
      block_barrier<P>();  // partial sums have been read
      team.template add_columns<1>(k_certificates, [&](int c, int r, wide_of<S>(&sums)[1]) {
        const int column = team.column_of(c);
        if (team.row_of(r) < m && column < columns) sums[0] += 2 * (team.scale_of(column) * size_of_number(team.x[c][r]));
      });
    }
    team.hash_tile(m, columns);
    team_barrier<P>();  // sums and hashes are stored
    if (team.verifies()) {
      found.hash = team.tile_hash(0);
      int odd = found.odd || team.any_odd() ? 1 : 0;
      for (int distance = 1; distance < shape::checkers; distance *= 2) odd |= __shfl_xor_sync(0xffffffffu, odd, distance);
      found.odd = odd != 0;
      if constexpr (Solves) {
        const auto worst = job.compare_rows(team);
        // Some number in T, in x or in between is not finite: if a recomputation gives the same bits, the data explain it.
        found.odd |= !worst.is_finite();
        abft::finding now = team.judge(worst.residual, {worst.limit, worst.limit}, found, a.repeats);
        compare_hash(found.hash, team.tile_hash(1), now);
        if (open) team.settle(now, a.events, matrix, 3);
      } else {
        abft::finding now = team.judge_sums(m, thresholds::residual<real_of<S>>(1, k_reals<S> * again_of(m), columns), found, a.repeats);
        compare_hash(found.hash, team.tile_hash(1), now);
        if (open) team.settle(now, a.events, matrix, 2);
      }
    }
    team_barrier<P>();  // the outcome is stored, and the memory may be reused
    const auto how = static_cast<abft::outcome>(own.how);
    if (!open || how == abft::outcome::open) continue;
    open = false;
    team.new_phase();
    if (a.stores || abft::stands(how)) job.store(team);
  }
}

}  // namespace ballast::qr::cuda
