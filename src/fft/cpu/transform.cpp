// The FFT on all cores: how a problem becomes tiles, and what happens to each tile: load, encode, transform, verify, and only then store.
// Layer: backend "cpu". SIMD is in kernels-inl.hpp, the steps of one line in line.cpp.
// Source: D. Bailey, FFTs in external or hierarchical memory, 1990 (a long line as a matrix); TurboFFT, PPoPP 2025 (checksums per group).
//
// One-pass: a tile is W signals (lanes) with all their elements. Larger or multi-dimensional signals are a volume n₀ × n₁ × n₂: lines along
// axes 0 and 1 go from memory to a workspace, W neighbours of axis 2 to a tile; lines along axis 2 go from there to the output, W
// neighbours of axis 1 to a tile. A long 1-D line is such a volume with twiddle factors between the passes and its output transposed.
// What waits in the workspace is sealed: a word for each lane of each W rows that changes with every bit of them.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <hwy/cache_control.h>

#include "core/aligned_buffer.hpp"
#include "core/counter_rng.hpp"
#include "core/parallel.hpp"
#include "fft/cpu/line.hpp"

namespace ballast::fft::cpu {
namespace {

// Lines up to this many points are transformed in one pass: the two buffers of a tile (128 bytes a row with AVX-512) then stay in the
// second-level cache. With many signals one pass pays up to the third-level cache, because its checks are made once, not twice:
// 2^24 points as 16384 × 1024, protected, 25 ms in one pass and 32 ms in two, unprotected the same (2 threads, Zen 5, f32).
constexpr std::int64_t k_one_pass = 2048;
constexpr std::int64_t k_one_pass_many = 32768;
constexpr std::int64_t k_many_tiles = 16;
// Lines of length with a large prime factor stay in one pass up to here, beyond they become a convolution of their own.
constexpr std::int64_t k_one_pass_prime = 8192;
constexpr std::int64_t k_longest_pass = 32768;
// Outputs larger than this bypass the cache.
constexpr std::int64_t k_stream_bytes = std::int64_t{16} << 20;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

bool direct_length(std::int64_t n) {
  const auto factors = prime_factors(n);
  return factors.empty() || factors.back() <= k_largest_direct_prime;
}

// n = first · second, both as near to √n as they come; nothing if n has no split into lines that one pass can do.
std::optional<std::pair<std::int64_t, std::int64_t>> split(std::int64_t n) {
  std::optional<std::pair<std::int64_t, std::int64_t>> best;
  std::int64_t best_cost = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t p = 2; p * p <= n; ++p) {
    if (n % p != 0) continue;
    const std::int64_t q = n / p;
    if (q > k_longest_pass || (!direct_length(q) && q > k_one_pass_prime)) continue;
    // Bluestein costs about five transforms.
    const std::int64_t cost = (direct_length(p) ? p : 5 * p) + (direct_length(q) ? q : 5 * q);
    if (cost < best_cost) {
      best_cost = cost;
      best = {q, p};
    }
  }
  return best;
}

// How the elements of a tile lie in memory. Strides in scalars unless said otherwise.
enum class access : std::uint8_t {
  rows,       // complex; each lane contiguous
  columns,    // complex; each row contiguous
  complex,    // complex; any strides
  scalars,    // a lane's scalars one `element` apart: real pairs
  real,       // real; imaginary parts are zero (load) or dropped (store)
  hermitian,  // load: the half spectrum of `length` elements, the other half made from it; index_* in elements
  blocks,     // the workspace, its rows being elements of W neighbouring lines: load_blocks, store_blocks
  own_rows,   // the workspace, a tile's own rows `element` apart
};

template <class T>
struct place_of {
  access how = access::rows;
  T* base = nullptr;
  std::int64_t lane = 0;
  std::int64_t element = 0;
  std::int64_t index_first = 0, index_lane = 0, index_element = 1, length = 0;  // hermitian
  T* seals = nullptr;
  std::int64_t seal_stride = 0;
};

template <class T>
struct tile_job {
  const line<T>* transform = nullptr;
  place_of<const T> from;
  place_of<T> to;
  int used = 0;  // lanes
  std::int64_t rows_stored = 0;
  bool inverse = false;
  bool expand = false;        // real_inverse of odd length: rows beyond the half spectrum are made in the tile
  const T* coarse = nullptr;  // twiddle factors after the transform
  const T* fine = nullptr;
  double scale = 1;
  bool stream = false;
  read_ahead ahead;  // what the next tile will read
  std::int64_t interval = 0;
  std::int64_t waiting = -1;  // number among the tiles whose result waits in memory, −1 for none
  std::int64_t index = 0;     // what events call lane 0
  std::int64_t index_lane = 1;
};

enum class result : std::uint8_t { done, damaged_input, uncorrectable };

// What one thread works in. A worker owns its slot's scratch while it runs.
template <class T>
struct scratch {
  core::aligned_buffer<T> x, y, spare;
  std::int64_t scalars = 0;
  lane_sums input;
  lane_sums output;
  lane_verdicts verdicts;

  explicit scratch(std::int64_t wanted) : x(wanted), y(wanted), scalars(wanted) {}
  T* need_spare() {
    if (spare.size() == 0) spare = core::aligned_buffer<T>(scalars);
    return spare.data();
  }
};

// How many places the injection sites of a call have.
struct places {
  std::int64_t tiles = 0;
  std::int64_t waiting = 0;  // tiles whose result waits in memory; 0: every tile shows itself before its last stage instead
};

// Strikes the used lanes of `rows` rows that are `stride` apart; with halves = 1 only the real parts.
template <class T>
void strike_rows(inject::active_injector& injector, inject::site where, const inject::place& here, T* base, std::int64_t stride,
                 std::int64_t rows, int used, int halves = 2) {
  if constexpr (inject::active_injector::enabled) {
    const int lanes = kernels<T>().lanes;
    if (used == lanes && stride == 2 * lanes && halves == 2) {
      injector.strike(where, here, base, rows * stride);
      return;
    }
    std::vector<T> compact;
    for (std::int64_t j = 0; j < rows; ++j) {
      for (int half = 0; half < halves; ++half)
        compact.insert(compact.end(), base + j * stride + half * lanes, base + j * stride + half * lanes + used);
    }
    if (!injector.strike(where, here, compact.data(), static_cast<std::int64_t>(compact.size()))) return;
    const T* next = compact.data();
    for (std::int64_t j = 0; j < rows; ++j) {
      for (int half = 0; half < halves; ++half, next += used)
        std::memcpy(base + j * stride + half * lanes, next, static_cast<std::size_t>(used) * sizeof(T));
    }
  }
}

// Carries tiles through their life on one thread.
template <class T>
class tile_worker {
 public:
  tile_worker(const call& how, const places& all, scratch<T>& mine, int slot)
      : how_(how), all_(all), mine_(mine), slot_(slot), kernel_(kernels<T>()) {}
  ~tile_worker() {
    if (checks_ > 0) how_.seen.checked(checks_);
    // Once for all the tiles of a task: a fence waits for memory.
    if (streamed_) hwy::FlushStream();
  }
  tile_worker(const tile_worker&) = delete;
  tile_worker& operator=(const tile_worker&) = delete;

