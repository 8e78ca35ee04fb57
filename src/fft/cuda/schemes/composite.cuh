// Two-sided checksums: a block processes a group of P.transactions tiles one after the other, stores each immediately, and checks them
// together.
// Layer: fft/cuda kernels, over the layers of line.cuh.
// Source: TurboFFT (PPoPP 2025) sections 4.1 to 4.3, with two differences (below).
//
// For signals x_g of a group with transforms y_g and residuals ρ_g = aᵀy_g − bᵀx_g, a thread keeps in registers u = Σ w_g x_g, element by
// element, w_g = ±1, and the scalars Σ w_g ρ_g and Σ w_g c_g ρ_g, c_g = e^{2πi mg/G}. If one signal is wrong, the ratio of the two scalars
// is the c_g of its position. The correct signal is the transform of u minus the other signals, which are read back from memory.
// Differences: the paper adds the residual of v = Σ w_g y_g to the wrong signal; here the signal is computed again, so no v is kept and a
// large fault loses no digits. The paper has other weights: here signs keep the rounding errors of equal signals from adding up, and all
// c_g have the same size, so that every position is located equally well.
#pragma once

#include "fft/cuda/kernel/line.cuh"
#include "fft/sites.hpp"

namespace ballast::fft::cuda {

// The sign of w_g (true: −1), and the m of c_g = e^{2πi mg/G}; both come from a search. Both sums are checked. If equal faults strike equal
// signals, all of a group or two of it, one of the sums is at least 0.2 of one residual, and the sums differ from those of one signal at
// any position. If equal signals round alike, all n of a group or every second, third, … eighth, n > 3, each sum is at most 1.42 √n.
BALLAST_HD constexpr bool group_weight_negative(int g) { return (0x7ca507a3u >> g & 1) != 0; }
BALLAST_HD constexpr int group_position_step(int signals) { return signals == 32 ? 11 : signals == 4 || signals == 8 ? 3 : 1; }

// The check of one line of a group: the lines at the same position in all tiles of the group. In shared memory.
struct group_record {
  double rho[2][4];  // Σ w_g ρ_g and Σ w_g c_g ρ_g of both vectors
  double residual;
  double threshold;  // squared
  double norm_square;
  std::uint32_t word;     // verdict of the check
  std::int32_t position;  // index in the group of the wrong tile; −1: not located
  std::uint32_t strange;  // bit g: the stored line of tile g has a NaN, or a number larger than any possible result
  std::uint32_t failed;   // not 0: the tiles were computed again, and one of them still fails
};
static_assert(sizeof(group_record) <= k_group_record_bytes);

template <line_policy P, class Injector>
struct composite_tile : line_tile<P, Injector> {
  using tile_type = line_tile<P, Injector>;
  using tile_type::a;
  using tile_type::barrier;
  using tile_type::launch;
  using tile_type::outputs;
  using tile_type::records;
  using tile_type::x;
  using typename tile_type::number;
  using typename tile_type::real;
  static constexpr int k_in = P.butterflies(0) * P.radix[0];
  static constexpr int k_out = P.butterflies(tile_type::k_last) * P.radix[tile_type::k_last];
  // k_returns: y can be computed back from the stored values. k_whole: in addition all elements of y are stored.
  static constexpr bool k_returns = P.store_factor != factor_form::table;
  static constexpr bool k_whole = k_returns && !P.truncated;

  number u[k_in];
  real in[2][4];   // Σ w_g bᵀx_g and Σ w_g c_g bᵀx_g over this thread's elements
  real out[2][4];  // the same for aᵀy_g
  real norm;       // Σ ‖x_g‖²

  __device__ explicit composite_tile(const line_launch<Injector>& given) : tile_type(given) {}

  __device__ __forceinline__ group_record* groups() const {
    return reinterpret_cast<group_record*>(reinterpret_cast<unsigned char*>(records()) + k_record_bytes * P.lines);
  }
  __device__ __forceinline__ line_report<Injector> about(int line) const {
    return {launch, this->tile, P.lines, line, this->number_of(line)};
  }

  template <class Body>
  __device__ __forceinline__ static void each_own_line(Body&& body) {
    for (int line = static_cast<int>(threadIdx.x); line < P.lines; line += P.block()) body(line);
    __syncwarp();  // lanes of a warp reconverge before the next barrier
  }

  static __device__ __forceinline__ real weight(int g) { return group_weight_negative(g) ? real(-1) : real(1); }

