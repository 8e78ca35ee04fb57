// Small fits, one block per fit: normalization, first centroids, iterations and labels without the host.
// Layer: backend "cuda" of K-Means, device code.
// Protection (scheme "dmr"): two blocks compute each fit from their own loads and share nothing. The host compares the result of the first,
// as received, with the hash of the second; for enqueued fits the second block to finish does (batch_verify.cuh). The order of all sums
// depends on the shape only, so correct results agree bit for bit. Distances are sums of squared differences, in the precision of the
// points. Decisions are those of the driver (kmeans/driver: lloyd.cpp, seeding.cpp, normalization.cpp; stop.hpp).
#pragma once

#include "abft/attempt.hpp"
#include "abft/threshold.hpp"
#include "core/counter_rng.hpp"
#include "cuda/arch/arch.cuh"
#include "cuda/block/bits.cuh"
#include "cuda/block/launch.cuh"
#include "cuda/block/sums.cuh"
#include "kmeans/cuda/batch/batch.hpp"
#include "kmeans/scale.hpp"
#include "kmeans/sites.hpp"
#include "kmeans/stop.hpp"

namespace ballast::kmeans::cuda {

// The fit of a thread block. It has many members because all steps of a fit run in one kernel, and share its sizes, its pointers into
// shared memory and its pointers into scratch memory.
template <class T, bool Enqueued, class Injector>
class batch_fit {
 public:
  using launch = ballast::cuda::kernel_launch<batch_arguments<T>, Injector>;

  __device__ __forceinline__ explicit batch_fit(const launch& from)
      : given_(from),
        a(from.arguments),
        m(a.m),
        n(a.n),
        k(a.k),
        chunks(a.chunks),
        thread(static_cast<int>(threadIdx.x)),
        local(static_cast<std::int64_t>(blockIdx.x) / a.replicas),
        fit(a.fits == nullptr ? local : a.fits[local]),
        replica(static_cast<int>(static_cast<std::int64_t>(blockIdx.x) % a.replicas)) {
    const batch_layout at = batch_layout_of<T>(n, k, a.trials, chunks);
    const batch_scratch in = batch_scratch_of<T>(m, n, k);
    unsigned char* const near = arch::shared_memory();
    unsigned char* const far = a.scratch + static_cast<std::int64_t>(blockIdx.x) * in.bytes;
    shared = reinterpret_cast<batch_memory*>(near);
    pitch = at.pitch;
    trial_pitch = at.trial_pitch;
    centroid = reinterpret_cast<T*>(near + at.centroids);
    work = reinterpret_cast<double*>(near + at.work);
    shift = reinterpret_cast<T*>(near + at.shift);
    rows = static_cast<int>(in.rows);
    x = reinterpret_cast<T*>(far);
    closest = reinterpret_cast<T*>(far + in.closest);
    label = reinterpret_cast<std::uint32_t*>(far + in.labels);
    outer = reinterpret_cast<T*>(far + in.centroids);
    point = a.points + fit * a.stride;
    weight = a.weights == nullptr ? nullptr : a.weights + fit * m;
  }

  __device__ __forceinline__ void run() {
    if constexpr (Enqueued) {
      if (a.number > 0 && a.open[local] == 0) return;
    }
    batch_result made{};
    std::uint64_t hash = 0;
    if (!column_stats()) {
      made.status = 1;
    } else {
      normalize();
      for (int r = 0; r < a.runs; ++r) {
        choose_first(static_cast<std::uint64_t>(r));
        int iterations = 0;
        stop_rule rule = stop_rule::max_iter;
        iterate(iterations, rule);
        const double inertia = finish();
        if (r > 0 && !(inertia < made.inertia)) continue;
        made.inertia = inertia;
        made.iterations = iterations;
        made.stopped = static_cast<std::int32_t>(rule);
        if (replica == 0) {
          store();
        } else {
          hash = hash_result();
        }
      }
    }
    made.hash = hash + scalars_of(made);
    if (thread == 0) a.results[blockIdx.x] = made;
    if constexpr (Enqueued) settle();
  }

 private:
  static constexpr int k_warps = k_batch_threads / 32;
  static constexpr int k_together = 8;  // loads of a thread that are in flight at a time: the run time of a fit is mostly their latency
  // Steps of the sites: the choice of centroids, an iteration, the end.
  enum phase : int { k_seeding, k_iteration, k_end, k_phases };