  // damaged_input: what waited in memory does not match its seal; nothing was stored. uncorrectable: reported; nothing was stored.
  result process(const tile_job<T>& job) {
    const bool protect = how_.protection != protection::off;
    failure first;
    for (int failures = 0;; ++failures) {
      if (load(job, mine_.x.data(), protect ? &mine_.input : nullptr) != 0) return result::damaged_input;
      if (protect) {
        set_thresholds(job);
        strike_sums(job);
      }
      strike_rows(how_.injector, inject::site::fft_input, place(job), mine_.x.data(), 2 * kernel_.lanes, job.transform->rows_in(), job.used,
                  job.from.how == access::real ? 1 : 2);
      T* done = compute(job, mine_.x.data(), mine_.y.data());
      // Only what is stored: a fault elsewhere would be no fault of the output.
      strike_rows(how_.injector, inject::site::fft_output, place(job), done, 2 * kernel_.lanes, job.rows_stored, job.used,
                  job.to.how == access::real ? 1 : 2);
      failure now;
      if (!protect || verify(job, done, now)) {
        if (failures > 0) {
          how_.seen.detected("fft.signal", first.index, first.residual, first.threshold, action::recomputed, slot_);
          if (hash(job, done) == first.hash) how_.seen.false_alarm();
        }
        store(job, done);
        return result::done;
      }
      if (failures == 0) {
        first = now;
        first.hash = hash(job, done);
      }
      if (how_.protection == protection::detect || failures == k_repairs) {
        how_.seen.detected("fft.signal", first.index, first.residual, first.threshold, action::uncorrectable, slot_);
        return result::uncorrectable;
      }
    }
  }

 private:
  struct failure {
    std::int64_t index = -1;
    double residual = 0;
    double threshold = 0;
    std::uint64_t hash = 0;
  };

  inject::place place(const tile_job<T>& job) const { return {job.interval, all_.tiles, 0, 1}; }

  // ---- Load ----

  // Returns the number of seals that did not match.
  std::int64_t load(const tile_job<T>& job, T* x, lane_sums* sums) const {
    const line<T>& transform = *job.transform;
    const place_of<const T>& from = job.from;
    const std::int64_t row = 2 * kernel_.lanes;
    const bool self_conjugate = transform.is_real_inverse();
    const bool late = self_conjugate || job.expand;  // what is encoded is not quite what is read
    const std::int64_t rows = job.expand ? transform.rows_in() / 2 + 1 : transform.rows_in();
    const encoder<T> encode = sums == nullptr ? encoder<T>{} : transform.weights(0, job.inverse, sums);
    const encoder<T> early = late ? encoder<T>{} : encode;
    std::int64_t damaged = 0;
    switch (from.how) {
      case access::rows: kernel_.load_rows(from.base, from.lane, job.used, rows, x, early); break;
      case access::columns: kernel_.load_columns(from.base, from.element, job.used, rows, x, early); break;
      case access::blocks:
        damaged = kernel_.load_blocks(from.base, from.element, job.used, rows, x, from.seals, from.seal_stride, early);
        break;
      case access::own_rows: {
        std::memcpy(x, from.base, static_cast<std::size_t>(rows * row) * sizeof(T));
        if (from.seals != nullptr) {
          alignas(128) T seal[k_max_lanes];
          kernel_.seal_rows(from.base, rows, seal);
          damaged = std::memcmp(seal, from.seals, static_cast<std::size_t>(kernel_.lanes) * sizeof(T)) != 0;
        }
        if (early.weights != nullptr) kernel_.sum_tile(x, rows, early, true);
        break;
      }
      default:
        gather(job, rows, x);
        if (early.weights != nullptr) kernel_.sum_tile(x, rows, early, true);
    }
    if (self_conjugate) {
      std::fill_n(x + kernel_.lanes, kernel_.lanes, T(0));
      std::fill_n(x + (rows - 1) * row + kernel_.lanes, kernel_.lanes, T(0));
    }
    if (job.expand) {
      std::fill_n(x + kernel_.lanes, kernel_.lanes, T(0));
      for (std::int64_t k = 1; k < rows; ++k) {
        const T* low = x + k * row;
        T* high = x + (transform.rows_in() - k) * row;
        for (int l = 0; l < kernel_.lanes; ++l) {
          high[l] = low[l];
          high[kernel_.lanes + l] = -low[kernel_.lanes + l];
        }
      }
    }
    if (late && encode.weights != nullptr) kernel_.sum_tile(x, transform.rows_in(), encode, true);
    return damaged;
  }

  void gather(const tile_job<T>& job, std::int64_t rows, T* x) const {
    const place_of<const T>& from = job.from;
    const int lanes = kernel_.lanes;
    for (std::int64_t j = 0; j < rows; ++j) {
      T* re = x + j * 2 * lanes;
      T* im = re + lanes;
      for (int l = 0; l < lanes; ++l) {
        if (l >= job.used) {
          re[l] = im[l] = 0;
          continue;
        }
        const T* lane = from.base + l * from.lane;
        switch (from.how) {
          case access::complex:
            re[l] = lane[j * from.element];
            im[l] = lane[j * from.element + 1];
            break;
          case access::scalars:
            re[l] = lane[2 * j * from.element];
            im[l] = lane[(2 * j + 1) * from.element];
            break;
          case access::real:
            re[l] = lane[j * from.element];
            im[l] = 0;
            break;
          default: {
            // The elements that are their own mirror image are real, whatever their imaginary parts say.
            const std::int64_t i = from.index_first + l * from.index_lane + j * from.index_element;
            const bool mirrored = 2 * i > from.length;
            const T* z = lane + (mirrored ? from.length - i : i) * from.element;
            re[l] = z[0];
            im[l] = i == 0 || 2 * i == from.length ? T(0) : mirrored ? -z[1] : z[1];
          }
        }
      }
    }
  }

  // ---- Verification ----

  // Thresholds from the norms of the lanes. Norms whose squares left the range of T are made again with a scale.
  void set_thresholds(const tile_job<T>& job) {
    constexpr double low = sizeof(T) == 4 ? 1e-28 : 1e-280;
    constexpr double high = sizeof(T) == 4 ? 1e37 : 1e300;
    const double points = job.transform->points();
    const double scale = static_cast<double>(static_cast<T>(job.scale));
    const double kappa = k_kappa * job.transform->sensitivity();
    const double least = abft::fft_residual<T>(points, 0, kappa) * scale + abft::fft_output_underflow<T>(points);
    const double factor = (abft::fft_residual<T>(points, 1, kappa) - abft::fft_residual<T>(points, 0, kappa)) * scale;
    any_special_ = false;
    if (kernel_.set_thresholds(mine_.input, job.used, factor, least, low, high, mine_.verdicts)) return;
    const double room = static_cast<double>(std::numeric_limits<T>::max()) / (16 * points);
    for (int l = 0; l < job.used; ++l) {
      const double squares = mine_.input.squares[l];
      const double norm = squares > low && squares < high ? std::sqrt(squares) : careful_norm(mine_.x.data(), job.transform->rows_in(), l);
      special_[l] = !(norm < room);
      any_special_ = any_special_ || special_[l];
      mine_.verdicts.value[l] = mine_.verdicts.twin[l] = factor * norm + least;
    }
  }

  double careful_norm(const T* x, std::int64_t rows, int l) const {
    const std::int64_t half = kernel_.lanes;
    T largest = 0;
    for (std::int64_t j = 0; j < 2 * rows; ++j) {
      const T size = std::abs(x[j * half + l]);
      if (!(size <= largest)) largest = size;
      if (std::isnan(size)) return std::numeric_limits<double>::infinity();
    }
    if (largest == 0 || !std::isfinite(largest)) return static_cast<double>(largest);
    double squares = 0;
    for (std::int64_t j = 0; j < 2 * rows; ++j) {
      const double part = static_cast<double>(x[j * half + l]) / static_cast<double>(largest);
      squares += part * part;
    }
    return std::sqrt(squares) * static_cast<double>(largest);
  }