  // Returns c_{g + 1} from c_g.
  static __device__ __forceinline__ number next_position(const number& c) {
    constexpr unit_root step = root_of_unity(P.transactions - group_position_step(P.transactions) % P.transactions, P.transactions);
    return c * number{static_cast<real>(step.re), static_cast<real>(step.im)};
  }

  static __device__ __forceinline__ void accumulate(real (&to)[2][4], const real (&values)[4], real w, const number& c) {
    for (int i = 0; i < 4; i += 2) {
      to[0][i] = multiply_add(w, values[i], to[0][i]);
      to[0][i + 1] = multiply_add(w, values[i + 1], to[0][i + 1]);
      to[1][i] = multiply_add(w * c.re, values[i], multiply_add(-w * c.im, values[i + 1], to[1][i]));
      to[1][i + 1] = multiply_add(w * c.im, values[i], multiply_add(w * c.re, values[i + 1], to[1][i + 1]));
    }
  }

  // Processes tiles first … first + count − 1. A tile that must be verified alone ends the group early; the rest forms another group.
  __device__ __forceinline__ void run_group(std::int64_t first, int count) {
    const std::int64_t end = first + count;
    while (first < end) {
      std::int64_t next = first;
      bool stored = true;
      clear();
      number c{real(1), real(0)};
      for (; next < end && stored; ++next) {
        this->select(next);
        stored = add_tile(weight(static_cast<int>(next - first)), c);
        c = next_position(c);
      }
      const bool good = check();
      const bool again = !good && settle(first, static_cast<int>(next - first));
      // The composites are no longer needed: their registers are free.
      for (std::int64_t each = again ? first : stored ? next : next - 1; each < next; ++each) verify_alone(each);
      if (!good) report_group(first, again);
      first = next;
    }
  }

  __device__ __forceinline__ void clear() {
    constexpr number zero{real(0), real(0)};
    unrolled<k_in>([&](auto i) { u[decltype(i)::value] = zero; });
    for (int set = 0; set < 2; ++set) {
      for (int i = 0; i < 4; ++i) in[set][i] = out[set][i] = 0;
    }
    norm = 0;
  }

  // Computes a tile and verifies it before it is stored, like line_kernel.
  __device__ __forceinline__ void verify_alone(std::int64_t which) {
    barrier();
    this->select(which);
    this->run_verified();
    each_own_line([&](int line) {
      if (this->valid(line) && records()[line].word != abft::k_pass) groups()[line].failed = 1;
    });
    barrier();
  }

  // Processes one transaction. Returns whether the tile is stored. If not, it must be verified alone: its input is so large that the
  // composites would lose the other signals.
  __device__ __forceinline__ bool add_tile(real w, const number& c) {
    constexpr real huge = P.wide ? real(1e250) : real(1e30);
    bool alone = false;
    this->load([&] {
      alone = __syncthreads_or(!(this->square <= huge)) != 0;
      if (alone) return;
      unrolled<k_in>([&](auto at) {
        constexpr int i = decltype(at)::value;
        u[i] = {multiply_add(w, x[i].re, u[i].re), multiply_add(w, x[i].im, u[i].im)};
      });
      norm += this->square;
    });
    if (alone) return false;
    this->transform();
    accumulate(in, this->encoded, w, c);
    real sum[4] = {};
    this->finish(sum);
    accumulate(out, sum, w, c);
    if (this->valid(this->line_of(P.out_columns))) this->store();
    return true;
  }

  // ---- The check of a group ----

  // Adds one set of sums over the threads of each line, and calls body(line, aᵀy − bᵀx, ‖x‖²) in one thread of the line.
  template <int Set, class Body>
  __device__ __forceinline__ void reduce(Body&& body) const {
    const double scale = P.scaled ? static_cast<double>(static_cast<real>(a.check_scale)) : 1;
    barrier();
    double encoded[4];
    double sums[4];
    double square = static_cast<double>(norm);
    for (int i = 0; i < 4; ++i) {
      encoded[i] = static_cast<double>(in[Set][i]);
      sums[i] = static_cast<double>(out[Set][i]);
    }
    if constexpr (P.remaps()) {
      this->deposit_encoded(encoded, square);
    } else {
      for (int i = 0; i < 4; ++i) sums[i] -= scale * encoded[i];
    }
    this->add_line(sums, square);
    if (this->leads()) body(this->line_of(P.out_columns), sums, square);
    __syncwarp(warp_mask<P.block()>());
  }

