// Loads and stores of tiles. Loads encode the rows that they have just read, and seal those that waited in the workspace.
// Layer: backend "cpu".
#include <cstring>
#include <limits>

#include "fft/cpu/sums-inl.hpp"

// Included once for each target: no ordinary guard.
#if defined(BALLAST_FFT_MEMORY_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HWY_TARGET_TOGGLE
#undef BALLAST_FFT_MEMORY_INL
#else
#define BALLAST_FFT_MEMORY_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace ballast::fft::cpu {
namespace HWY_NAMESPACE {
namespace {

// ---- Loads ----

// The parity of what was loaded joins `parity` before anything is done with it.
HWY_INLINE void transpose_in(const T* base, std::int64_t lane_stride, int used, T* HWY_RESTRICT to, std::int64_t to_stride,
                             word_vector& parity) {
  const D d;
  V v[W];
  if (HWY_LIKELY(used == W)) {
#pragma GCC unroll 16
    for (int l = 0; l < W; ++l) v[l] = hn::LoadU(d, base + l * lane_stride);
  } else {
    for (int l = 0; l < W; ++l) v[l] = l < used ? hn::LoadU(d, base + l * lane_stride) : hn::Zero(d);
  }
#pragma GCC unroll 16
  for (int l = 0; l < W; l += 2) parity = join(parity, v[l], l + 1 < W ? v[l + 1] : hn::Zero(d));
  transpose(v);
#pragma GCC unroll 16
  for (int l = 0; l < W; ++l) hn::Store(v[l], d, to + l * to_stride);
}

// The sums of numbers that are not those of the source pass no check.
HWY_INLINE void require_parity(std::uint64_t source, const encoder<T>& encode) {
  if (encode.weights == nullptr || parity_of<T>(*encode.sums) == source) return;
  for (auto& sum : encode.sums->high) {
    for (double& lane : sum) lane = std::numeric_limits<double>::quiet_NaN();
  }
}

HWY_INLINE word joined_scalars(const T* from, std::int64_t count) {
  word all = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    word one;
    std::memcpy(&one, from + i, sizeof one);
    all ^= one;
  }
  return all;
}

void load_rows(const T* base, std::int64_t lane_stride, int used, std::int64_t rows, T* tile, const encoder<T>& encode) {
  const std::int64_t scalars = 2 * rows;
  word_vector parity = hn::Zero(words());
  begin(encode);
  for (std::int64_t j = 0; j < rows; j += k_block) {
    const std::int64_t end = HWY_MIN(scalars, 2 * (j + k_block));
    std::int64_t f = 2 * j;
    for (; f + W <= end; f += W) transpose_in(base + f, lane_stride, used, tile + f * W, W, parity);
    if (f < end) {
      HWY_ALIGN T part[W * W] = {};
      HWY_ALIGN T turned[W * W];
      for (int l = 0; l < used; ++l) std::memcpy(part + l * W, base + l * lane_stride + f, static_cast<std::size_t>(end - f) * sizeof(T));
      transpose_in(part, W, W, turned, W, parity);
      std::memcpy(tile + f * W, turned, static_cast<std::size_t>((end - f) * W) * sizeof(T));
    }
    encode_block(tile, j, HWY_MIN(static_cast<std::int64_t>(k_block), rows - j), encode);
  }
  require_parity(joined(parity), encode);
}

void load_columns(const T* base, std::int64_t row_stride, int used, std::int64_t rows, T* tile, const encoder<T>& encode) {
  const D d;
  word_vector parity = hn::Zero(words());
  begin(encode);
  for (std::int64_t j = 0; j < rows; j += k_block) {
    const std::int64_t count = HWY_MIN(static_cast<std::int64_t>(k_block), rows - j);
    for (std::int64_t i = j; i < j + count; ++i) {
      const T* from = base + i * row_stride;
      V re, im;
      if (HWY_LIKELY(used == W)) {
        hn::LoadInterleaved2(d, from, re, im);
      } else {
        HWY_ALIGN T part[2 * W] = {};
        std::memcpy(part, from, static_cast<std::size_t>(2 * used) * sizeof(T));
        hn::LoadInterleaved2(d, part, re, im);
      }
      parity = join(parity, re, im);
      hn::Store(re, d, tile + i * k_row);
      hn::Store(im, d, tile + i * k_row + W);
    }
    encode_block(tile, j, count, encode);
  }
  require_parity(joined(parity), encode);
}

std::int64_t load_blocks(const T* base, std::int64_t block_stride, int used, std::int64_t rows, T* tile, const T* seals,
                         std::int64_t seal_stride, const encoder<T>& encode) {
  std::int64_t damaged = 0;
  word_vector unused = hn::Zero(words());  // blocks have seals
  begin(encode);
  for (std::int64_t j = 0; j < rows; j += W) {
    const T* from = base + j / W * block_stride;
    const std::int64_t count = HWY_MIN(static_cast<std::int64_t>(W), rows - j);
    if (HWY_LIKELY(count == W)) {
      transpose_in(from, k_row, used, tile + j * k_row, k_row, unused);
      transpose_in(from + W, k_row, used, tile + j * k_row + W, k_row, unused);
    } else {
      HWY_ALIGN T turned[W * k_row];
      transpose_in(from, k_row, used, turned, k_row, unused);
      transpose_in(from + W, k_row, used, turned + W, k_row, unused);
      std::memcpy(tile + j * k_row, turned, static_cast<std::size_t>(count * k_row) * sizeof(T));
    }
    // Seals and sums are made of what lies in the tile, not of what was read from the workspace.
    const std::int64_t ready = j + count;
    if (ready % k_block != 0 && ready != rows) continue;
    const std::int64_t first = (ready - 1) / k_block * k_block;
    T found[k_block / W];
    encode_block(tile, first, ready - first, encode, seals == nullptr ? nullptr : found);
    if (seals == nullptr) continue;
    for (std::int64_t i = first; i < ready; i += W) {
      if (std::memcmp(found + (i - first) / W, seals + i / W * seal_stride, sizeof(T)) != 0) ++damaged;
    }
  }
  return damaged;
}

// ---- Stores ----

std::uint64_t store_rows(const T* tile, std::int64_t scalars, int used, T* base, std::int64_t lane_stride, bool stream) {
  const D d;
  std::int64_t f = 0;
  word_vector parity = hn::Zero(words());
  for (; f + W <= scalars; f += W) {
    V v[W];
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) v[i] = hn::Load(d, tile + (f + i) * W);
    transpose(v);
#pragma GCC unroll 16
    for (int l = 0; l < W; l += 2) parity = join(parity, v[l], l + 1 < W ? v[l + 1] : hn::Zero(d));
    if (HWY_LIKELY(used == W)) {
      if (stream) {
#pragma GCC unroll 16
        for (int l = 0; l < W; ++l) hn::Stream(v[l], d, base + l * lane_stride + f);
      } else {
#pragma GCC unroll 16
        for (int l = 0; l < W; ++l) hn::StoreU(v[l], d, base + l * lane_stride + f);
      }
    } else {
      for (int l = 0; l < used; ++l) hn::StoreU(v[l], d, base + l * lane_stride + f);
    }
  }
  std::uint64_t rest = 0;
  for (; f < scalars; ++f) {
    for (int l = 0; l < used; ++l) base[l * lane_stride + f] = tile[f * W + l];
    rest ^= joined_scalars(tile + f * W, W);
  }
  return joined(parity) ^ rest;
}

std::uint64_t store_columns(const T* tile, std::int64_t rows, int used, T* base, std::int64_t row_stride, bool stream) {
  const D d;
  word_vector parity = hn::Zero(words());
  for (std::int64_t i = 0; i < rows; ++i) {
    const V re = hn::Load(d, tile + i * k_row);
    const V im = hn::Load(d, tile + i * k_row + W);
    parity = join(parity, re, im);
    T* to = base + i * row_stride;
    if (HWY_LIKELY(used == W)) {
      if (stream) {
        HWY_ALIGN T part[2 * W];
        hn::StoreInterleaved2(re, im, d, part);
        hn::Stream(hn::Load(d, part), d, to);
        hn::Stream(hn::Load(d, part + W), d, to + W);
      } else {
        hn::StoreInterleaved2(re, im, d, to);
      }
    } else {
      for (int l = 0; l < used; ++l) {
        to[2 * l] = tile[i * k_row + l];
        to[2 * l + 1] = tile[i * k_row + W + l];
      }
    }
  }
  return joined(parity);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ballast::fft::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