  void strike_sums(const tile_job<T>& job) {
    if constexpr (inject::active_injector::enabled) {
      double compact[4 * k_max_lanes];
      for (int i = 0; i < 4; ++i) std::copy_n(mine_.input.high[i], job.used, compact + i * job.used);
      if (!how_.injector.strike(inject::site::fft_checksum, place(job), compact, 4 * job.used)) return;
      for (int i = 0; i < 4; ++i) std::copy_n(compact + i * job.used, job.used, mine_.input.high[i]);
    }
  }

  // Fills in `seen` if a lane fails.
  bool verify(const tile_job<T>& job, T* done, failure& seen) {
    const line<T>& transform = *job.transform;
    // Twiddle factors are taken off again while the sums are made: their product is verified together with the transform.
    signed_sum<T> sum = transform.output_weights(job.inverse, &mine_.output);
    sum.coarse = job.coarse;
    sum.fine = job.fine;
    if (sum.weights != nullptr)
      kernel_.sum_signed(done, transform.rows_out(), sum);
    else
      kernel_.sum_tile(done, transform.rows_out(), transform.weights(1, job.inverse, &mine_.output), false);
    const double scale = static_cast<double>(static_cast<T>(job.scale));
    lane_verdicts& lanes = mine_.verdicts;
    strike_lanes(inject::site::fft_threshold, job, lanes.value, lanes.twin);
    kernel_.compare(mine_.input, mine_.output, scale, lanes);
    if (any_special_) {
      bool loaded = false;
      const T* judged = done;
      if (job.coarse != nullptr) {
        T* other = done == mine_.x.data() ? mine_.y.data() : mine_.x.data();
        kernel_.twiddle_rows(done, other, transform.rows_out(), job.coarse, job.fine, true, job.inverse);
        judged = other;
      }
      for (int l = 0; l < job.used; ++l) {
        if (special_[l]) lanes.word[0][l] = lanes.word[1][l] = judge_special(job, done, judged, l, loaded) ? k_lane_pass : ~k_lane_pass;
      }
    }
    strike_lanes(inject::site::fft_comparison, job, lanes.word[0], lanes.word[1]);
    checks_ += static_cast<std::uint64_t>(k_vectors * job.used);
    std::uint64_t wrong = 0;
    for (int l = 0; l < job.used; ++l) wrong |= (lanes.word[0][l] ^ k_lane_pass) | (lanes.word[1][l] ^ k_lane_pass);
    if (wrong == 0) return true;
    int l = 0;
    while (lanes.word[0][l] == k_lane_pass && lanes.word[1][l] == k_lane_pass) ++l;
    const int v = lanes.word[0][l] == k_lane_pass ? 1 : 0;
    seen.index = job.index + l * job.index_lane;
    seen.residual = lanes.size[v][l];
    seen.threshold = lanes.value[l];
    return false;
  }

  // Strikes the used lanes of two arrays as one.
  template <class U>
  void strike_lanes(inject::site where, const tile_job<T>& job, U* first, U* second) {
    if constexpr (inject::active_injector::enabled) {
      U compact[2 * k_max_lanes];
      std::copy_n(first, job.used, compact);
      std::copy_n(second, job.used, compact + job.used);
      if (!how_.injector.strike(where, place(job), compact, 2 * job.used)) return;
      std::copy_n(compact, job.used, first);
      std::copy_n(compact + job.used, job.used, second);
    }
  }

  std::complex<wide<T>> wide_sum(const T* tile, std::int64_t rows, int l, const encoder<T>& encode, int vector) const {
    using W = wide<T>;
    std::complex<W> total = 0;
    for (std::int64_t j = 0; j < rows; ++j) {
      const W re = tile[j * 2 * kernel_.lanes + l];
      const W im = tile[j * 2 * kernel_.lanes + kernel_.lanes + l];
      if (encode.general) {
        const T* w = encode.weights + 8 * j + 4 * vector;
        total += std::complex<W>(W(w[0]) * re + W(w[2]) * im, W(w[1]) * re + W(w[3]) * im);
      } else {
        const T* w = encode.weights + 4 * j + 2 * vector;
        total += multiply(std::complex<W>(re, im), std::complex<W>(w[0], w[1]));
      }
    }
    return total;
  }

  // A lane whose numbers the vector code cannot sum: near overflow, or with Inf or NaN. The former is summed in more range. Of the latter
  // no checksum can say anything; it is transformed again from memory and must come out the same.
  bool judge_special(const tile_job<T>& job, const T* done, const T* judged, int l, bool& loaded) {
    const line<T>& transform = *job.transform;
    const std::int64_t half = kernel_.lanes;
    T* again = mine_.need_spare();
    if (!loaded) load(job, again, nullptr);
    loaded = true;
    const auto finite = [&](const T* tile, std::int64_t rows) {
      for (std::int64_t j = 0; j < 2 * rows; ++j) {
        if (!std::isfinite(tile[j * half + l])) return false;
      }
      return true;
    };
    if (finite(again, transform.rows_in())) {
      const double norm = careful_norm(again, transform.rows_in(), l);
      if (finite(judged, transform.rows_out())) {
        const double scale = static_cast<double>(static_cast<T>(job.scale));
        const double tau = abft::fft_residual<T>(transform.points(), norm, k_kappa * transform.sensitivity()) * scale +
                           abft::fft_output_underflow<T>(transform.points());
        for (int v = 0; v < k_vectors; ++v) {
          const auto rho =
              wide_sum(judged, transform.rows_out(), l, transform.weights(1, job.inverse, nullptr), v) -
              wide_sum(again, transform.rows_in(), l, transform.weights(0, job.inverse, nullptr), v) * static_cast<wide<T>>(scale);
          if (!(std::abs(rho) <= static_cast<wide<T>>(tau))) return false;
        }
        return true;
      }
      // An overflow that the data cause needs large data.
      if (!(norm > static_cast<double>(std::numeric_limits<T>::max()) / (16 * transform.points()))) return false;
    }
    // The spare tile is transformed in place of the lane's neighbours too: they are not looked at.
    core::aligned_buffer<T> x(mine_.scalars), y(mine_.scalars);
    load(job, x.data(), nullptr);
    const T* twice = compute(job, x.data(), y.data());
    for (std::int64_t j = 0; j < 2 * transform.rows_out(); ++j) {
      if (!same_value(done[j * half + l], twice[j * half + l])) return false;
    }
    return true;
  }

  // ---- Transform and store ----

  T* compute(const tile_job<T>& job, T* x, T* y) {
    const line<T>& transform = *job.transform;
    const auto strike = [&](inject::site where, std::int64_t step, T* data, std::int64_t scalars) {
      const std::int64_t row = 2 * kernel_.lanes;
      if (where == inject::site::fft_intermediate) {
        if (all_.waiting == 0) strike_rows(how_.injector, where, place(job), data, row, scalars / row, job.used);
      } else if (where == inject::site::fft_stage) {
        strike_rows(how_.injector, where, {job.interval, all_.tiles, step, std::max<std::int64_t>(1, transform.stages())}, data, row,
                    scalars / row, job.used);
      } else {
        how_.injector.strike(where, {job.interval, all_.tiles, step, transform.twiddle_steps() + (job.coarse != nullptr ? 1 : 0)}, data,
                             scalars);
      }
    };
    T* done = transform.run(x, y, job.inverse, job.ahead, strike);
    if (job.coarse != nullptr) {
      const T* coarse = job.coarse;
      std::vector<T> struck;
      if constexpr (inject::active_injector::enabled) {
        struck.assign(coarse, coarse + 2 * transform.rows_out());
        // Row 0 has the factor 1.
        strike(inject::site::fft_twiddle, transform.twiddle_steps(), struck.data() + 2, static_cast<std::int64_t>(struck.size()) - 2);
        coarse = struck.data();
      }
      kernel_.twiddle_rows(done, done, transform.rows_out(), coarse, job.fine, false, job.inverse);
    }
    if (job.scale != 1) kernel_.scale_rows(done, transform.rows_out(), static_cast<T>(job.scale));
    return done;
  }