  // Returns the square of the threshold of a group's line. A norm too small for an exact square counts as the smallest norm with an exact
  // square.
  __device__ __forceinline__ abft::guarded_threshold limit(double norm_square) const {
    constexpr double tiny = P.wide ? 1e-300 : 1e-34;
    const double square = norm_square < tiny ? tiny : norm_square;
    abft::guarded_threshold tau;
    tau.value = a.slope[0] * a.slope[0] * square + P.transactions * (a.offset[0] * a.offset[0]);
    tau.twin = a.slope[1] * a.slope[1] * square + P.transactions * (a.offset[1] * a.offset[1]);
    return tau;
  }

  // Strikes a value that exists once per group as if each of its tiles had it.
  template <class T>
  __device__ __forceinline__ void strike_group(inject::site where, T* data, int thread, int threads) const {
    if constexpr (Injector::enabled) {
      const std::int64_t first = this->tile / P.transactions * P.transactions;
      for (std::int64_t at = first; at <= this->tile; ++at)
        launch.strike(index<1>{}, where, inject::device_position{a.first_tile + at, a.all_tiles, a.pass, a.passes, thread, threads}, data);
    }
  }

  // Returns whether every line of the group is good. Checks both sets: faults of several signals that cancel in one do not cancel in the
  // other.
  __device__ __forceinline__ bool check() const {
    bool failed = false;
    reduce<0>([&](int line, double(&rho)[4], double) {
      for (int i = 0; i < 4; ++i) strike_group(site::checksum, &rho[i], line * 4 + i, 4 * P.lines);
      groups()[line].residual = tile_type::larger_residual(rho);
    });
    reduce<1>([&](int line, const double(&rho)[4], double norm_square) {
      const double both[4] = {groups()[line].residual, 0, tile_type::larger_residual(rho), 0};
      const double residual = tile_type::larger_residual(both);
      abft::guarded_threshold tau = limit(norm_square);
      strike_group(site::threshold, &tau.value, line, P.lines);
      std::uint32_t word = abft::verify(residual * residual, tau);
      strike_group(site::comparison, &word, line, P.lines);
      group_record& r = groups()[line];
      r.word = word;
      r.residual = residual;
      r.threshold = tau.value;
      r.norm_square = norm_square;
      failed = failed || word != abft::k_pass;
    });
    return __syncthreads_or(failed) == 0;
  }

  // ---- Locate and correct ----

  // Handles a failed line. Adds both sets of sums, locates the wrong tile and corrects it. Returns whether all tiles must be computed
  // again.
  __device__ __forceinline__ bool settle(std::int64_t first, int count) {
    reduce<0>([&](int line, const double(&rho)[4], double) {
      for (int i = 0; i < 4; ++i) groups()[line].rho[0][i] = rho[i];
    });
    reduce<1>([&](int line, const double(&rho)[4], double) {
      for (int i = 0; i < 4; ++i) groups()[line].rho[1][i] = rho[i];
    });
    each_own_line([&](int line) { groups()[line].strange = 0; });
    barrier();
    bool wanted = false;
    each_own_line([&](int line) {
      group_record& r = groups()[line];
      if (r.word == abft::k_pass) return;
      r.failed = 0;
      const double square = limit(r.norm_square).value;
      if (within(r.rho[0], square) && within(r.rho[1], square)) {  // the check was struck, not the data
        r.word = abft::k_pass;
        this->select(first);
        const auto done = a.repairs == 0 ? event_action::uncorrectable : event_action::recomputed;
        about(line).report_event(r.residual, r.threshold, event_check::composite, done);
        if (a.repairs != 0) about(line).report_false_alarm();
        return;
      }
      r.position = located(r, count);
      wanted = true;
    });
    if constexpr (k_returns) {
      if (__syncthreads_or(wanted) != 0) {
        find_strange(first, count);
        if (a.repairs != 0) correct(first, count);
      }
    }
    bool lost = false;
    each_own_line([&](int line) { lost = lost || (groups()[line].word != abft::k_pass && groups()[line].position < 0); });
    return __syncthreads_or(lost && a.repairs != 0 && a.input_kept != 0) != 0;
  }

