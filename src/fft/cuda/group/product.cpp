// The launches of product.cuh, and its tables.
#include "fft/cuda/group/product.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <complex>
#include <string>
#include <utility>
#include <vector>

#include "core/format.hpp"
#include "fft/tables/extended_precision_dft.hpp"

namespace ballast::fft::cuda {

ballast::cuda::kernel_request product_request(int element_bytes, bool check) {
  ballast::cuda::kernel_request made;
  made.header = "fft/cuda/group/product.cuh";
  made.expression = fmt::format("ballast::fft::cuda::product_kernel<{}, {}>", element_bytes == 8 ? "float" : "double", check);
  made.threads = k_product_threads;
  return made;
}

root_tables roots_of(const std::shared_ptr<ballast::cuda::device>& on, std::int64_t n, int copy, bool share) {
  root_tables made;
  made.shift = std::bit_width(static_cast<std::uint64_t>(n)) / 2;
  const std::int64_t step = std::int64_t{1} << made.shift;
  const auto table = [&](const char* name, std::int64_t count, std::int64_t distance) {
    const auto make = [&] {
      std::vector<split_root> values;
      values.reserve(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) {
        const std::complex<long double> root = root_of_unity<long double>(i * distance, n);
        const auto re = static_cast<double>(root.real()), im = static_cast<double>(root.imag());
        values.push_back({re, im, static_cast<double>(root.real() - re), static_cast<double>(root.imag() - im)});
      }
      return values;
    };
    if (share) return ballast::cuda::share_table(on, fmt::format("fft group roots {} {}", name, n), copy, make);
    const std::vector<split_root> values = make();
    return std::make_shared<const ballast::cuda::device_table>(on, values.data(),
                                                               static_cast<std::int64_t>(values.size() * sizeof(values[0])));
  };
  made.fine = table("fine", std::min(step, n), 1);
  made.coarse = table("coarse", (n + step - 1) / step, step);
  return made;
}

product_kernels::product_kernels(std::shared_ptr<ballast::cuda::device> on, int element_bytes) : device_(std::move(on)) {
  const std::array wanted = {product_request(element_bytes, false), product_request(element_bytes, true)};
  const auto loaded = device_->load_all(wanted);
  multiply_ = loaded[0];
  check_ = loaded[1];
}

namespace {

product_arguments arguments_of(const void* from, void* to, const product_part& part, const root_tables& by, bool conjugate,
                               unsigned long long* wrong) {
  return {from,
          to,
          wrong,
          static_cast<const split_root*>(by.coarse->data()),
          static_cast<const split_root*>(by.fine->data()),
          part.rows,
          part.columns,
          part.first_row,
          part.first_column,
          by.shift,
          conjugate ? 1 : 0};
}

}  // namespace

void product_kernels::launch(const ballast::cuda::kernel& which, const product_arguments& given, ballast::cuda::stream on) const {
  const std::int64_t tiles = (given.columns + k_product_tile - 1) / k_product_tile * given.rows;
  if (tiles == 0) return;
  device_->launch(which, std::min(tiles, std::int64_t{16} * device_->about().multiprocessors), &given, sizeof given, on);
}

void product_kernels::multiply(const void* from, void* to, const product_part& part, const root_tables& by, bool conjugate,
                               ballast::cuda::stream on) const {
  launch(*multiply_, arguments_of(from, to, part, by, conjugate, nullptr), on);
}

void product_kernels::check(const void* from, const void* to, const product_part& part, const root_tables& by, bool conjugate,
                            unsigned long long* wrong, ballast::cuda::stream on) const {
  launch(*check_, arguments_of(from, const_cast<void*>(to), part, by, conjugate, wrong), on);
}

}  // namespace ballast::fft::cuda