  std::uint64_t hash(const tile_job<T>& job, const T* done) const {
    std::uint64_t made = 0;
    for (std::int64_t j = 0; j < 2 * job.transform->rows_out(); ++j) {
      for (int l = 0; l < job.used; ++l) {
        std::uint64_t word = 0;
        std::memcpy(&word, done + j * kernel_.lanes + l, sizeof(T));
        made = core::mix64(made ^ word);
      }
    }
    return made;
  }

  void store(const tile_job<T>& job, const T* done) {
    const place_of<T>& to = job.to;
    const std::int64_t row = 2 * kernel_.lanes;
    switch (to.how) {
      case access::rows: kernel_.store_rows(done, 2 * job.rows_stored, job.used, to.base, to.lane, job.stream); break;
      case access::columns: kernel_.store_columns(done, job.rows_stored, job.used, to.base, to.element, job.stream); break;
      case access::blocks: kernel_.store_blocks(done, job.rows_stored, to.base, to.seals); break;
      case access::own_rows:
        for (std::int64_t j = 0; j < job.rows_stored; ++j)
          std::memcpy(to.base + j * to.element, done + j * row, static_cast<std::size_t>(row) * sizeof(T));
        if (to.seals != nullptr) kernel_.extend_seals(done, job.rows_stored, to.seals, to.seal_stride);
        break;
      default: scatter(job, done);
    }
    streamed_ = streamed_ || job.stream;
    if (job.waiting >= 0)
      strike_rows(how_.injector, inject::site::fft_intermediate, {job.waiting, all_.waiting, 0, 1}, to.base,
                  to.how == access::blocks ? row : to.element, job.rows_stored, job.used);
  }

  void scatter(const tile_job<T>& job, const T* done) const {
    const place_of<T>& to = job.to;
    for (std::int64_t j = 0; j < job.rows_stored; ++j) {
      const T* re = done + j * 2 * kernel_.lanes;
      const T* im = re + kernel_.lanes;
      for (int l = 0; l < job.used; ++l) {
        T* lane = to.base + l * to.lane;
        if (to.length > 0 && to.index_first + l * to.index_lane + j * to.index_element >= to.length) continue;
        if (to.how == access::complex) {
          lane[j * to.element] = re[l];
          lane[j * to.element + 1] = im[l];
        } else if (to.how == access::scalars) {
          lane[2 * j * to.element] = re[l];
          lane[(2 * j + 1) * to.element] = im[l];
        } else {
          lane[j * to.element] = re[l];
        }
      }
    }
  }

  const call& how_;
  const places& all_;
  scratch<T>& mine_;
  int slot_;
  const kernel_table<T>& kernel_;
  bool special_[k_max_lanes] = {};
  bool any_special_ = false;
  std::uint64_t checks_ = 0;
  bool streamed_ = false;
};

// What the passes of one signal share.
template <class T>
struct volume_memory {
  core::aligned_buffer<T> data, first_seals, seals, staging;
};

// Memory of one execution, kept by the plan for the next.
template <class T>
struct workspace {
  std::vector<std::unique_ptr<scratch<T>>> slots;
  std::vector<std::unique_ptr<volume_memory<T>>> volumes;
};

template <class T>
class cpu_transform final : public transform {
 public:
  cpu_transform(const geometry& shape, bool protect);
  void run(const void* in, void* out, const call& how) const override;

 private:
  // One signal as a volume. Strides in elements of the side.
  struct volume {
    std::int64_t n[3] = {1, 1, 1};
    std::int64_t lanes = 1;  // elements of axis 2 while axes 0 and 1 are transformed
    std::int64_t in[3] = {}, out[3] = {};
  };

  void prepare_volume(bool protect);
  void prepare_convolution(bool protect);
  places count_places() const;
  std::int64_t tiles_of_signal() const { return first_tiles_ + second_tiles_ + last_tiles_; }
  std::int64_t waiting_of_signal() const { return first_tiles_ + second_tiles_; }

  void run_one_pass(const T* in, T* out, const call& how, workspace<T>& memory) const;
  void run_volumes(const T* in, T* out, const call& how, workspace<T>& memory, const places& all, std::int64_t base_interval,
                   std::int64_t base_waiting) const;
  bool run_volume(const T* in, T* out, const call& how, workspace<T>& memory, volume_memory<T>& mine, const places& all,
                  std::int64_t base_interval, std::int64_t base_waiting, std::int64_t signal, int threads, int slot) const;
  void run_convolution(const T* in, T* out, const call& how, workspace<T>& memory) const;
  bool run_part(const T* in, T* out, const call& how, workspace<T>& memory, const places& all, std::int64_t base_interval,
                std::int64_t base_waiting, std::int64_t signal) const;
  volume_memory<T>& volume_of(workspace<T>& memory, int index, const call& how) const;

  scratch<T>& slot(workspace<T>& memory, int index) const {
    auto& mine = memory.slots[static_cast<std::size_t>(index)];
    if (!mine) mine = std::make_unique<scratch<T>>(scratch_scalars_);
    return *mine;
  }

  // Runs `tiles` tiles in tasks of about `least_work` rows; body(tile, worker) returns false to stop.
  template <class Body>
  void for_tiles(std::int64_t tiles, std::int64_t rows, const call& how, const places& all, workspace<T>& memory, int threads,
                 int fixed_slot, Body&& body) const {
    const std::int64_t group = std::max<std::int64_t>(1, std::min(ceil_div(2048, rows), ceil_div(tiles, 4 * threads)));
    core::parallel_for(threads, ceil_div(tiles, group), [&](std::int64_t task, int own_slot) {
      const int index = fixed_slot >= 0 ? fixed_slot : own_slot;
      tile_worker<T> worker(how, all, slot(memory, index), index);
      for (std::int64_t tile = task * group; tile < std::min(tiles, (task + 1) * group); ++tile) {
        if (!body(tile, worker)) return;
      }
    });
  }

  bool may_stream(const T* out, const call& how, std::int64_t stride_scalars) const {
    const std::int64_t bytes = shape_.output.extent * static_cast<std::int64_t>(sizeof(T)) * (shape_.output.real ? 1 : 2);
    const auto vector = static_cast<std::uintptr_t>(lanes_) * sizeof(T);
    return !how.in_place && bytes > k_stream_bytes && reinterpret_cast<std::uintptr_t>(out) % vector == 0 && stride_scalars % lanes_ == 0;
  }

  enum class mode : std::uint8_t { one_pass, volume, convolution };
  geometry shape_;
  mode mode_ = mode::one_pass;
  int lanes_;
  std::unique_ptr<line<T>> axis_[3];
  volume volume_;
  bool long_line_ = false;  // the volume is a 1-D line
  std::int64_t first_tiles_ = 0, second_tiles_ = 0, last_tiles_ = 0;
  std::vector<T> coarse_;
  core::aligned_buffer<T> fine_;
  std::int64_t scratch_scalars_ = 0;
  std::int64_t volume_scalars_ = 0;