  __device__ __forceinline__ void report_group(std::int64_t first, bool again) {
    each_own_line([&](int line) {
      const group_record& r = groups()[line];
      if (r.word == abft::k_pass) return;
      this->select(first + (r.position < 0 ? 0 : r.position));
      line_report<Injector> told = about(line);
      if (r.position < 0) told.number = -1;
      auto done = event_action::uncorrectable;
      if (a.repairs != 0) {
        if (r.position >= 0) {
          done = event_action::corrected;
        } else if (again && r.failed == 0) {
          done = event_action::recomputed;
        }
      }
      told.report_event(r.residual, r.threshold, event_check::composite, done);
    });
    barrier();
  }

  // Returns whether (|Re| + |Im|)² ≤ square for both vectors; false for NaN.
  static __device__ __forceinline__ bool within(const double* rho, double square) {
    const double first = fabs(rho[0]) + fabs(rho[1]);
    const double second = fabs(rho[2]) + fabs(rho[3]);
    return first * first <= square && second * second <= square;
  }

  // Computes Σ w_g c_g ρ_g − c Σ w_g ρ_g.
  static __device__ __forceinline__ void difference(const group_record& r, const number& c, double (&rest)[4]) {
    const double re = static_cast<double>(c.re);
    const double im = static_cast<double>(c.im);
    for (int i = 0; i < 4; i += 2) {
      rest[i] = r.rho[1][i] - (re * r.rho[0][i] - im * r.rho[0][i + 1]);
      rest[i + 1] = r.rho[1][i + 1] - (im * r.rho[0][i] + re * r.rho[0][i + 1]);
    }
  }
  // Returns the square of the rounding error of difference(), from both residuals, the c_g and the sums.
  __device__ __forceinline__ double rounding_square(const group_record& r) const {
    constexpr double u = P.wide ? 0x1p-53 : 0x1p-24;
    const double size = fabs(r.rho[0][0]) + fabs(r.rho[0][1]) + fabs(r.rho[0][2]) + fabs(r.rho[0][3]);
    return 4 * limit(r.norm_square).value + 64 * u * size * (64 * u * size);
  }

  // Returns the only position that explains the residuals of both vectors in both sets, or −1.
  __device__ __forceinline__ int located(const group_record& r, int count) const {
    int found = -1;
    number c{real(1), real(0)};
    for (int g = 0; g < count; ++g) {
      double rest[4];
      difference(r, c, rest);
      if (within(rest, rounding_square(r))) {
        if (found >= 0) return -1;
        found = g;
      }
      c = next_position(c);
    }
    return found;
  }

  // Calls body(register, y, butterfly, element) for each output of this thread, where y is read back from memory.
  template <class Body>
  __device__ __forceinline__ void stored_outputs(Body&& body) const {
    const line_arguments& given = a;
    const line_side& s = given.target;
    const int line = this->line_of(P.out_columns);
    if (!this->valid(line)) return;
    const std::int64_t base = (this->first_column + line) * s.column + this->middle * s.middle + this->batch * s.batch;
    outputs([&](auto at, int o, auto q, auto k) {
      if constexpr (P.truncated) {
        if (this->target_position(o, line) >= given.stored) return;
      }
      number z{real(0), real(0)};
      if constexpr (P.store == store_form::real) {
        z.re = static_cast<const real*>(given.out)[base + o * s.element];
      } else {
        z = static_cast<const number*>(given.out)[base + o * s.element];
      }
      z = tile_type::swapped(z);
      if constexpr (P.twiddles()) {
        const number w = this->factor(given.store_table, o, line);
        z = z * number{w.re, -w.im};
      }
      body(at, z, q, k);
    });
  }

  // NaN residuals locate nothing, but the stored values may: the wrong line is the one with a NaN or a huge number.
  __device__ __forceinline__ void find_strange(std::int64_t first, int count) {
    constexpr real huge = P.wide ? real(1e250) : real(1e30);
    const int line = this->line_of(P.out_columns);
    for (int g = 0; g < count; ++g) {
      this->select(first + g);
      bool strange = false;
      stored_outputs([&](auto, const number& z, auto, auto) { strange = strange || !(fabs(z.re) <= huge) || !(fabs(z.im) <= huge); });
      if (strange) atomicOr(&groups()[line].strange, 1u << g);
    }
    barrier();
    each_own_line([&](int each) {
      group_record& r = groups()[each];
      if (r.word == abft::k_pass) return;
      const std::uint32_t found = r.strange;
      if (found == 0) return;
      r.position = -1;
      for (int g = 0; g < count; ++g) {
        if (found == 1u << g) r.position = g;
      }
      if constexpr (!k_whole) r.position = -1;  // the correctness of the other lines cannot be verified
    });
    barrier();
  }

