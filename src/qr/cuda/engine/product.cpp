// Products of block reflectors: by cuBLAS; for wide matrices of floats by product.cuh; with few columns by narrow.cuh.
// Layer: backend "cuda" of QR. See session.hpp.
#include <algorithm>
#include <type_traits>

#include "qr/cuda/engine/session.hpp"

namespace ballast::qr::cuda {

namespace {

// If a matrix has fewer columns than this multiple of the number of reflectors, reading it is faster than computing V's image.
constexpr std::int64_t k_least_ratio = 4;
// With more rows of reals than this, cuBLAS takes longer for a product than the host takes for its launch.
constexpr std::int64_t k_narrow_most_rows = 1 << 15;
// The fewest chunks in each part of a product.
constexpr std::int64_t k_least_chunks = 8;

// Returns the number of chunks into which the tiles of a strip are divided, with the fewest waves over all multiprocessors. The start of a
// thread block costs as much as k_begins tiles.
int chunks_of(std::int64_t strips, std::int64_t tiles, int multiprocessors) {
  constexpr std::int64_t k_begins = 2;
  std::int64_t best = 0, chunks = 1;
  for (std::int64_t c = 1; c <= tiles; ++c) {
    const std::int64_t rounds = (strips * c + multiprocessors - 1) / multiprocessors, cost = rounds * ((tiles + c - 1) / c + k_begins);
    if (c == 1 || cost < best) {
      best = cost;
      chunks = c;
    }
  }
  return static_cast<int>(chunks);
}

std::int64_t tiles_of(std::int64_t columns) { return (columns + k_side - 1) / k_side; }

}  // namespace

// Depends on the shape alone, so that a repeated product gets the same bits.
template <class S>
bool session<S>::multiplies(const formed_reflector<S>& H, std::int64_t n) const {
  return kernel_names<S>::multiplies(device_->about()) && run_.how.tf32x3 && n >= k_least_ratio * H.width &&
         split_shape(H.rows, H.width).strips * tiles_of(n) >= device_->about().multiprocessors;
}

template <class S>
std::int64_t session<S>::image_bytes(std::int64_t rows, std::int64_t width) {
  const split_shape shape(rows, width);
  return (shape.by_rows() + shape.by_columns()) * std::int64_t{sizeof(float)};
}

template <class S>
void session<S>::make_image(formed_reflector<S>& H, void* to, stream on) const {
  if constexpr (std::is_same_v<S, float>) {
    const split_shape shape(H.rows, H.width);
    auto* const image = static_cast<float*>(to);
    launch(work::split, shape.strips * shape.across, split_arguments{H.V, H.rows, H.width, image, image + shape.by_rows()}, on);
    H.image = image;
  }
}

template <class S>
void session<S>::product(const formed_reflector<S>& H, std::int64_t n, const S* C, std::int64_t ldc, S* W, stream on) const {
  if constexpr (std::is_same_v<S, float>) {
    if (H.image != nullptr && multiplies(H, n)) {
      const split_shape shape(H.rows, H.width);
      const std::int64_t tiles = shape.tiles() * tiles_of(n), multiprocessors = device_->about().multiprocessors;
      const std::int64_t splits =
          std::clamp<std::int64_t>(multiprocessors / tiles, 1, (shape.chunks() + k_least_chunks - 1) / k_least_chunks);
      project_arguments given{H.image, H.rows, H.width, C, ldc, n, W, splits, nullptr};
      buffer parts;
      if (splits > 1) {
        parts = {device_, core::checked_product(splits * H.width * n, std::int64_t{sizeof(float)}), on};
        given.parts = static_cast<float*>(parts.data());
      }
      launch(work::project, tiles * splits, given, on);
      if (splits > 1) launch(work::add_parts, slabs(H.width * n), given, on);
      return;
    }
  }
  blas(on).gemm(k_adjoint<S>, 'N', H.width, n, H.rows, S(1), H.V, H.rows, C, ldc, S(0), W, H.width);
}

template <class S>
void session<S>::update(const formed_reflector<S>& H, bool transposed, std::int64_t n, S* W, S* C, std::int64_t ldc, stream on) const {
  apply_t(H, transposed, n, W, on);
  subtract(H, n, W + H.width * n, C, ldc, on);
}

template <class S>
bool session<S>::narrow(const formed_reflector<S>& H, std::int64_t n) const {
  return n <= k_narrow_columns && k_reals<S> * H.width <= k_most_wide && k_reals<S> * H.rows <= k_narrow_most_rows;
}

template <class S>
product_parts session<S>::product_in_parts(const formed_reflector<S>& H, const some_columns<S>& C, const some_columns<S>& more, stream on) {
  const auto across = [](std::int64_t n) { return (n + k_narrow_across - 1) / k_narrow_across; };
  const std::int64_t chunks = std::clamp<std::int64_t>((k_reals<S> * H.rows + k_narrow_rows - 1) / k_narrow_rows, 1, k_narrow_chunks);
  buffer& parts = parts_[on == main() ? 0 : on == update_stream() ? 1 : 2];
  const std::int64_t bytes = core::checked_product(chunks * k_reals<S> * H.width * (C.count + more.count), std::int64_t{sizeof(double)});
  if (parts.bytes() < bytes) parts = {device_, bytes, on};
  auto* const data = static_cast<double*>(parts.data());
  launch(work::narrow_product, chunks * (across(C.count) + across(more.count)),
         narrow_product_arguments<S>{H.V,
                                     H.rows,
                                     static_cast<int>(H.width),
                                     {{C.data, C.ld, static_cast<int>(C.count)}, {more.data, more.ld, static_cast<int>(more.count)}},
                                     chunks,
                                     data},
         on);
  return {data, chunks};
}

template <class S>
void session<S>::apply_t(const formed_reflector<S>& H, bool transposed, std::int64_t n, S* W, stream on, const product_parts& parts) const {
  if (k_reals<S> * H.width <= k_most_wide) {
    const bool few = parts.data != nullptr;
    const std::int64_t each = few ? k_apply_t_few : k_apply_t_many;
    launch(few ? work::apply_t_few : work::apply_t_many, (n + each - 1) / each,
           apply_t_arguments<S>{H.T, static_cast<int>(H.width), transposed, n, parts.data, parts.chunks, W}, on);
    return;
  }
  blas(on).gemm(transposed ? k_adjoint<S> : 'N', 'N', H.width, n, H.width, S(1), H.T, H.width, W, H.width, S(0), W + H.width * n, H.width);
}

template <class S>
void session<S>::subtract(const formed_reflector<S>& H, std::int64_t n, const S* TW, S* C, std::int64_t ldc, stream on) const {
  if constexpr (std::is_same_v<S, float>) {
    if (H.image != nullptr && multiplies(H, n)) {
      const split_shape shape(H.rows, H.width);
      subtract_arguments given{H.image + shape.by_rows(), H.rows, H.width, TW, n, C, ldc, 1};
      if (H.width > k_side) {
        launch(work::subtract_deep, shape.strips * tiles_of(n), given, on);
      } else {
        given.chunks = chunks_of(shape.strips, tiles_of(n), device_->about().multiprocessors);
        launch(work::subtract, shape.strips * given.chunks, given, on);
      }
      return;
    }
  }
  if (narrow(H, n)) {
    const std::int64_t across = (n + k_subtract_across - 1) / k_subtract_across;
    launch(work::narrow_subtract, (k_reals<S> * H.rows + k_threads / 2 - 1) / (k_threads / 2) * across,
           narrow_subtract_arguments<S>{H.V, H.rows, static_cast<int>(H.width), TW, static_cast<int>(n), C, ldc}, on);
    return;
  }
  blas(on).gemm('N', 'N', H.rows, n, H.width, S(-1), H.V, H.rows, TW, H.width, S(1), C, ldc);
}

#define BALLAST_PRODUCTS(S)                                                                                                                \
  template bool session<S>::multiplies(const formed_reflector<S>&, std::int64_t) const;                                                    \
  template std::int64_t session<S>::image_bytes(std::int64_t, std::int64_t);                                                               \
  template void session<S>::make_image(formed_reflector<S>&, void*, stream) const;                                                         \
  template void session<S>::product(const formed_reflector<S>&, std::int64_t, const S*, std::int64_t, S*, stream) const;                   \
  template void session<S>::update(const formed_reflector<S>&, bool, std::int64_t, S*, S*, std::int64_t, stream) const;                    \
  template void session<S>::apply_t(const formed_reflector<S>&, bool, std::int64_t, S*, stream, const product_parts&) const;               \
  template bool session<S>::narrow(const formed_reflector<S>&, std::int64_t) const;                                                        \
  template product_parts session<S>::product_in_parts(const formed_reflector<S>&, const some_columns<S>&, const some_columns<S>&, stream); \
  template void session<S>::subtract(const formed_reflector<S>&, std::int64_t, const S*, S*, std::int64_t, stream) const;
BALLAST_PRODUCTS(float)
BALLAST_PRODUCTS(double)
BALLAST_PRODUCTS(std::complex<float>)
BALLAST_PRODUCTS(std::complex<double>)
#undef BALLAST_PRODUCTS

}  // namespace ballast::qr::cuda