  // Convolution: a long line of awkward length.
  std::unique_ptr<cpu_transform<T>> inner_;
  std::int64_t convolution_ = 0;
  std::vector<std::complex<T>> chirp_, kernel_;
  axis_weights<T> weights_;

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<workspace<T>>> idle_;
};

template <class T>
cpu_transform<T>::cpu_transform(const geometry& shape, bool protect) : shape_(shape), lanes_(kernels<T>().lanes) {
  // Axes of length 1 only cost lanes. The last axis of real kinds keeps its place.
  if (shape_.kind == kind::c2c) {
    for (std::size_t axis = 2; axis > 0; --axis) {
      for (std::size_t rest = axis; shape_.n[axis] == 1 && rest > 0; --rest) {
        for (side* each : {&shape_.input, &shape_.output}) {
          std::swap(each->length[axis], each->length[rest - 1]);
          std::swap(each->stride[axis], each->stride[rest - 1]);
        }
        std::swap(shape_.n[axis], shape_.n[rest - 1]);
      }
    }
  }
  const std::int64_t n = shape_.n[2];
  if (shape_.n[0] == 1 && shape_.n[1] == 1) {
    const std::int64_t length = shape_.kind != kind::c2c && n % 2 == 0 ? n / 2 : n;  // of the complex transform
    const auto halves = split(n);
    const bool few = shape_.batch < lanes_ / 2 && n >= 16 * lanes_ && shape_.kind == kind::c2c;
    const std::int64_t most = shape_.batch >= k_many_tiles * lanes_ ? k_one_pass_many : k_one_pass;
    if (halves && (length > most || few)) {
      mode_ = mode::volume;
      long_line_ = true;
      volume_.n[1] = halves->first;
      volume_.n[2] = halves->second;
    } else if (!halves && length > k_one_pass_prime) {
      mode_ = mode::convolution;
    }
  } else {
    mode_ = mode::volume;
  }

  if (mode_ == mode::convolution) {
    prepare_convolution(protect);
  } else if (mode_ == mode::volume) {
    prepare_volume(protect);
  } else {
    const form what = n % 2 == 1 || shape_.kind == kind::c2c ? form::complex
                      : shape_.kind == kind::r2c             ? form::real_forward
                                                             : form::real_inverse;
    axis_[2] = std::make_unique<line<T>>(what, n, 2, protect);
    last_tiles_ = ceil_div(shape_.batch, lanes_);
  }
  for (const auto& each : axis_) {
    if (each) scratch_scalars_ = std::max(scratch_scalars_, core::checked_product(each->rows_scratch(), 2 * lanes_));
  }
}

template <class T>
void cpu_transform<T>::prepare_volume(bool protect) {
  volume& v = volume_;
  if (long_line_) {
    // Element j₁ n₂ + j₂ on the way in, k₁ + n₁ k₂ on the way out.
    const std::int64_t n = shape_.n[2];
    v.in[1] = v.n[2] * shape_.input.stride[2];
    v.in[2] = shape_.input.stride[2];
    v.out[1] = shape_.output.stride[2];
    v.out[2] = v.n[1] * shape_.output.stride[2];
    v.lanes = v.n[2];
    fine_ = core::aligned_buffer<T>(v.n[1] * 2 * lanes_);
    for (std::int64_t k = 0; k < v.n[1]; ++k) {
      for (int l = 0; l < lanes_; ++l) {
        const auto w = root_of_unity<wide<T>>(k * l, n);
        fine_[(2 * k) * lanes_ + l] = static_cast<T>(w.real());
        fine_[(2 * k + 1) * lanes_ + l] = static_cast<T>(w.imag());
      }
    }
    for (std::int64_t first = 0; first < v.lanes; first += lanes_) {
      for (std::int64_t k = 0; k < v.n[1]; ++k) {
        const auto w = root_of_unity<wide<T>>(first * k, n);
        coarse_.push_back(static_cast<T>(w.real()));
        coarse_.push_back(static_cast<T>(w.imag()));
      }
    }
  } else {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      v.n[axis] = shape_.n[axis];
      v.in[axis] = shape_.input.stride[axis];
      v.out[axis] = shape_.output.stride[axis];
    }
    v.lanes = shape_.kind == kind::c2r ? shape_.input.length[2] : v.n[2];
  }
  if (v.n[0] > 1) axis_[0] = std::make_unique<line<T>>(form::complex, v.n[0], 0, protect);
  axis_[1] = std::make_unique<line<T>>(form::complex, v.n[1], 1, protect);
  const bool half = shape_.kind == kind::c2r && !long_line_ && v.n[2] % 2 == 0;
  axis_[2] = std::make_unique<line<T>>(half ? form::real_inverse : form::complex, v.n[2], 2, protect);
  const std::int64_t columns = ceil_div(v.lanes, lanes_);
  first_tiles_ = v.n[0] > 1 ? columns * v.n[1] : 0;
  second_tiles_ = v.n[0] * columns;
  last_tiles_ = v.n[0] * ceil_div(v.n[1], lanes_);
  volume_scalars_ = core::checked_product(core::checked_product(columns * v.n[0], v.n[1]), 2 * lanes_);
}

template <class T>
volume_memory<T>& cpu_transform<T>::volume_of(workspace<T>& memory, int index, const call& how) const {
  auto& mine = memory.volumes[static_cast<std::size_t>(index)];
  if (!mine) {
    mine = std::make_unique<volume_memory<T>>();
    mine->data = core::aligned_buffer<T>(volume_scalars_);
    if (how.protection != protection::off) {
      mine->seals = core::aligned_buffer<T>(second_tiles_ * ceil_div(volume_.n[1], lanes_) * lanes_);
      mine->first_seals = core::aligned_buffer<T>(second_tiles_ * lanes_);
    }
  }
  const side& to = shape_.output;
  if (how.in_place && mine->staging.size() == 0)
    mine->staging = core::aligned_buffer<T>(to.length[0] * to.length[1] * to.length[2] * (to.real ? 1 : 2));
  return *mine;
}

template <class T>
places cpu_transform<T>::count_places() const {
  switch (mode_) {
    case mode::one_pass: return {last_tiles_, 0};
    case mode::volume: return {shape_.batch * tiles_of_signal(), shape_.batch * waiting_of_signal()};
    case mode::convolution:
      return {shape_.batch * (2 * inner_->tiles_of_signal() + 1), shape_.batch * (2 * inner_->waiting_of_signal() + 1)};
  }
  return {};
}

template <class T>
void cpu_transform<T>::run(const void* in, void* out, const call& how) const {
  std::unique_ptr<workspace<T>> memory;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      memory = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!memory) memory = std::make_unique<workspace<T>>();
  memory->slots.resize(std::max(memory->slots.size(), static_cast<std::size_t>(how.threads)));
  memory->volumes.resize(std::max(memory->volumes.size(), static_cast<std::size_t>(how.threads)));
  const T* from = static_cast<const T*>(in);
  T* to = static_cast<T*>(out);
  switch (mode_) {
    case mode::one_pass: run_one_pass(from, to, how, *memory); break;
    case mode::volume: run_volumes(from, to, how, *memory, count_places(), 0, 0); break;
    case mode::convolution: run_convolution(from, to, how, *memory); break;
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(memory));
}