  // Computes located signals again, from the composite and the other signals, and stores them.
  __device__ __forceinline__ void correct(std::int64_t first, int count) {
    const int line = this->line_of(P.out_columns);
    const int position = groups()[line].position;
    if constexpr (k_whole) {
      // Verify the other signals: c_position Σ w_g ρ_g − Σ w_g c_g ρ_g does not depend on the signal at `position`.
      for (int set = 0; set < 2; ++set) {
        for (int i = 0; i < 4; ++i) out[set][i] = 0;
      }
      number c{real(1), real(0)};
      for (int g = 0; g < count; ++g) {
        this->select(first + g);
        real sum[4] = {};
        unrolled<k_out>([&](auto i) { x[decltype(i)::value] = number{real(0), real(0)}; });
        stored_outputs([&](auto at, const number& z, auto, auto) { this->x[decltype(at)::value] = z; });
        this->sum_outputs(sum);
        if (g != position) accumulate(out, sum, weight(g), c);
        c = next_position(c);
      }
      reduce<0>([&](int each, const double(&rho)[4], double) {
        for (int i = 0; i < 4; ++i) groups()[each].rho[0][i] = rho[i];
      });
      reduce<1>([&](int each, const double(&rho)[4], double) {
        for (int i = 0; i < 4; ++i) groups()[each].rho[1][i] = rho[i];
      });
      barrier();
      each_own_line([&](int each) {
        group_record& r = groups()[each];
        if (r.word == abft::k_pass || r.position < 0) return;
        double rest[4];
        number at{real(1), real(0)};
        for (int g = 0; g < r.position; ++g) at = next_position(at);
        difference(r, at, rest);
        if (!within(rest, rounding_square(r))) r.position = -1;
      });
    }
    barrier();
    unrolled<k_in>([&](auto i) { x[decltype(i)::value] = u[decltype(i)::value]; });
    this->encode_inputs();
    this->transform();
    const real scale = P.scaled ? static_cast<real>(a.scale) : real(1);
    unrolled<k_out>([&](auto at) {
      constexpr int i = decltype(at)::value;
      x[i] = {x[i].re * scale, x[i].im * scale};
    });
    real sum[4] = {};
    this->sum_outputs(sum);
    for (int i = 0; i < 4; ++i) {
      in[0][i] = this->encoded[i];
      out[0][i] = sum[i];
    }
    reduce<0>([&](int each, const double(&rho)[4], double) {
      group_record& r = groups()[each];
      const double residual = tile_type::larger_residual(rho);
      if (!(residual * residual <= limit(r.norm_square).value)) r.position = -1;
    });
    barrier();
    const group_record r = groups()[line];
    if (r.word == abft::k_pass || r.position < 0) return;
    for (int g = 0; g < count; ++g) {
      if (g == r.position) continue;
      const real w = weight(g);
      this->select(first + g);
      stored_outputs([&](auto at, const number& z, auto, auto) {
        constexpr int i = decltype(at)::value;
        this->x[i] = {multiply_add(-w, z.re, this->x[i].re), multiply_add(-w, z.im, this->x[i].im)};
      });
    }
    this->select(first + r.position);
    if (!this->valid(line)) return;
    const real w = weight(r.position);
    unrolled<k_out>([&](auto at) {
      constexpr int i = decltype(at)::value;
      x[i] = {w * x[i].re, w * x[i].im};
    });
    this->store();
  }
};

template <line_policy P, class Injector>
__global__ void __launch_bounds__(P.block(), P.min_blocks) composite_kernel(const __grid_constant__ line_launch<Injector> given) {
  arch::wait_for_previous_grid();
  arch::let_next_grid_start();
  composite_tile<P, Injector> work(given);
  const std::int64_t tiles = given.arguments.tiles;
  for (std::int64_t first = std::int64_t{blockIdx.x} * P.transactions; first < tiles; first += std::int64_t{gridDim.x} * P.transactions) {
    const std::int64_t rest = tiles - first;
    work.run_group(first, static_cast<int>(rest < P.transactions ? rest : P.transactions));
    if (first + std::int64_t{gridDim.x} * P.transactions < tiles) composite_tile<P, Injector>::barrier();
  }
}

}  // namespace ballast::fft::cuda