  template <int Count, class V>
  __device__ __forceinline__ void strike(inject::site where, int step, int steps, int word, int words, V* data) const {
    given_.strike(ballast::cuda::index<Count>{}, where, {fit * a.replicas + replica, a.items, step, steps, word, words}, data);
  }

  // Combines the values of all threads; all threads get the result. There is a barrier before and after, so earlier writes are visible.
  template <class V, class Combine>
  __device__ __forceinline__ V over_block(V value, Combine&& combine) {
    static_assert(sizeof(V) == 8);
    V* const partial = reinterpret_cast<V*>(shared->partial);
    for (int distance = 16; distance > 0; distance /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
    if (thread % 32 == 0) partial[thread / 32] = value;
    __syncthreads();  // the warps' values are stored
    value = partial[0];
    for (int w = 1; w < k_warps; ++w) value = combine(value, partial[w]);
    __syncthreads();  // and have been read
    return value;
  }
  __device__ __forceinline__ double sum(double value) {
    return over_block(value, [](double p, double q) { return p + q; });
  }
  __device__ __forceinline__ double largest(double value) {
    return over_block(value, [](double p, double q) { return p > q ? p : q; });
  }

  __device__ __forceinline__ double weight_of(int i) const {
    return weight == nullptr ? 1.0 : static_cast<double>(weight[i] * weight_scale);
  }

  // Calls seen(i, load(i)) for i = first, first + step, … < end, in this order.
  template <class Load, class Seen>
  __device__ __forceinline__ static void each(int first, int end, int step, Load&& load, Seen&& seen) {
#pragma unroll 1
    for (int begin = first; begin < end; begin += k_together * step) {
      decltype(load(0)) value[k_together];
#pragma unroll
      for (int e = 0; e < k_together; ++e) value[e] = load(begin + e * step < end ? begin + e * step : begin);
#pragma unroll
      for (int e = 0; e < k_together; ++e) {
        if (begin + e * step < end) seen(begin + e * step, value[e]);
      }
    }
  }
  __device__ __forceinline__ T given_centroid(int j, int f) const {
    return a.centroids[(fit * k + j) * a.centroid_stride + f * a.centroid_column_stride];
  }
  __device__ __forceinline__ T given_at(int i, int f) const { return point[i * a.row_stride + f * a.column_stride]; }

  // ---------------------------------------------------------------- Normalization.

  __device__ static __forceinline__ bool finite(T value) { return fabs(static_cast<double>(value)) <= abft::k_largest<T>; }

  // Computes ranges and means of the features, scale and shift. Returns false if a value is invalid.
  __device__ __forceinline__ bool column_stats() {
    double *const low = work, *const high = work + n;
    bool bad = false;
    double heaviest = 0;
    for (int f = thread / 32; f < n; f += k_warps) {
      double least = abft::k_largest<double>, most = -abft::k_largest<double>;
      double sums[1] = {0};
      each(
          thread % 32, m, 32, [&](int i) { return given_at(i, f); },
          [&](int, T value) {
            bad |= !finite(value);
            const double wide = static_cast<double>(value);
            least = wide < least ? wide : least;
            most = wide > most ? wide : most;
            sums[0] += wide * 0x1p-64;
          });
      ballast::cuda::add_lanes<k_batch_threads, 32, 1>(sums);
      for (int distance = 16; distance > 0; distance /= 2) {
        const double other = __shfl_xor_sync(0xffffffffu, least, distance), another = __shfl_xor_sync(0xffffffffu, most, distance);
        least = other < least ? other : least;
        most = another > most ? another : most;
      }
      if (thread % 32 == 0) {
        double mean = sums[0] / static_cast<double>(m) * 0x1p64;
        mean = mean < least ? least : mean;
        T stored = static_cast<T>(mean > most ? most : mean);
        strike<1>(site::normalization, 0, 2, f, n, &stored);
        low[f] = least;
        high[f] = most;
        shift[f] = stored;
      }
    }
    for (int i = thread; weight != nullptr && i < m; i += k_batch_threads) {
      bad |= !finite(weight[i]) || !(weight[i] >= 0);
      heaviest = static_cast<double>(weight[i]) > heaviest ? static_cast<double>(weight[i]) : heaviest;
    }
    heaviest = largest(heaviest);
    double spread = 0, size = 0, nearest = abft::k_largest<double>;
    for (int f = thread; f < n; f += k_batch_threads) {
      const double mean = static_cast<double>(shift[f]) / 4, down = mean - low[f] / 4, up = high[f] / 4 - mean;
      spread = down > spread ? down : spread;
      spread = up > spread ? up : spread;
      size = fabs(low[f]) > size ? fabs(low[f]) : size;
      size = fabs(high[f]) > size ? fabs(high[f]) : size;
    }
    if (a.init == batch_init::given) {
      for (int j = thread; j < k; j += k_batch_threads) {
        double far = 0;
        for (int f = 0; f < n; ++f) {
          const T c = given_centroid(j, f);
          bad |= !finite(c);
          const double off = fabs(static_cast<double>(c) / 4 - static_cast<double>(shift[f]) / 4);
          far = off > far ? off : far;
        }
        nearest = far < nearest ? far : nearest;
      }
      nearest = over_block(nearest, [](double p, double q) { return p < q ? p : q; });
    } else {
      nearest = 0;
    }
    spread = largest(spread);
    size = largest(size);
    if (__syncthreads_or((bad || (weight != nullptr && !(heaviest > 0))) ? 1 : 0) != 0) return false;
    scale = scale_for<T>(spread > nearest ? spread : nearest, size);
    strike<1>(site::normalization, 1, 2, thread, k_batch_threads, &scale);
    weight_scale = weight == nullptr ? T(1) : weight_scale_for<T>(static_cast<double>(heaviest));
    for (int f = thread; f < n; f += k_batch_threads) shift[f] = shift[f] * scale;
    __syncthreads();  // shift is stored, and `work` has been read
    return true;
  }

  // Normalizes the points and stores them by features; computes the tolerance.
  __device__ __forceinline__ void normalize() {
    double variance = 0;
    for (int f = thread / 32; f < n; f += k_warps) {
      double sums[2] = {};
      each(
          thread % 32, m, 32, [&](int i) { return given_at(i, f); },
          [&](int i, T plain) {
            T value = plain * scale - shift[f];
            strike<1>(site::points, 0, 1, f * m + i, n * m, &value);
            x[f * rows + i] = value;
            sums[0] += static_cast<double>(value);
            sums[1] += static_cast<double>(value) * static_cast<double>(value);
          });
      ballast::cuda::add_lanes<k_batch_threads, 32, 1>(sums);
      const double mean = sums[0] / static_cast<double>(m), own = sums[1] / static_cast<double>(m) - mean * mean;
      if (thread % 32 == 0 && own > 0) variance += own;
    }
    tolerance = a.tol * (sum(variance) / static_cast<double>(n));
    strike<1>(site::tolerance, 0, 1, thread, k_batch_threads, &tolerance);
  }

  // ---------------------------------------------------------------- Distances.

  // Computes ‖x_i − c‖² for a group of columns of `packed`, which is stored by features.
  __device__ __forceinline__ void distances(int i, const T* packed, int width, T (&made)[k_batch_group]) const {
    for (int q = 0; q < k_batch_group; ++q) made[q] = 0;
    each(
        0, n, 1, [&](int f) { return x[f * rows + i]; },
        [&](int f, T value) {
          for (int q = 0; q < k_batch_group; ++q) {
            const T off = value - packed[f * width + q];
            made[q] += off * off;
          }
        });
  }

  // Computes ‖x_i − c‖² in double; c is column j of `packed`.
  __device__ __forceinline__ double exact(int i, const T* packed, int j) const {
    double square = 0;
    for (int f = 0; f < n; ++f) {
      const double off = static_cast<double>(x[f * rows + i]) - static_cast<double>(packed[f * pitch + j]);
      square += off * off;
    }
    return square;
  }

  // Labels each point with its nearest centroid, the lowest index among equals. Returns how many labels changed.
  __device__ __forceinline__ double assign(phase when) {
    double changed = 0;
    for (int i = thread; i < m; i += k_batch_threads) {
      T least = static_cast<T>(abft::k_largest<T>);
      std::uint32_t best = 0;
      for (int j = 0; j < k; j += k_batch_group) {
        T made[k_batch_group];
        distances(i, centroid + j, pitch, made);
        strike<k_batch_group>(site::product, when, k_phases, i, m, made);
        strike<1>(site::minimum, when, k_phases, i, m, &least);
        for (int q = 0; q < k_batch_group; ++q) {
          const bool nearer = j + q < k && made[q] < least;
          least = nearer ? made[q] : least;
          best = nearer ? static_cast<std::uint32_t>(j + q) : best;
        }
      }
      strike<1>(site::index, when, k_phases, i, m, &best);
      changed += label[i] != best ? 1 : 0;
      label[i] = best;
      strike<1>(site::label, when, k_phases, i, m, label + i);
    }
    return sum(changed);
  }

  // ---------------------------------------------------------------- First centroids.

  // Copies a point to the centroid of column j. Each thread copies some features.
  __device__ __forceinline__ void take_row(int j, int row) {
    for (int f = thread; f < n; f += k_batch_threads) centroid[f * pitch + j] = x[f * rows + row];
  }

  // Sums value(i) over ranges of rows, one per thread, and over the ranges of each warp. Returns the sum of all.
  __device__ __forceinline__ int range() const { return (m + k_batch_threads - 1) / k_batch_threads; }
  template <class Value>
  __device__ __forceinline__ double sum_ranges(Value&& value) {
    double own = 0;
    for (int i = thread * range(); i < m && i < (thread + 1) * range(); ++i) own += value(i);
    shared->part[thread] = own;
    __syncthreads();  // the ranges are stored
    if (thread < k_warps) {
      double of_warp = 0;
      for (int t = 0; t < 32; ++t) of_warp += shared->part[thread * 32 + t];
      shared->whole[thread] = of_warp;
    }
    __syncthreads();  // the warps' sums are stored
    double all = 0;
    for (int w = 0; w < k_warps; ++w) all += shared->whole[w];
    return all;
  }

  // Returns the row at which the running sum of value(i) exceeds `target`; the last row with a positive value if rounding leaves none; −1
  // if all are 0. Computed by each calling thread, after sum_ranges of the same values.
  template <class Value>
  __device__ __forceinline__ int row_at(double target, Value&& value) const {
    double before = 0;
    int w = 0;
    while (w + 1 < k_warps && before + shared->whole[w] <= target) before += shared->whole[w++];
    int t = w * 32;
    while (t + 1 < k_batch_threads && before + shared->part[t] <= target) before += shared->part[t++];
    const int begin = t * range() < m ? t * range() : m;
    int last = -1;
    for (int i = begin; i < m; ++i) {
      const double part = value(i);
      if (!(part > 0)) continue;
      last = i;
      before += part;
      if (before > target) break;
    }
    for (int i = begin; last < 0 && i-- > 0;) last = value(i) > 0 ? i : -1;
    return last;
  }

  __device__ __forceinline__ void choose_first(std::uint64_t run);

  // Draws k different points, those of positive weight first: a partial Fisher–Yates shuffle of their list that stores only the positions
  // it changed.
  __device__ __forceinline__ void draw_different(std::uint64_t seed, std::uint64_t stream);

  // Greedy k-means++: each step draws candidates with probability proportional to weight · (distance to the nearest centroid so far)² and
  // takes the one that leaves the least potential.
  __device__ __forceinline__ void draw_plus_plus(std::uint64_t seed, std::uint64_t stream);

  // Updates `closest` with a centroid, which is a column of the candidates. Returns the potential.
  template <class Value>
  __device__ __forceinline__ double keep_closest(const T* one, bool first, Value&& potentials);

  // Computes shared->left: the potential with each candidate.
  __device__ __forceinline__ void try_candidates(const T* candidate);

  // ---------------------------------------------------------------- Lloyd.

  // Returns the total of column f of a cluster: a feature, its weight (f = n), or its points of positive weight (f = n + 1). Before they
  // are added up, there is one part per chunk of the points.
  __device__ __forceinline__ double& total(int f, int j, int chunk = 0) { return work[(f * k + j) * chunks + chunk]; }
  __device__ __forceinline__ double weight_of_cluster(int j) { return total(n + 1, j) > 0 ? total(n, j) : 0.0; }

  __device__ __forceinline__ void add_up() {
    for (int e = thread; e < (n + 2) * k * chunks; e += k_batch_threads) work[e] = 0;
    __syncthreads();  // the parts are cleared
    const int chunk = thread % chunks;
    struct labelled {
      std::uint32_t label;
      double weight;
      T value;
    };
    for (int f = thread / chunks; f < n + 2; f += k_batch_threads / chunks) {
      each(
          chunk, m, chunks,
          [&](int i) {
            return labelled{label[i], weight_of(i), f < n ? x[f * rows + i] : T(0)};
          },
          [&](int, const labelled& at) {
            if (at.label >= static_cast<unsigned>(k)) return;  // corrupted
            const double value = f < n ? at.weight * static_cast<double>(at.value) : f == n ? at.weight : at.weight > 0 ? 1.0 : 0.0;
            total(f, static_cast<int>(at.label), chunk) += value;
          });
    }
    __syncthreads();  // the parts are stored
    for (int e = thread; e < (n + 2) * k; e += k_batch_threads) {
      double all = 0;
      for (int c = 0; c < chunks; ++c) all += work[e * chunks + c];
      strike<1>(e < n * k ? site::sum : site::count, 0, 1, e < n * k ? e : e - n * k, e < n * k ? n * k : 2 * k, &all);
      work[e * chunks] = all;
    }
    __syncthreads();  // the totals are stored
  }

  // Moves the point that is farthest from its centroid to each cluster without members. A point whose distance is only rounding is not
  // moved.
  __device__ __forceinline__ void relocate() {
    double before = abft::k_largest<double>;
    int row = -1;
    for (int to = 0; to < k; ++to) {
      if (total(n + 1, to) > 0) continue;
      // Find the next point in descending order of distances, the lowest row first among equals.
      double far = -1;
      int own = m;
      for (int i = thread; i < m; i += k_batch_threads) {
        if (!(weight_of(i) > 0) || label[i] >= static_cast<unsigned>(k)) continue;
        const double square = exact(i, centroid, static_cast<int>(label[i]));
        const bool left = square < before || (square == before && i > row);
        if (left && square > far) far = square, own = i;
      }
      const double most = largest(far);
      if (most < 0) return;
      row = static_cast<int>(
          over_block(far == most ? static_cast<double>(own) : static_cast<double>(m), [](double p, double q) { return p < q ? p : q; }));
      before = most;
      const int from = static_cast<int>(label[row]);
      double square = 0;
      for (int f = 0; f < n; ++f) square += static_cast<double>(x[f * rows + row]) * static_cast<double>(x[f * rows + row]);
      if (!may_relocate<T>(most, square, total(n + 1, from))) return;  // all remaining points are nearer
      __syncthreads();                                                 // the totals have been read
      const double w = weight_of(row);
      for (int f = thread; f < n + 2; f += k_batch_threads) {
        const double value = f < n ? w * static_cast<double>(x[f * rows + row]) : f == n ? w : 1.0;
        total(f, from) -= value;
        total(f, to) += value;
      }
      __syncthreads();  // the totals are stored
    }
  }

  // Computes the centroids from the totals. A cluster that is still empty gets a copy of the heaviest centroid. Returns Σ‖shift‖².
  __device__ __forceinline__ double divide(bool some_empty) {
    int heaviest = 0;
    for (int j = 1; some_empty && j < k; ++j) heaviest = weight_of_cluster(j) > weight_of_cluster(heaviest) ? j : heaviest;
    double moved = 0;
    for (int e = thread; e < n * k; e += k_batch_threads) {
      const int f = e / k, j = e % k, from = weight_of_cluster(j) > 0 ? j : heaviest;
      const double w = weight_of_cluster(from);
      T& kept = centroid[f * pitch + j];
      T made = w > 0 ? static_cast<T>(total(f, from) / w) : kept;
      strike<1>(site::centroid, 0, 2, e, n * k, &made);
      const double off = static_cast<double>(made) - static_cast<double>(kept);
      moved += off * off;
      kept = made;
    }
    return sum(moved);
  }

  __device__ __forceinline__ void iterate(int& iterations, stop_rule& rule) {
    for (int i = 0; i < a.max_iter; ++i) {
      const double changed = assign(k_iteration);
      add_up();
      double empty = 0;
      for (int j = thread; j < k; j += k_batch_threads) empty += total(n + 1, j) > 0 ? 0 : 1;
      const bool some_empty = sum(empty) > 0;
      if (some_empty) relocate();
      __syncthreads();  // the totals are stored
      double moved = divide(some_empty);
      strike<1>(site::shift, 0, 1, thread, k_batch_threads, &moved);
      iterations = i + 1;
      // The threads vote, so that a thread with a corrupted number does not skip a barrier.
      if (__syncthreads_or(stop_after(changed == 0, moved, tolerance) != stop_rule::none ? 1 : 0) == 0) continue;
      rule = changed == 0 ? stop_rule::labels_unchanged : stop_rule::tolerance;
      return;
    }
  }

  // ---------------------------------------------------------------- The end of a run.

  // Computes the centroids in the units of the points, the final labels and the inertia.
  __device__ __forceinline__ double finish() {
    T* const plain = reinterpret_cast<T*>(work);
    const double unscale = 1 / static_cast<double>(scale);
    for (int e = thread; e < n * k; e += k_batch_threads) {
      const int f = e % n, j = e / n;
      T out = static_cast<T>((static_cast<double>(centroid[f * pitch + j]) + static_cast<double>(shift[f])) * unscale);
      strike<1>(site::centroid, 1, 2, e, n * k, &out);
      outer[e] = out;
      const T inner = out * scale - shift[f];
      centroid[f * pitch + j] = inner < -k_far<T> ? -k_far<T> : inner > k_far<T> ? k_far<T> : inner;
      plain[f * pitch + j] = out * scale;
    }
    __syncthreads();  // the centroids are stored
    assign(k_end);
    double own = 0;
    for (int i = thread; i < m; i += k_batch_threads) {
      const std::uint32_t j = label[i];
      if (j >= static_cast<unsigned>(k)) continue;  // corrupted
      double square = 0;
      each(
          0, n, 1, [&](int f) { return given_at(i, f); },
          [&](int f, T value) {
            const double off = static_cast<double>(value * scale) - static_cast<double>(plain[f * pitch + static_cast<int>(j)]);
            square += off * off;
          });
      own += weight_of(i) * square;
    }
    double inertia = sum(own);
    // All threads use the number of one thread for decisions.
    strike<1>(site::inertia, 0, 1, thread, 1, &inertia);
    if (thread == 0) shared->left[0] = ldexp(inertia, -2 * ilogb(static_cast<double>(scale)) - ilogb(static_cast<double>(weight_scale)));
    __syncthreads();  // the inertia is stored
    return shared->left[0];
  }

  __device__ __forceinline__ void store() {
    for (int e = thread; e < n * k; e += k_batch_threads) a.made[local * n * k + e] = outer[e];
    for (int i = thread; i < m; i += k_batch_threads) a.labels[local * m + i] = label[i];
  }
  __device__ __forceinline__ std::uint64_t hash_result() {
    std::uint64_t own = 0;
    for (int e = thread; e < n * k; e += k_batch_threads) own += batch_term(ballast::cuda::bits(outer[e]), e);
    for (int i = thread; i < m; i += k_batch_threads) own += batch_term(label[i], std::int64_t{k} * n + i);
    return over_block(own, [](std::uint64_t p, std::uint64_t q) { return p + q; });
  }

  __device__ __forceinline__ std::uint64_t scalars_of(const batch_result& made) const {
    return batch_scalars(ballast::cuda::bits(made.inertia), made.iterations, made.stopped, made.status, std::int64_t{k} * n + m);
  }

  // ---------------------------------------------------------------- Enqueued fits (batch_verify.cuh).

  // Verifies the fit, and stores it or opens it again.
  __device__ __forceinline__ void settle();
  __device__ __forceinline__ bool is_last_of_pair();
  __device__ __forceinline__ std::uint64_t hash_stored(const batch_result& scalars);
  __device__ __forceinline__ void commit();

  // The streams of the counter-based random numbers of each run, as in driver/seeding.cpp.
  enum : std::uint64_t { k_stream_pick, k_stream_candidates, k_streams };
  const launch& given_;
  const batch_arguments<T>& a;
  const int m, n, k, chunks, thread;
  const std::int64_t local, fit;  // index among the fits of this launch; among those of the call
  const int replica;
  batch_memory* shared;
  T *centroid, *shift;  // by features, normalized
  double* work;
  int pitch, trial_pitch, rows;
  T *x, *closest, *outer;
  std::uint32_t* label;
  const T *point, *weight;
  T scale = 1, weight_scale = 1;
  double tolerance = 0;
};

}  // namespace ballast::kmeans::cuda