template <class T>
void cpu_transform<T>::run_one_pass(const T* in, T* out, const call& how, workspace<T>& memory) const {
  const side& from = shape_.input;
  const side& to = shape_.output;
  const line<T>& transform = *axis_[2];
  const bool even = shape_.n[2] % 2 == 0;
  tile_job<T> common;
  common.transform = &transform;
  common.inverse = how.direction == direction::inverse;
  common.scale = how.scale;
  const std::int64_t in_unit = from.real ? 1 : 2;
  const std::int64_t out_unit = to.real ? 1 : 2;
  common.from.lane = from.distance * in_unit;
  common.from.element = from.stride[2] * in_unit;
  common.to.lane = to.distance * out_unit;
  common.to.element = to.stride[2] * out_unit;
  common.rows_stored = transform.rows_out();
  const bool one_lane = shape_.batch == 1;
  if (from.real)
    common.from.how = !even ? access::real : from.stride[2] == 1 ? access::rows : access::scalars;
  else
    common.from.how = from.stride[2] == 1 || shape_.n[2] == 1 ? access::rows
                      : from.distance == 1 && !one_lane       ? access::columns
                                                              : access::complex;
  if (from.stride[2] == 1 && from.distance == 1 && !one_lane && !from.real) common.from.how = access::columns;
  if (to.real)
    common.to.how = !even ? access::real : to.stride[2] == 1 ? access::rows : access::scalars;
  else
    common.to.how = to.distance == 1 && !one_lane ? access::columns : to.stride[2] == 1 ? access::rows : access::complex;
  common.expand = to.real && !even;
  if (from.real && !even) common.rows_stored = to.length[2];
  common.stream = (common.to.how == access::rows && may_stream(out, how, common.to.lane)) ||
                  (common.to.how == access::columns && may_stream(out, how, common.to.element));
  const places all = count_places();
  for_tiles(last_tiles_, transform.rows_scratch(), how, all, memory, how.threads, -1, [&](std::int64_t tile, tile_worker<T>& worker) {
    tile_job<T> job = common;
    const std::int64_t first = tile * lanes_;
    job.used = static_cast<int>(std::min<std::int64_t>(lanes_, shape_.batch - first));
    job.from.base = in + first * common.from.lane;
    job.to.base = out + first * common.to.lane;
    job.stream = common.stream && job.used == lanes_;
    const std::int64_t after = std::min<std::int64_t>(lanes_, shape_.batch - first - lanes_);
    const auto width = static_cast<std::int64_t>(sizeof(T));
    if (after > 0 && common.from.how == access::rows)
      job.ahead = read_ahead(job.from.base + lanes_ * common.from.lane, after, 2 * transform.rows_in() * width, common.from.lane * width);
    if (after > 0 && common.from.how == access::columns)
      job.ahead =
          read_ahead(job.from.base + lanes_ * common.from.lane, transform.rows_in(), 2 * after * width, common.from.element * width);
    job.interval = tile;
    job.index = first;
    (void)worker.process(job);
    return true;
  });
}

template <class T>
void cpu_transform<T>::run_volumes(const T* in, T* out, const call& how, workspace<T>& memory, const places& all,
                                   std::int64_t base_interval, std::int64_t base_waiting) const {
  const std::int64_t in_unit = shape_.input.real ? 1 : 2;
  const std::int64_t out_unit = shape_.output.real ? 1 : 2;
  const auto one = [&](std::int64_t b, int threads, int index) {
    const T* from = in + b * shape_.input.distance * in_unit;
    T* to = out + b * shape_.output.distance * out_unit;
    (void)run_volume(from, to, how, memory, volume_of(memory, std::max(index, 0), how), all, base_interval + b * tiles_of_signal(),
                     base_waiting + b * waiting_of_signal(), b, threads, index);
  };
  // Small signals go to the threads whole, so that each stays in its core's cache; large ones are shared.
  const bool whole = shape_.batch >= 2 * how.threads && volume_scalars_ * static_cast<std::int64_t>(sizeof(T)) <= (std::int64_t{1} << 20);
  if (whole) {
    core::parallel_for(how.threads, shape_.batch, [&](std::int64_t b, int index) { one(b, 1, index); });
  } else {
    for (std::int64_t b = 0; b < shape_.batch; ++b) one(b, how.threads, -1);
  }
}

