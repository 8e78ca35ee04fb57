// The jobs of a transform in one pass: the access of each side, and the prefetch of the next tile.
#include "fft/cpu/one_pass.hpp"

#include <algorithm>

#include "core/aligned_buffer.hpp"

namespace ballast::fft::cpu {
namespace {

// Bytes of input and output together, up to which lines of more than k_longest_short points take vectors along the signal. Larger ones are
// read and written in pieces of a vector's width and wait for memory: 512 signals of 1024 points in f64, 16 MiB, take 2.3 ms and in tiles
// 1.4, 64 signals of 4096, 8 MiB, 1.2 and 1.5 (one thread of a Zen 4, without protection).
constexpr std::int64_t k_along_bytes = std::int64_t{8} << 20;

// Bytes of a tile from which on the next one is not brought while this one is computed: with both buffers of the computation it fills half
// of a second-level cache of 1 MiB (4096 points: 18.9 → 17.4 ms for 2²² in f64 without it; 1000 points 11.5 → 12.7; one thread of a Zen 4).
constexpr std::int64_t k_least_unfetched_bytes = std::int64_t{128} << 10;

// Real data of even length n are transformed as complex lines of length n/2, of odd length by a stage for reals, if there is one.
form form_of(const geometry& shape) {
  if (shape.kind == kind::c2c || (shape.n[2] % 2 == 1 && real_radix(shape.n[2]) == 1)) return form::complex;
  return shape.kind == kind::r2c ? form::real_forward : form::real_inverse;
}

// Bytes of a tile of signals that are computed twice: with their input, both results and the output it lies in the first-level cache.
constexpr std::int64_t k_repeated_bytes = 8192;

// Returns whether signals go by groups without protection alone: with it the sums of a tile cost less than a second computation.
template <class T>
bool by_unprotected_groups(const geometry& shape) {
  const std::int64_t n = shape.n[2];
  return shape.kind == kind::c2c && along_line<T>::goes_by_groups(n) && !along_line<T>::is_repeated(n) && one_pass<T>::goes_along(shape);
}

template <class T>
std::int64_t signals_of_tile(const geometry& shape, bool protect) {
  const std::int64_t lanes = kernels<T>().lanes;
  if (!one_pass<T>::is_repeated(shape) && !(by_unprotected_groups<T>(shape) && !protect)) return lanes;
  const std::int64_t group = lanes * shape.n[2] * 2 * static_cast<std::int64_t>(sizeof(T));
  // Groups are transformed between two halves of a buffer, which has room for all.
  const std::int64_t least = along_line<T>::goes_by_groups(shape.n[2]) ? 2 : 1;
  return lanes * least * ceil_div(k_repeated_bytes, least * group);
}

}  // namespace

template <class T>
one_pass<T>::one_pass(const geometry& shape, bool protect)
    : shape_(shape),
      together_(signals_of_tile<T>(shape, protect)),
      line_(form_of(shape), shape.n[2], 2, protect && !is_repeated(shape), shape.kind == kind::c2r && form_of(shape) == form::complex),
      tiles_(ceil_div(shape.batch, together_)),
      scratch_scalars_(core::checked_product(line_.rows_scratch(), 2 * together_)),
      shared_(shared_job()) {}

template <class T>
void one_pass<T>::run(const void* in, void* out, const transform_args& how) const {
  const T* from = static_cast<const T*>(in);
  T* to = static_cast<T*>(out);
  const tile_job<T> common = common_job(to, how);
  const strike_counts all{tiles_, 0};
  // Short lines without protection go from memory to memory in its order, which the processor prefetches better by itself (20 → 12 ms for
  // 16384 lines of 256 points in f32), but not where several signals are loaded together and out of order (192 points 7.8 → 5.2), or where
  // they are stored by parts.
  const auto by_parts = [&] { return common.stream_run && !common.stream && !common.along->stores_in_order(); };
  const bool prefetches = common.along == nullptr
                              ? line_.rows_in() * 2 * kernels<T>().lanes * static_cast<std::int64_t>(sizeof(T)) < k_least_unfetched_bytes
                              : how.protection != protection::off || shape_.n[2] > k_longest_short || by_parts() ||
                                    (!common.along->loads_in_order() && is_past_cache<T>(shape_.output, how));
  memory_.lend([&](scratch_slots<T>& slots) {
    slots.prepare(how.threads, scratch_scalars_, false);
    const crew<T> workers{how, all, slots, how.threads};
    workers.for_tiles(tiles_, line_.rows_scratch() * together_ / kernels<T>().lanes, [&](std::int64_t tile, tile_worker<T>& worker) {
      tile_job<T> job = common;
      const std::int64_t first = tile * together_;
      job.used = static_cast<int>(std::min(together_, shape_.batch - first));
      job.from.base = from + first * common.from.lane;
      job.to.base = to + first * common.to.lane;
      job.stream = common.stream && job.used == together_;
      job.stream_run = common.stream_run && job.used == together_;
      if (prefetches) job.ahead = next_tile(job, first);
      job.interval = tile;
      job.index = first;
      (void)worker.process(job);
      return true;
    });
  });
}

template <class T>
typename one_pass<T>::part_outcome one_pass<T>::run_part(const part& one, const transform_args& how, scratch_slots<T>& slots) const {
  tile_job<T> job = common_job(one.out, how);
  job.used = one.used;
  job.from.base = one.in;
  job.to.base = one.out;
  job.stream = job.stream_run = false;
  job.interval = one.tile;
  job.index = one.index;
  job.index_lane = one.index_lane;
  tile_worker<T> worker(how, one.all, slots.at(one.slot), one.slot);
  if (worker.process(job) != tile_result::done) return {.sound = false};
  if (how.protection == protection::off) return {};
  return {.seal = kernels<T>().seal_tile(worker.done(), line_.rows_out(), one.used, 0, 1)};
}

template <class T>
bool one_pass<T>::is_repeated(const geometry& shape) {
  return shape.kind == kind::c2c && along_line<T>::is_repeated(shape.n[2]) && goes_along(shape);
}

template <class T>
bool one_pass<T>::goes_along(const geometry& shape) {
  const std::int64_t n = shape.n[2], lanes = kernels<T>().lanes;
  if (shape.kind != kind::c2c && n % 2 == 1) return false;
  if (shape.input.stride[2] != 1 || shape.output.stride[2] != 1) return false;
  // Windows that begin one number apart are rows of neighbours, which a tile loads as columns.
  const auto by_columns = [&](const side& one) { return !one.real && one.distance == 1 && shape.batch > 1; };
  if (by_columns(shape.input) || by_columns(shape.output)) return false;
  if (!along_line<T>::exists(shape.kind == kind::c2c ? n : n / 2, shape.kind != kind::c2c)) return false;
  if (shape.batch < lanes / 2) return true;
  if (shape.kind != kind::c2c) return false;
  const std::int64_t scalars = 2 * (shape.input.extent + shape.output.extent);
  return n <= k_longest_short || scalars * static_cast<std::int64_t>(sizeof(T)) <= k_along_bytes;
}

// Returns the part of a job that the tiles of all calls share.
template <class T>
tile_job<T> one_pass<T>::shared_job() const {
  const side& from = shape_.input;
  const side& to = shape_.output;
  const bool pairs = form_of(shape_) != form::complex, odd = line_.has_odd_reals();
  const bool one_lane = shape_.batch == 1;
  tile_job<T> job;
  job.transform = &line_;
  job.from.lane = from.distance * (from.real ? 1 : 2);
  job.from.element = from.stride[2] * (from.real ? 1 : 2);
  job.to.lane = to.distance * (to.real ? 1 : 2);
  job.to.element = to.stride[2] * (to.real ? 1 : 2);
  job.rows_stored = from.real && !pairs ? to.length[2] : line_.rows_out();
  job.expand = to.real && !pairs;
  if (from.real)
    job.from.how = !pairs ? access::real : from.stride[2] == 1 ? access::rows : access::scalars;
  else if (from.distance == 1 && !one_lane && (from.stride[2] == 1 || shape_.n[2] != 1))
    job.from.how = access::columns;
  else
    job.from.how = from.stride[2] == 1 || shape_.n[2] == 1 ? access::rows : access::complex;
  if (to.real)
    job.to.how = !pairs ? access::real : to.stride[2] == 1 ? access::rows : access::scalars;
  else
    job.to.how = to.distance == 1 && !one_lane ? access::columns : to.stride[2] == 1 ? access::rows : access::complex;
  job.from.odd = odd && from.real;
  job.to.odd = odd && to.real;
  if (job.from.how == access::rows && job.to.how == access::rows && goes_along(shape_)) job.along = line_.along();
  job.repeated = is_repeated(shape_);
  return job;
}

// Returns the part of a job that the tiles of a call share.
template <class T>
tile_job<T> one_pass<T>::common_job(const T* out, const transform_args& how) const {
  const side& to = shape_.output;
  tile_job<T> job = shared_;
  job.inverse = how.direction == direction::inverse;
  job.scale = how.scale;
  job.check_scale = how.check_scale;
  const bool whole_groups = together_ > kernels<T>().lanes;
  if (job.along != nullptr && job.along->by_groups() && !job.repeated && (how.protection != protection::off || !whole_groups))
    job.along = nullptr;
  job.stream = (job.to.how == access::rows && may_stream(to, out, how, job.to.lane)) ||
               (job.to.how == access::columns && may_stream(to, out, how, job.to.element));
  job.stream_run = job.along != nullptr && job.to.lane == 2 * line_.rows_out() && is_past_cache<T>(to, how);
  return job;
}

// Returns the prefetch for the tile after `job`, which begins with signal `first`.
template <class T>
read_ahead one_pass<T>::next_tile(const tile_job<T>& job, std::int64_t first) const {
  const std::int64_t after = std::min(together_, shape_.batch - first - together_);
  if (after <= 0) return {};
  const auto width = static_cast<std::int64_t>(sizeof(T));
  const T* next = job.from.base + together_ * job.from.lane;
  if (job.from.how == access::rows) return read_ahead(next, after, 2 * line_.rows_in() * width, job.from.lane * width);
  if (job.from.how == access::columns) return read_ahead(next, line_.rows_in(), 2 * after * width, job.from.element * width);
  return {};
}

template class one_pass<float>;
template class one_pass<double>;

}  // namespace ballast::fft::cpu
