// Memory, launches and flags; the choice of this backend.
// Layer: backend "cuda" of K-Means (engine.hpp).
#include "kmeans/cuda/engine/engine.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "abft/threshold.hpp"
#include "abft/weights.hpp"
#include "core/parallel.hpp"
#include "kmeans/cuda/engine/engine_memory.hpp"
#include "kmeans/thresholds.hpp"

namespace ballast::kmeans::cuda {

namespace {

constexpr std::uint64_t k_weight_seed = 0x6b6d65616e73;

// Asks for the free memory only if the answer matters: the driver takes long to find it.
template <class T>
kept_points_choice kept_choice(const engine_args<T>& what, std::int64_t all, ballast::cuda::device& on) {
  if (what.unit_rows) return {kept_points::all, what.points.rows};
  const kept_points_problem needs = needs_of(what.points, all, !what.weights.empty(), what.clusters, on, what.half);
  return choose_kept_points(needs, needs.given_bytes == 0 ? 0 : on.available_memory());
}

}  // namespace

template <class T>
cuda_engine<T>::cuda_engine(const engine_args<T>& what, std::shared_ptr<ballast::cuda::device> on)
    : what_(what),
      own_state_(what.kept == nullptr ? std::make_unique<device_state>(std::move(on)) : nullptr),
      state_(what.kept == nullptr ? *own_state_ : static_cast<device_state&>(*what.kept)),
      device_(state_.on()),
      lane_(state_, what.how.stream),
      m_(what.points.rows),
      n_(what.points.columns),
      k_(what.clusters),
      all_(what.rows != nullptr ? what.rows->all : m_),
      first_(what.rows != nullptr ? what.rows->parts[0].first : 0),
      ranks_(what.rows != nullptr ? what.rows->over : nullptr, what.seen),
      protect_(what.how.protection != protection::off),
      staging_(device_, what.how.stream),
      call_(device_, state_.rings().take(what.how.workspace, what.how.stream), what.injector, what.how.stream),
      point_stream_(device_, staging_, what.points, what.half, kept_choice(what, all_, *device_), core::thread_count(what.how.threads),
                    what.how.stream),
      results_(allocate(k_flag_bytes + room_bytes((m_ + k_row_threads - 1) / k_row_threads, columns(), segments()))) {
  what_.seen.runs_on(device_->about().name);
  const auto size = static_cast<std::int64_t>(sizeof(T));
  points_.given.points = point_stream_.resident();
  points_.given.brain = what.half.brain();
  const auto strides_of = [&](const auto& from) {
    points_.given.row_stride = from.row_stride;
    points_.given.column_stride = from.column_stride;
  };
  if (half()) {
    strides_of(what.half.bits(m_, n_));
  } else {
    strides_of(what.points);
  }
  if (weighted()) points_.given.weights = static_cast<const T*>(staging_.read(what.weights.data(), m_ * size));
  points_.given.m = m_;
  points_.given.n = static_cast<int>(n_);
  // A call that failed may have left events.
  if (!call_.fresh()) ballast::cuda::clear_events(*device_, call_.events(), call_.order());
  make_unit_rows();
  state_.prepare(call_.instrumented(), [&] { (void)device_->load_all(names::all(sizeof(T) == 4 ? 1 : 2, call_.instrumented(), half())); });
}

template <class T>
void cuda_engine<T>::download(void* to, const void* from, std::int64_t bytes) const {
  device_->copy(to, from, bytes, call_.order());
  call_.wait();
}

template <class T>
void cuda_engine<T>::clear_flags() const {
  device_->zero(flags(), k_flag_bytes, call_.order());
}

template <class T>
abft::finding cuda_engine<T>::finding_of(const row_flags& seen) {
  abft::finding found;
  if (seen.failures == 0 && seen.first_inverse == 0) return found;
  found.word = abft::k_fail;
  found.residual = std::numeric_limits<double>::quiet_NaN();
  found.index = static_cast<std::int64_t>(~seen.first_inverse);
  return found;
}

template <class T>
abft::finding cuda_engine<T>::read_flags(int which) const {
  row_flags seen{};
  download(&seen, flags() + which, sizeof seen);
  return finding_of(seen);
}

// Returns the bytes of room(): for the sums over rows and columns, or those of exact distances.
template <class T>
std::int64_t cuda_engine<T>::room_bytes(std::int64_t blocks, std::int64_t columns, std::int64_t segments) {
  const std::int64_t sums = 2 * segments * columns * static_cast<std::int64_t>(sizeof(column_sums));
  return sums + blocks * static_cast<std::int64_t>(std::max(sizeof(block_squares), 2 * sizeof(double)));
}

template <class T>
void cuda_engine<T>::read(std::span<const reading> parts) const {
  constexpr std::int64_t unit = 16;
  const auto* const begin = static_cast<const unsigned char*>(results_.data());
  const auto place_of = [&](const reading& each) { return static_cast<const unsigned char*>(each.from) - begin; };
  std::int64_t all = 0, first = results_.bytes(), end = 0;
  for (const reading& each : parts) {
    all += (each.bytes + unit - 1) / unit * unit;
    if (each.bytes == 0) continue;
    first = std::min<std::int64_t>(first, place_of(each)), end = std::max<std::int64_t>(end, place_of(each) + each.bytes);
  }
  if (first >= 0 && first < end && end <= results_.bytes()) {
    core::vector<unsigned char> copied(at(end - first));
    download(copied.data(), begin + first, end - first);
    for (const reading& each : parts)
      if (each.bytes > 0) std::memcpy(each.to, copied.data() + (place_of(each) - first), at(each.bytes));
    return;
  }
  unsigned char* const room = all <= seeding_.pinned.bytes() ? seeding_.pinned.data() : nullptr;
  std::int64_t at = 0;
  for (const reading& each : parts) {
    if (each.bytes == 0) continue;
    device_->copy(room == nullptr ? each.to : room + at, each.from, each.bytes, call_.order());
    at += (each.bytes + unit - 1) / unit * unit;
  }
  call_.wait();
  at = 0;
  for (const reading& each : parts) {
    if (room != nullptr && each.bytes > 0) std::memcpy(each.to, room + at, static_cast<std::size_t>(each.bytes));
    at += (each.bytes + unit - 1) / unit * unit;
  }
}

// Sections of k_section centroids share a row check with random weights.
template <class T>
void cuda_engine<T>::make_group(const T* rows, std::int64_t count, group& made) const {
  const auto stride = static_cast<std::int64_t>(points_.normalized.stride);
  const std::int64_t sections = (count + k_section - 1) / k_section;
  core::vector<T> padded(at(core::checked_product(count, stride)), T(0)), weight(at(count));
  core::vector<double> checksum(at(sections * stride), 0.0), norms(at(sections), 0.0), weights(at(sections), 0.0);
  // In data with duplicated features the terms of a square are equal and each step of a long chain rounds alike: chains of k_chain, as on
  // the device.
  const auto square_of = [&](const T* row) {
    double square = 0;
    for (std::int64_t begin = 0; begin < n_; begin += k_chain) {
      double chain = 0;
      for (std::int64_t f = begin; f < std::min(begin + k_chain, n_); ++f)
        chain += static_cast<double>(row[f]) * static_cast<double>(row[f]);
      square += chain;
    }
    return square;
  };
  constexpr double seconds = 3e-9;  // for a coordinate, about
  const int threads = core::worthwhile_threads(what_.how.threads, static_cast<double>(count) * static_cast<double>(n_) * seconds);
  core::parallel_for(threads, sections, [&](std::int64_t s, int) {
    double* const sum = checksum.data() + s * stride;
    for (std::int64_t j = s * k_section; j < std::min(count, (s + 1) * k_section); ++j) {
      weight[at(j)] = static_cast<T>(abft::random_weight(k_weight_seed, 0, static_cast<std::uint64_t>(j)));
      const double w = static_cast<double>(weight[at(j)]);
      T* const to = padded.data() + j * stride;
      for (std::int64_t f = 0; f < n_; ++f) {
        to[f] = rows[j * n_ + f];
        sum[f] += w * static_cast<double>(rows[j * n_ + f]);
      }
      norms[at(s)] += w * square_of(rows + j * n_);
      weights[at(s)] += w;
    }
  });
  // One copy for all.
  std::int64_t bytes = 0;
  const auto place = [&](const auto& values) {
    const std::int64_t begin = bytes;
    bytes += (static_cast<std::int64_t>(values.size() * sizeof(values[0])) + 255) / 256 * 256;
    return begin;
  };
  const std::int64_t at_rows = place(padded), at_checksum = place(checksum), at_norms = place(norms), at_weights = place(weights),
                     at_weight = place(weight);
  core::vector<unsigned char> all(at(bytes));
  const auto put = [&](std::int64_t begin, const auto& values) {
    std::memcpy(all.data() + begin, values.data(), values.size() * sizeof(values[0]));
  };
  put(at_rows, padded);
  put(at_checksum, checksum);
  put(at_norms, norms);
  put(at_weights, weights);
  put(at_weight, weight);
  if (made.memory.bytes() < bytes) made.memory = allocate(bytes);
  device_->copy(made.memory.data(), all.data(), bytes, call_.order());
  const auto* const base = static_cast<const unsigned char*>(made.memory.data());
  made.view.rows = reinterpret_cast<const T*>(base + at_rows);
  made.view.checksum = reinterpret_cast<const double*>(base + at_checksum);
  made.view.norms = reinterpret_cast<const double*>(base + at_norms);
  made.view.weights = reinterpret_cast<const double*>(base + at_weights);
  made.view.weight = reinterpret_cast<const T*>(base + at_weight);
  made.view.count = static_cast<int>(count);
  made.view.limit = thresholds::distance_sum(abft::unit_roundoff<T>, n_, std::min<std::int64_t>(count, k_section));
}

// Returns the weights in host memory, for choices among rows. They are copied at the first call.
template <class T>
const core::vector<T>& cuda_engine<T>::host_weights() {
  if (weighted() && host_.weights.empty()) {
    host_.weights.resize(at(m_));
    download(host_.weights.data(), points_.given.weights, m_ * static_cast<std::int64_t>(sizeof(T)));
  }
  return host_.weights;
}

template <class T>
double cuda_engine<T>::weight_of(std::int64_t row) {
  return weighted() ? static_cast<double>(host_weights()[at(row)] * normalization_.values().weight_scale) : 1.0;
}

std::int64_t rows_of_segment_of(std::int64_t points) { return rows_of_segment(points); }

template <class T>
std::unique_ptr<engine<T>> make_engine(const engine_args<T>& what) {
  return std::make_unique<cuda_engine<T>>(what, what.kept == nullptr ? ballast::cuda::current_device() : nullptr);
}

template class cuda_engine<float>;
template class cuda_engine<double>;
template std::unique_ptr<engine<float>> make_engine(const engine_args<float>&);
template std::unique_ptr<engine<double>> make_engine(const engine_args<double>&);

}  // namespace ballast::kmeans::cuda
