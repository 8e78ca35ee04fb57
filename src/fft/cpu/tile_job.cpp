// Loads and stores for each access: the SIMD kernels handle common layouts, loops over elements the others.
#include "fft/cpu/tile_job.hpp"

#include <algorithm>
#include <atomic>
#include <complex>
#include <cstring>
#include <limits>

namespace ballast::fft::cpu {
namespace {

// Returns element j of lane l from the source. alone: it is one real of a pair.
template <access How, class T>
std::complex<T> element_of(const tile_view<const T>& from, const T* lane, int l, std::int64_t j, bool alone) {
  if constexpr (How == access::complex) {
    return {lane[j * from.element], lane[j * from.element + 1]};
  } else if constexpr (How == access::scalars) {
    return {lane[2 * j * from.element], alone ? T(0) : lane[(2 * j + 1) * from.element]};
  } else if constexpr (How == access::real) {
    return {lane[j * from.element], T(0)};
  } else {
    // Elements that are their own mirror image are real, so their imaginary parts are ignored.
    const std::int64_t i = from.index_first + l * from.index_lane + j * from.index_element;
    const bool mirrored = 2 * i > from.length;
    const T* z = lane + (mirrored ? from.length - i : i) * from.element;
    return {z[0], i == 0 || 2 * i == from.length ? T(0) : mirrored ? -z[1] : z[1]};
  }
}

// Calls visit(i, l, element) for rows first … last − 1 of `used` lanes, of `rows` rows in all: row by row if the lanes are neighbours in
// memory, else lane by lane.
template <access How, class T, class Visit>
void each_element(const tile_view<const T>& from, int used, std::int64_t first, std::int64_t last, std::int64_t rows, const Visit& visit) {
  const std::int64_t alone = from.odd ? rows - 1 : -1;
  constexpr std::int64_t k_neighbour = How == access::complex || How == access::hermitian ? 2 : 1;
  if (from.lane == k_neighbour && (How != access::hermitian || from.index_lane == 0)) {
    for (std::int64_t i = first; i < last; ++i) {
      for (int l = 0; l < used; ++l) visit(i, l, element_of<How>(from, from.base + l * k_neighbour, 0, i, i == alone));
    }
    return;
  }
  for (int l = 0; l < used; ++l) {
    const T* const lane = from.base + l * from.lane;
    for (std::int64_t i = first; i < last; ++i) visit(i, l, element_of<How>(from, lane, l, i, i == alone));
  }
}

// Unless the tile is not encoded, returns the parity of the source as a tile, computed from a second read.
template <access How, class T>
std::uint64_t gather(const tile_job<T>& job, std::int64_t rows, T* x, bool encoded) {
  const tile_view<const T>& from = job.from;
  const int lanes = kernels<T>().lanes;
  const std::int64_t row = 2 * lanes;
  parity_by_lanes<T> parity;
  for (std::int64_t j = 0; j < rows; j += k_block) {
    const std::int64_t end = std::min<std::int64_t>(rows, j + k_block);
    each_element<How>(from, job.used, j, end, rows, [&](std::int64_t i, int l, const std::complex<T>& z) {
      x[i * row + l] = z.real();
      x[i * row + lanes + l] = z.imag();
    });
    if (job.used < lanes) {
      for (std::int64_t i = j; i < end; ++i) {
        std::fill_n(x + i * row + job.used, lanes - job.used, T(0));
        std::fill_n(x + i * row + lanes + job.used, lanes - job.used, T(0));
      }
    }
    if (!encoded) continue;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    each_element<How>(from, job.used, j, end, rows,
                      [&](std::int64_t, int l, const std::complex<T>& z) { parity.row(l, z.real(), z.imag()); });
  }
  return parity.joined(rows, lanes);
}

// Returns the parity of the tile, computed from the stored numbers as they are in the output.
template <access How, class T>
std::uint64_t scatter(const tile_job<T>& job, const T* done) {
  const tile_view<T>& to = job.to;
  const int lanes = kernels<T>().lanes;
  const std::int64_t row = 2 * lanes;
  const std::int64_t second = How == access::scalars ? to.element : 1;
  const std::int64_t element = How == access::scalars ? 2 * to.element : to.element;
  const auto has_second = [&](std::int64_t i) { return How != access::real && !(to.odd && i + 1 == job.rows_stored); };
  parity_by_lanes<T> parity;
  for (std::int64_t j = 0; j < job.rows_stored; j += k_block) {
    const std::int64_t end = std::min<std::int64_t>(job.rows_stored, j + k_block);
    // The end of the rows of this block that lane l stores: only rows within the half spectrum.
    const auto last_of = [&](int l) {
      if (l >= job.used) return j;
      if (to.length == 0) return end;
      const std::int64_t left = to.length - to.index_first - l * to.index_lane;
      return std::clamp((left + to.index_element - 1) / to.index_element, j, end);
    };
    if (How != access::complex && to.lane == 1 && to.length == 0) {
      // Lanes that are neighbours in memory: whole rows.
      for (std::int64_t i = j; i < end; ++i) {
        T* const z = to.base + i * element;
        std::copy_n(done + i * row, job.used, z);
        if (has_second(i)) std::copy_n(done + i * row + lanes, job.used, z + second);
      }
      std::atomic_signal_fence(std::memory_order_seq_cst);
      for (std::int64_t i = j; i < end; ++i) {
        const T* const z = to.base + i * element;
        const T* const kept = done + i * row;
        const T* const imaginary = has_second(i) ? z + second : kept + lanes;
        for (int l = 0; l < job.used; ++l) parity.row(l, z[l], imaginary[l]);
        for (int l = job.used; l < lanes; ++l) parity.row(l, kept[l], kept[lanes + l]);
      }
      continue;
    }
    for (int l = 0; l < job.used; ++l) {
      const std::int64_t last = last_of(l);
      for (std::int64_t i = j; i < last; ++i) {
        T* z = to.base + l * to.lane + i * element;
        z[0] = done[i * row + l];
        if (has_second(i)) z[second] = done[i * row + lanes + l];
      }
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    for (int l = 0; l < lanes; ++l) {
      const std::int64_t last = last_of(l);
      for (std::int64_t i = j; i < end; ++i) {
        const bool stored = i < last;
        const T* z = to.base + l * to.lane + i * element;
        parity.row(l, stored ? z[0] : done[i * row + l], stored && has_second(i) ? z[second] : done[i * row + lanes + l]);
      }
    }
  }
  return parity.joined(job.rows_stored, lanes);
}

// Copies rows, `to_stride` and `from_stride` scalars apart.
template <class T>
void copy_rows(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride, std::int64_t rows) {
  const auto all = [&]<std::size_t Bytes>() {
    for (std::int64_t i = 0; i < rows; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, Bytes);
  };
  // A constant size is a few instructions, any other a call.
  const std::size_t bytes = 2 * static_cast<std::size_t>(kernels<T>().lanes) * sizeof(T);
  switch (bytes) {
    case 128: return all.template operator()<128>();
    case 64: return all.template operator()<64>();
    case 32: return all.template operator()<32>();
    default:
      for (std::int64_t i = 0; i < rows; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, bytes);
  }
}

template <class T>
std::int64_t load_own_rows(const tile_view<const T>& from, std::int64_t rows, T* x) {
  const auto& kernel = kernels<T>();
  std::memcpy(x, from.base, static_cast<std::size_t>(rows * 2 * kernel.lanes) * sizeof(T));
  if (from.seals == nullptr) return 0;
  alignas(128) T seal[k_max_lanes];
  kernel.seal_rows(x, rows, seal);
  return std::memcmp(seal, from.seals, static_cast<std::size_t>(kernel.lanes) * sizeof(T)) != 0;
}

template <class T>
std::int64_t load_other_rows(const tile_view<const T>& from, std::int64_t rows, T* x) {
  const auto& kernel = kernels<T>();
  const std::int64_t row = 2 * kernel.lanes;
  copy_rows(from.base, from.element, x, row, rows);
  if (from.running == nullptr) return 0;
  kernel.extend_seals(x, rows, from.running, from.extended);
  if (from.seals == nullptr) return 0;
  return std::memcmp(from.extended, from.seals, static_cast<std::size_t>(rows * kernel.lanes) * sizeof(T)) != 0;
}

// Computes the other half of a spectrum whose first half is loaded, as conjugates.
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
  const tile_view<const T>& from = job.from;
  const std::int64_t row = 2 * kernel.lanes;
  const std::int64_t rows = transform.rows_encoded();
  // Rows that change after they are read are encoded after the change.
  const bool half = transform.is_real_inverse() || job.expand;
  const encoder<T> encode = sums == nullptr ? encoder<T>{.parity = false} : transform.input_weights(job.inverse, sums);
  const encoder<T> unsummed{.parity = encode.parity};
  const encoder<T>& early = half ? unsummed : encode;
  std::int64_t damaged = 0;
  std::uint64_t source = 0;
  switch (from.how) {
    case access::rows: source = kernel.load_rows(from.base, from.lane, job.used, 2 * rows - (from.odd ? 1 : 0), x, early); break;
    case access::columns: source = kernel.load_columns(from.base, from.element, job.used, rows, x, early); break;
    case access::blocks:
      damaged = kernel.load_blocks(from.base, from.element, job.used, rows, x, from.seals, from.seal_stride, early);
      break;
    case access::own_rows: damaged = load_own_rows(from, rows, x); break;
    case access::other_rows: damaged = load_other_rows(from, rows, x); break;
    case access::complex: source = gather<access::complex>(job, rows, x, early.parity); break;
    case access::scalars: source = gather<access::scalars>(job, rows, x, early.parity); break;
    case access::real: source = gather<access::real>(job, rows, x, early.parity); break;
    case access::hermitian: source = gather<access::hermitian>(job, rows, x, early.parity); break;
  }
  if (from.how != access::rows && from.how != access::columns && from.how != access::blocks && early.weights != nullptr)
    kernel.sum_tile(x, rows, early);
  if (half) {
    // Elements that are their own mirror image are real, so their imaginary parts are dropped.
    const auto drop_imaginary = [&](std::int64_t j) {
      T* const im = x + j * row + kernel.lanes;
      source ^= joined_scalars(im, kernel.lanes, 2 * j + 1, lane_turn<T>(kernel.lanes));
      std::fill_n(im, kernel.lanes, T(0));
    };
    drop_imaginary(0);
    if (!job.expand && !transform.has_odd_reals()) drop_imaginary(rows - 1);
    if (encode.weights != nullptr) kernel.sum_tile(x, rows, encode);
  }
  if (encode.weights != nullptr && !is_workspace(from.how) && source != parity_of(*sums)) {
    // NaN sums fail every check: the encoded numbers differ from the source.
    for (auto& sum : sums->high) std::ranges::fill(sum, std::numeric_limits<double>::quiet_NaN());
  }
  if (job.expand) expand_spectrum(transform.rows_in(), rows, x);
  return damaged;
}

template <class T>
std::int64_t seal_scalars(const tile_job<T>& job) {
  const std::int64_t lanes = kernels<T>().lanes;
  if (job.to.how == access::blocks) return (job.rows_stored - job.to.first_sealed + lanes - 1) / lanes + (job.to.first_sealed > 0 ? 1 : 0);
  return job.to.how == access::other_rows ? lanes : job.rows_stored * lanes;
}

template <class T>
void make_seals(const tile_job<T>& job, const T* done, T* seals) {
  if (job.to.how == access::blocks)
    kernels<T>().seal_blocks(done, job.rows_stored, job.used, seals);
  else if (job.to.how == access::other_rows)
    kernels<T>().seal_rows(done, job.rows_stored, seals);
  else
    kernels<T>().extend_seals(done, job.rows_stored, job.to.seals, seals);
}

template <class T>
std::uint64_t store_tile(const tile_job<T>& job, const T* done, const T* seals) {
  const auto& kernel = kernels<T>();
  const tile_view<T>& to = job.to;
  const std::int64_t row = 2 * kernel.lanes;
  std::uint64_t parity = 0;
  switch (to.how) {
    case access::rows: {
      const std::int64_t scalars = 2 * job.rows_stored - (to.odd ? 1 : 0);
      parity = kernel.store_rows(done, scalars, job.used, to.base, to.lane, job.stream);
      if (to.odd) parity ^= joined_scalars(done + scalars * kernel.lanes, kernel.lanes, scalars, lane_turn<T>(kernel.lanes));
      break;
    }
    case access::columns: parity = kernel.store_columns(done, job.rows_stored, job.used, to.base, to.element, job.stream); break;
    case access::blocks:
    case access::other_rows:
      if (done != to.base) std::memcpy(to.base, done, static_cast<std::size_t>(job.rows_stored * row) * sizeof(T));
      break;
    case access::own_rows: copy_rows(done, row, to.base, to.element, job.rows_stored); break;
    case access::complex: parity = scatter<access::complex>(job, done); break;
    case access::scalars: parity = scatter<access::scalars>(job, done); break;
    default: parity = scatter<access::real>(job, done);
  }
  if (has_stored_parity(job)) parity ^= kernel.join_rows(done, job.rows_stored, job.transform->rows_out());
  if (to.seals != nullptr) std::memcpy(to.seals, seals, static_cast<std::size_t>(seal_scalars(job)) * sizeof(T));
  return parity;
}

template std::int64_t load_tile(const tile_job<float>& job, float* x, lane_sums* sums);
template std::int64_t load_tile(const tile_job<double>& job, double* x, lane_sums* sums);
template std::int64_t seal_scalars(const tile_job<float>& job);
template std::int64_t seal_scalars(const tile_job<double>& job);
template void make_seals(const tile_job<float>& job, const float* done, float* seals);
template void make_seals(const tile_job<double>& job, const double* done, double* seals);
template std::uint64_t store_tile(const tile_job<float>& job, const float* done, const float* seals);
template std::uint64_t store_tile(const tile_job<double>& job, const double* done, const double* seals);

}  // namespace ballast::fft::cpu