template <class T>
bool cpu_transform<T>::run_volume(const T* in, T* out, const call& how, workspace<T>& memory, volume_memory<T>& mine, const places& all,
                                  std::int64_t base_interval, std::int64_t base_waiting, std::int64_t signal, int threads, int slot) const {
  const volume& v = volume_;
  const side& from = shape_.input;
  const side& to = shape_.output;
  const std::int64_t row = 2 * lanes_;
  const std::int64_t columns = ceil_div(v.lanes, lanes_);
  const std::int64_t groups = ceil_div(v.n[1], lanes_);
  const bool protect = how.protection != protection::off;
  const std::int64_t in_unit = from.real ? 1 : 2;
  const std::int64_t out_unit = to.real ? 1 : 2;
  std::atomic<bool> damaged{false}, fatal{false};
  const auto settle = [&](result seen) {
    if (seen == result::damaged_input) damaged = true;
    if (seen == result::uncorrectable) fatal = true;
    return !damaged && !fatal;
  };

  // Where lines of `axis` (0 or 1) that start at i₀, i₁ and W neighbours of axis 2 from `column` on lie in the input.
  const auto source = [&](std::size_t axis, std::int64_t i1, std::int64_t column) {
    place_of<const T> made;
    const std::int64_t first = column * lanes_;
    made.base = in + (i1 * v.in[1] + first * v.in[2]) * in_unit;
    made.lane = v.in[2] * in_unit;
    made.element = v.in[axis] * in_unit;
    if (from.real) {
      made.how = access::real;
    } else if (long_line_ && shape_.kind == kind::c2r) {
      made.how = access::hermitian;
      made.base = in;
      made.lane = 0;
      made.element = from.stride[2] * 2;
      made.index_first = first;
      made.index_lane = 1;
      made.index_element = v.n[2];
      made.length = shape_.n[2];
    } else {
      made.how = v.in[2] == 1 ? access::columns : access::complex;
    }
    return made;
  };
  const auto lanes_at = [&](std::int64_t count, std::int64_t tile) {
    return static_cast<int>(std::min<std::int64_t>(lanes_, count - tile * lanes_));
  };

  tile_job<T> common;
  common.inverse = how.direction == direction::inverse;
  common.index = signal;
  common.index_lane = 0;

  const auto first_pass = [&] {  // axis 0: one task has all lines that share a seal
    const line<T>& transform = *axis_[0];
    for_tiles(columns, transform.rows_scratch() * v.n[1], how, all, memory, threads, slot,
              [&](std::int64_t column, tile_worker<T>& worker) {
                T* seals = protect ? mine.first_seals.data() + column * v.n[0] * lanes_ : nullptr;
                if (protect) std::fill_n(seals, v.n[0] * lanes_, T(0));
                for (std::int64_t i1 = 0; i1 < v.n[1]; ++i1) {
                  tile_job<T> job = common;
                  job.transform = &transform;
                  job.from = source(0, i1, column);
                  job.to.how = access::own_rows;
                  job.to.base = mine.data.data() + (column * v.n[0] * v.n[1] + i1) * row;
                  job.to.element = v.n[1] * row;
                  job.to.seals = seals;
                  job.to.seal_stride = lanes_;
                  job.used = lanes_at(v.lanes, column);
                  job.rows_stored = v.n[0];
                  job.interval = base_interval + column * v.n[1] + i1;
                  job.waiting = base_waiting + column * v.n[1] + i1;
                  if (!settle(worker.process(job))) return false;
                }
                return true;
              });
  };
  // Scalars to the next signal that this thread will read; 0 after the last.
  const std::int64_t next_signal = signal + 1 < shape_.batch ? from.distance * in_unit : 0;
  const auto second_pass = [&] {  // axis 1
    const line<T>& transform = *axis_[1];
    for_tiles(v.n[0] * columns, transform.rows_scratch(), how, all, memory, threads, slot, [&](std::int64_t tile, tile_worker<T>& worker) {
      const std::int64_t column = tile % columns;
      const std::int64_t k0 = tile / columns;
      T* own = mine.data.data() + (column * v.n[0] + k0) * v.n[1] * row;
      tile_job<T> job = common;
      job.transform = &transform;
      if (v.n[0] > 1) {
        job.from.how = access::own_rows;
        job.from.base = own;
        job.from.seals = protect ? mine.first_seals.data() + (column * v.n[0] + k0) * lanes_ : nullptr;
      } else {
        job.from = source(1, 0, column);
        // The next columns, or after the last ones the first of the next signal.
        const std::int64_t width = sizeof(T);
        const std::int64_t across = column + 1 < columns ? 2 * lanes_ : next_signal == 0 ? 0 : next_signal - column * 2 * lanes_;
        if (job.from.how == access::columns && across != 0)
          job.ahead =
              read_ahead(job.from.base + across, v.n[1], std::min<std::int64_t>(lanes_, v.lanes) * 2 * width, job.from.element * width);
      }
      job.to.how = access::blocks;
      job.to.base = own;
      job.to.seals = protect ? mine.seals.data() + (column * v.n[0] + k0) * groups * lanes_ : nullptr;
      job.used = lanes_at(v.lanes, column);
      job.rows_stored = v.n[1];
      if (long_line_) {
        job.coarse = coarse_.data() + column * 2 * v.n[1];
        job.fine = fine_.data();
      }
      job.interval = base_interval + first_tiles_ + tile;
      job.waiting = base_waiting + first_tiles_ + tile;
      return settle(worker.process(job));
    });
  };
  // In place, the input must outlive every check of what waits: the result is staged.
  T* const base = how.in_place ? mine.staging.data() : out;
  std::int64_t stride[3];
  for (std::size_t axis = 0; axis < 3; ++axis) stride[axis] = v.out[axis];
  if (how.in_place) {
    stride[0] = to.length[1] * to.length[2];
    stride[1] = to.length[2];
    stride[2] = 1;
    if (long_line_) {
      stride[1] = 1;
      stride[2] = v.n[1];
    }
  }
  const auto last_pass = [&] {  // axis 2
    const line<T>& transform = *axis_[2];
    tile_job<T> shared = common;
    shared.transform = &transform;
    shared.scale = how.scale;
    shared.from.how = access::blocks;
    shared.from.element = v.n[0] * v.n[1] * row;
    shared.from.seal_stride = v.n[0] * groups * lanes_;
    shared.to.lane = stride[1] * out_unit;
    shared.to.element = stride[2] * out_unit;
    shared.rows_stored = transform.rows_out();
    if (to.real) {
      shared.to.how = transform.is_real_inverse() ? (stride[2] == 1 ? access::rows : access::scalars) : access::real;
      shared.expand = !long_line_ && !transform.is_real_inverse();
    } else if (from.real && long_line_) {
      shared.to.how = access::complex;
      shared.to.index_lane = 1;
      shared.to.index_element = v.n[1];
      shared.to.length = to.length[2];
    } else {
      shared.to.how = stride[1] == 1 && v.n[1] > 1 ? access::columns : stride[2] == 1 ? access::rows : access::complex;
      if (from.real) shared.rows_stored = to.length[2];
    }
    const bool stream =
        (shared.to.how == access::columns && may_stream(base, how, shared.to.element) && (stride[0] * out_unit) % lanes_ == 0) ||
        (shared.to.how == access::rows && may_stream(base, how, shared.to.lane) && (stride[0] * out_unit) % lanes_ == 0);
    for_tiles(v.n[0] * groups, transform.rows_scratch(), how, all, memory, threads, slot, [&](std::int64_t tile, tile_worker<T>& worker) {
      const std::int64_t group = tile % groups;
      const std::int64_t k0 = tile / groups;
      tile_job<T> job = shared;
      job.from.base = mine.data.data() + (k0 * v.n[1] + group * lanes_) * row;
      job.from.seals = protect ? mine.seals.data() + (k0 * groups + group) * lanes_ : nullptr;
      job.to.base = base + (k0 * stride[0] + group * lanes_ * stride[1]) * out_unit;
      if (job.to.length > 0) job.to.index_first = group * lanes_;
      job.used = lanes_at(v.n[1], group);
      job.stream = stream && job.used == lanes_;
      job.interval = base_interval + first_tiles_ + second_tiles_ + tile;
      return settle(worker.process(job));
    });
  };

  for (int failures = 0;; ++failures) {
    damaged = false;
    if (v.n[0] > 1) first_pass();
    if (!fatal) second_pass();
    if (!fatal && !damaged) last_pass();
    if (protect) how.seen.checked(static_cast<std::uint64_t>(columns * v.n[0] * groups));
    if (fatal) return false;
    const bool give_up = how.protection == protection::detect || failures == k_repairs;
    if (damaged && !give_up) continue;
    if (failures > 0 || damaged)
      how.seen.detected("fft.intermediate", signal, 1, 0, damaged ? action::uncorrectable : action::recomputed, std::max(slot, 0));
    if (damaged) return false;
    break;
  }
  if (how.in_place) {
    const T* next = base;
    for (std::int64_t i = 0; i < to.length[0]; ++i) {
      for (std::int64_t j = 0; j < to.length[1]; ++j, next += to.length[2] * out_unit) {
        T* line_out = out + (i * to.stride[0] + j * to.stride[1]) * out_unit;
        if (to.stride[2] == 1) {
          std::memcpy(line_out, next, static_cast<std::size_t>(to.length[2] * out_unit) * sizeof(T));
        } else {
          for (std::int64_t k = 0; k < to.length[2]; ++k)
            std::copy_n(next + k * out_unit, out_unit, line_out + k * to.stride[2] * out_unit);
        }
      }
    }
  }
  return true;
}

// ---- Convolution ----

template <class T>
void cpu_transform<T>::prepare_convolution(bool protect) {
  const std::int64_t n = shape_.n[2];
  using W = wide<T>;
  convolution_ = 1;
  while (convolution_ < 2 * n - 1) convolution_ = core::checked_product(convolution_, 2);
  if (convolution_ / 4 * 3 >= 2 * n - 1) convolution_ = convolution_ / 4 * 3;
  geometry inside;
  inside.n = {1, 1, convolution_};
  inside.input.length = inside.input.stride = {1, 1, 1};
  inside.input.length[2] = inside.input.distance = inside.input.extent = convolution_;
  inside.output = inside.input;
  inner_ = std::make_unique<cpu_transform<T>>(inside, protect);
  std::vector<std::complex<W>> kernel(static_cast<std::size_t>(convolution_));
  for (std::int64_t j = 0; j < n; ++j) {
    const auto c = root_of_unity<W>(static_cast<std::int64_t>(static_cast<__int128>(j) * j % (2 * n)), 2 * n);
    chirp_.emplace_back(c);
    kernel[static_cast<std::size_t>(j)] = std::conj(c);
    kernel[static_cast<std::size_t>(j == 0 ? 0 : convolution_ - j)] = std::conj(c);
  }
  for (const auto& z : dft(std::move(kernel))) kernel_.emplace_back(z / static_cast<W>(convolution_));
  if (protect) weights_ = make_axis_weights<T>(n, 2, n);
}

