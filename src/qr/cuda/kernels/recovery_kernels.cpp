// Builds the requests for the recovery kernels: templates, threads and shared memory.
// Layer: backend "cuda" of QR.
#include "qr/cuda/kernels/recovery_kernels.hpp"

#include <complex>
#include <cstdint>
#include <string>

#include "qr/cuda/kernels/batch_kernels.hpp"

namespace ballast::qr::cuda {

template <class S>
auto recovery_names<S>::rows(rotating how, int columns) -> request {
  const char* const mode = how == rotating::up ? "up" : how == rotating::down ? "down" : "making";
  return {.header = "qr/cuda/recovery/recovery.cuh",
          .expression = std::string("ballast::qr::cuda::rotate_rows_kernel<") + name_of_number<S>() + "," + std::to_string(columns) +
                        ",ballast::qr::cuda::rotating::" + mode + ">",
          .threads = columns,
          .shared = (columns * (k_rotated_rows + 1) + 2 * k_rotated_rows) * static_cast<std::int64_t>(sizeof(S))};
}

namespace {

template <class S>
ballast::cuda::kernel_request named(const char* name, int threads) {
  return {.header = "qr/cuda/recovery/recovery.cuh",
          .expression = std::string("ballast::qr::cuda::") + name + "<" + name_of_number<S>() + ">",
          .threads = threads};
}

}  // namespace

template <class S>
auto recovery_names<S>::columns() -> request {
  return named<S>("rotate_columns_kernel", k_threads);
}
template <class S>
auto recovery_names<S>::givens() -> request {
  return named<S>("givens_kernel", k_threads);
}
template <class S>
auto recovery_names<S>::tail() -> request {
  return named<S>("tail_kernel", k_threads);
}
template <class S>
auto recovery_names<S>::store() -> request {
  return named<S>("store_factors_kernel", k_threads);
}
template <class S>
auto recovery_names<S>::match() -> request {
  return named<real_of<S>>("match_kernel", k_threads);
}
template <class S>
auto recovery_names<S>::make_one() -> request {
  return named<S>("make_one_kernel", 32);
}
template <class S>
auto recovery_names<S>::apply_one() -> request {
  return named<S>("apply_one_kernel", k_threads);
}

template <class S>
int recovery_names<S>::block(const ballast::cuda::capabilities& on) {
  int columns = 1024;
  while (columns > 64 && 2 * rows(rotating::up, columns).shared > on.shared_per_block) columns /= 2;
  return columns;
}

template <class S>
auto recovery_names<S>::all(const ballast::cuda::capabilities& on) -> std::vector<request> {
  const int columns = block(on);
  return {rows(rotating::up, columns),
          rows(rotating::down, columns),
          rows(rotating::making, columns),
          recovery_names::columns(),
          givens(),
          tail(),
          store(),
          match(),
          make_one(),
          apply_one()};
}

template struct recovery_names<float>;
template struct recovery_names<double>;
template struct recovery_names<std::complex<float>>;
template struct recovery_names<std::complex<double>>;

}  // namespace ballast::qr::cuda
