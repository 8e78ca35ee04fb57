// Loads and stores by access: common layouts by the SIMD kernels, others element by element.
#include "fft/cpu/tile_job.hpp"

#include <algorithm>
#include <cstring>

namespace ballast::fft::cpu {
namespace {

template <class T>
void gather(const tile_job<T>& job, std::int64_t rows, T* x) {
  const place_of<const T>& from = job.from;
  const int lanes = kernels<T>().lanes;
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

template <class T>
void scatter(const tile_job<T>& job, const T* done) {
  const place_of<T>& to = job.to;
  const int lanes = kernels<T>().lanes;
  for (std::int64_t j = 0; j < job.rows_stored; ++j) {
    const T* re = done + j * 2 * lanes;
    const T* im = re + lanes;
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

template <class T>
std::int64_t load_own_rows(const place_of<const T>& from, std::int64_t rows, T* x) {
  const auto& kernel = kernels<T>();
  std::memcpy(x, from.base, static_cast<std::size_t>(rows * 2 * kernel.lanes) * sizeof(T));
  if (from.seals == nullptr) return 0;
  alignas(128) T seal[k_max_lanes];
  kernel.seal_rows(x, rows, seal);
  return std::memcmp(seal, from.seals, static_cast<std::size_t>(kernel.lanes) * sizeof(T)) != 0;
}

// Rows of the other half of a spectrum whose first half is loaded, as conjugates.
template <class T>
void expand_spectrum(std::int64_t length, std::int64_t loaded, T* x) {
  const int lanes = kernels<T>().lanes;
  const std::int64_t row = 2 * lanes;
  for (std::int64_t k = 1; k < loaded; ++k) {
    const T* low = x + k * row;
    T* high = x + (length - k) * row;
    for (int l = 0; l < lanes; ++l) {
      high[l] = low[l];
      high[lanes + l] = -low[lanes + l];
    }
  }
}

}  // namespace

template <class T>
std::int64_t load_tile(const tile_job<T>& job, T* x, lane_sums* sums) {
  const auto& kernel = kernels<T>();
  const line<T>& transform = *job.transform;
  const place_of<const T>& from = job.from;
  const std::int64_t row = 2 * kernel.lanes;
  const std::int64_t rows = transform.rows_encoded();
  // Rows that change after they are read are encoded then.
  const bool half = transform.is_real_inverse() || job.expand;
  const encoder<T> encode = sums == nullptr ? encoder<T>{} : transform.input_weights(job.inverse, sums);
  const encoder<T> early = half ? encoder<T>{} : encode;
  std::int64_t damaged = 0;
  switch (from.how) {
    case access::rows: kernel.load_rows(from.base, from.lane, job.used, rows, x, early); break;
    case access::columns: kernel.load_columns(from.base, from.element, job.used, rows, x, early); break;
    case access::blocks:
      damaged = kernel.load_blocks(from.base, from.element, job.used, rows, x, from.seals, from.seal_stride, early);
      break;
    case access::own_rows:
      damaged = load_own_rows(from, rows, x);
      if (early.weights != nullptr) kernel.sum_tile(x, rows, early);
      break;
    default:
      gather(job, rows, x);
      if (early.weights != nullptr) kernel.sum_tile(x, rows, early);
  }
  if (half) {
    // What is its own mirror image is real, whatever the imaginary parts say.
    std::fill_n(x + kernel.lanes, kernel.lanes, T(0));
    if (!job.expand) std::fill_n(x + (rows - 1) * row + kernel.lanes, kernel.lanes, T(0));
    if (encode.weights != nullptr) kernel.sum_tile(x, rows, encode);
  }
  if (job.expand) expand_spectrum(transform.rows_in(), rows, x);
  return damaged;
}

template <class T>
std::int64_t seal_scalars(const tile_job<T>& job) {
  const std::int64_t lanes = kernels<T>().lanes;
  return job.to.how == access::blocks ? (job.rows_stored + lanes - 1) / lanes : job.rows_stored * lanes;
}

template <class T>
void make_seals(const tile_job<T>& job, const T* done, T* seals) {
  if (job.to.how == access::blocks)
    kernels<T>().seal_blocks(done, job.rows_stored, job.used, seals);
  else
    kernels<T>().extend_seals(done, job.rows_stored, job.to.seals, seals);
}

template <class T>
std::optional<std::uint64_t> store_tile(const tile_job<T>& job, const T* done, const T* seals) {
  const auto& kernel = kernels<T>();
  const place_of<T>& to = job.to;
  const std::int64_t row = 2 * kernel.lanes;
  std::optional<std::uint64_t> parity;
  switch (to.how) {
    case access::rows: parity = kernel.store_rows(done, 2 * job.rows_stored, job.used, to.base, to.lane, job.stream); break;
    case access::columns: parity = kernel.store_columns(done, job.rows_stored, job.used, to.base, to.element, job.stream); break;
    case access::blocks: std::memcpy(to.base, done, static_cast<std::size_t>(job.rows_stored * row) * sizeof(T)); break;
    case access::own_rows:
      for (std::int64_t j = 0; j < job.rows_stored; ++j)
        std::memcpy(to.base + j * to.element, done + j * row, static_cast<std::size_t>(row) * sizeof(T));
      break;
    default: scatter(job, done);
  }
  if (to.seals != nullptr) std::memcpy(to.seals, seals, static_cast<std::size_t>(seal_scalars(job)) * sizeof(T));
  return job.used == kernel.lanes && job.check.coarse == nullptr && job.rows_stored == job.transform->rows_out() ? parity : std::nullopt;
}

template std::int64_t load_tile(const tile_job<float>& job, float* x, lane_sums* sums);
template std::int64_t load_tile(const tile_job<double>& job, double* x, lane_sums* sums);
template std::int64_t seal_scalars(const tile_job<float>& job);
template std::int64_t seal_scalars(const tile_job<double>& job);
template void make_seals(const tile_job<float>& job, const float* done, float* seals);
template void make_seals(const tile_job<double>& job, const double* done, double* seals);
template std::optional<std::uint64_t> store_tile(const tile_job<float>& job, const float* done, const float* seals);
template std::optional<std::uint64_t> store_tile(const tile_job<double>& job, const double* done, const double* seals);

}  // namespace ballast::fft::cpu