template <class T>
void cpu_transform<T>::run_convolution(const T* in, T* out, const call& how, workspace<T>& memory) const {
  using W = wide<T>;
  using signal = std::vector<std::complex<T>>;
  const std::int64_t n = shape_.n[2];
  const bool protect = how.protection != protection::off;
  const bool inverse = how.direction == direction::inverse;
  const places all = count_places();
  const std::int64_t tiles = 2 * inner_->tiles_of_signal() + 1;
  const std::int64_t waiting = 2 * inner_->waiting_of_signal() + 1;
  workspace<T> inside;
  inside.slots.resize(memory.slots.size());
  inside.volumes.resize(memory.volumes.size());
  const side& from = shape_.input;
  const side& to = shape_.output;
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  // The inverse transform is the conjugate of the transform of the conjugate.
  const auto gather = [&](std::int64_t b, signal& x) {
    for (std::int64_t j = 0; j < n; ++j) {
      const bool mirrored = shape_.kind == kind::c2r && 2 * j > n;
      const std::int64_t i = b * from.distance + (mirrored ? n - j : j) * from.stride[2];
      std::complex<T> z = from.real ? std::complex<T>(in[i], 0) : std::complex<T>(in[2 * i], in[2 * i + 1]);
      if (shape_.kind == kind::c2r && (j == 0 || 2 * j == n)) z.imag(0);
      x[at(j)] = mirrored != inverse ? std::conj(z) : z;
    }
  };
  const auto strike = [&](inject::site where, const inject::place& here, signal& data) {
    how.injector.strike(where, here, reinterpret_cast<T*>(data.data()), 2 * static_cast<std::int64_t>(data.size()));
  };
  signal x(at(n)), y(at(n)), before, u(at(convolution_)), f(at(convolution_));

  for (std::int64_t b = 0; b < shape_.batch; ++b) {
    const inject::place here{(b + 1) * tiles - 1, all.tiles, 0, 1};
    bool inner_failed = false;
    // y = scale · DFT(x), in the inner transform's own protection but for the products.
    const auto compute = [&](signal& result) {
      gather(b, x);
      strike(inject::site::fft_input, here, x);
      signal struck;
      const signal* chirp = &chirp_;
      if constexpr (inject::active_injector::enabled) {
        struck = chirp_;
        strike(inject::site::fft_twiddle, here, struck);
        chirp = &struck;
      }
      for (std::int64_t j = 0; j < n; ++j) u[at(j)] = multiply(x[at(j)], (*chirp)[at(j)]);
      std::fill(u.begin() + static_cast<std::ptrdiff_t>(n), u.end(), std::complex<T>(0));
      const auto step = [&](direction way, const signal& a, signal& c, std::int64_t which) {
        const call part{way, 1, false, how.protection, how.threads, how.stream, how.workspace, how.seen, how.injector};
        inner_failed =
            !inner_->run_part(reinterpret_cast<const T*>(a.data()), reinterpret_cast<T*>(c.data()), part, inside, all,
                              b * tiles + which * inner_->tiles_of_signal(), b * waiting + which * inner_->waiting_of_signal(), b) ||
            inner_failed;
      };
      step(direction::forward, u, f, 0);
      for (std::int64_t k = 0; k < convolution_; ++k) f[at(k)] = multiply(f[at(k)], kernel_[at(k)]);
      strike(inject::site::fft_stage, here, f);
      strike(inject::site::fft_intermediate, {(b + 1) * waiting - 1, all.waiting, 0, 1}, f);
      step(direction::inverse, f, u, 1);
      const T scale = static_cast<T>(how.scale);
      for (std::int64_t k = 0; k < n; ++k) {
        result[at(k)] = multiply(u[at(k)], (*chirp)[at(k)]);
        if (how.scale != 1) result[at(k)] *= scale;
      }
    };
    const auto weighted = [&](const signal& z, const std::vector<std::complex<W>>& w) {
      std::complex<W> total = 0;
      for (std::int64_t j = 0; j < n; ++j) total += multiply(std::complex<W>(z[at(j)]), w[at(j)]);
      return total;
    };
    const auto finite = [](const signal& z) {
      return std::all_of(z.begin(), z.end(), [](auto v) { return std::isfinite(v.real()) && std::isfinite(v.imag()); });
    };
    const auto same = [](const signal& p, const signal& q) {
      return std::equal(p.begin(), p.end(), q.begin(),
                        [](auto v, auto w) { return same_value(v.real(), w.real()) && same_value(v.imag(), w.imag()); });
    };

    double residual = 0, threshold = 0;
    bool stored = false;
    for (int failures = 0;; ++failures) {
      checksum sums;
      double norm = 0;
      bool input_finite = true;
      if (protect) {
        gather(b, x);
        input_finite = finite(x);
        W squares = 0;
        for (const auto& z : x) squares += W(z.real()) * W(z.real()) + W(z.imag()) * W(z.imag());
        norm = static_cast<double>(std::sqrt(squares));
        for (int v = 0; v < k_vectors; ++v) sums.set(v, weighted(x, weights_.b[v]));
        how.injector.strike(inject::site::fft_checksum, here, sums.high, 2 * k_vectors);
      }
      compute(y);
      if (inner_failed) break;
      strike(inject::site::fft_output, here, y);
      if (!protect) {
        stored = true;
        break;
      }
      bool pass = true;
      const double room = static_cast<double>(std::numeric_limits<T>::max()) / (16 * static_cast<double>(convolution_));
      if (!finite(y) && (!input_finite || norm > room)) {
        signal twice(at(n));
        compute(twice);
        pass = same(y, twice);
      } else {
        const double scale = static_cast<double>(static_cast<T>(how.scale));
        abft::guarded_threshold tau(abft::fft_residual<T>(static_cast<double>(n), norm, k_kappa * k_convolution_sensitivity) * scale +
                                    abft::fft_output_underflow<T>(static_cast<double>(n)));
        how.injector.strike(inject::site::fft_threshold, here, &tau.value, 2);
        std::uint32_t words[k_vectors];
        double largest = 0;
        for (int v = 0; v < k_vectors; ++v) {
          const auto rho = weighted(y, weights_.a[v]) - sums.template get<W>(v) * static_cast<W>(scale);
          const double size = std::hypot(static_cast<double>(rho.real()), static_cast<double>(rho.imag()));
          words[v] = abft::verify(size, tau);
          if (!(size <= largest)) largest = size;
        }
        how.injector.strike(inject::site::fft_comparison, here, words, k_vectors);
        pass = std::all_of(words, words + k_vectors, [](std::uint32_t word) { return word == abft::k_pass; });
        if (!pass && failures == 0) {
          residual = largest;
          threshold = tau.value;
        }
      }
      how.seen.checked(k_vectors);
      if (pass) {
        if (failures > 0) {
          how.seen.detected("fft.end_to_end", b, residual, threshold, action::recomputed, 0);
          if (same(before, y)) how.seen.false_alarm();
        }
        stored = true;
        break;
      }
      if (failures == 0) before = y;
      if (how.protection == protection::detect || failures == k_repairs) {
        how.seen.detected("fft.end_to_end", b, residual, threshold, action::uncorrectable, 0);
        break;
      }
    }
    if (!stored) continue;
    for (std::int64_t k = 0; k < to.length[2]; ++k) {
      const std::int64_t i = b * to.distance + k * to.stride[2];
      const std::complex<T> z = inverse ? std::conj(y[at(k)]) : y[at(k)];
      if (to.real) {
        out[i] = z.real();
      } else {
        out[2 * i] = z.real();
        out[2 * i + 1] = z.imag();
      }
    }
  }
}

// One signal as a part of a larger transform: its places are numbered from the given ones on.
template <class T>
bool cpu_transform<T>::run_part(const T* in, T* out, const call& how, workspace<T>& memory, const places& all, std::int64_t base_interval,
                                std::int64_t base_waiting, std::int64_t signal) const {
  return run_volume(in, out, how, memory, volume_of(memory, 0, how), all, base_interval, base_waiting, signal, how.threads, -1);
}

}  // namespace

std::unique_ptr<transform> make_transform(const geometry& shape, precision type, bool protect) {
  if (type == precision::f32) return std::make_unique<cpu_transform<float>>(shape, protect);
  return std::make_unique<cpu_transform<double>>(shape, protect);
}

}  // namespace ballast::fft::cpu
