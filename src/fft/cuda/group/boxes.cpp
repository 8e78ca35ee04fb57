// The launches of boxes.cuh. A copy calls the axes by what is contiguous: 0 in the source, 1 in the target if that is another one.
#include "fft/cuda/group/boxes.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/format.hpp"

namespace ballast::fft::cuda {

namespace {

ballast::cuda::kernel_request request_of(std::string expression, std::int64_t shared) {
  ballast::cuda::kernel_request made;
  made.header = "fft/cuda/group/boxes.cuh";
  made.expression = std::move(expression);
  made.threads = k_box_threads;
  made.shared = shared;
  return made;
}

// The axis, of more than one element if there is one, with the smallest distance.
int nearest_axis(const std::int64_t (&step)[3], const std::int64_t (&count)[3]) {
  int best = -1;
  for (int a = 0; a < 3; ++a)
    if (count[a] > 1 && (best < 0 || step[a] < step[best])) best = a;
  return std::max(best, 0);
}

}  // namespace

ballast::cuda::kernel_request box_copy_request(int element_bytes, bool turned) {
  return request_of(fmt::format("ballast::fft::cuda::box_copy_kernel<{}, {}>", element_bytes, turned ? "true" : "false"),
                    turned ? std::int64_t{k_box_tile} * (k_box_tile + 1) * element_bytes : 0);
}

ballast::cuda::kernel_request box_sum_request(int element_bytes) {
  return request_of(fmt::format("ballast::fft::cuda::box_sum_kernel<{}>", element_bytes), k_box_threads / 32 * 8);
}

box_kernels::box_kernels(std::shared_ptr<ballast::cuda::device> on, int element_bytes) : device_(std::move(on)) {
  const std::array wanted = {box_copy_request(element_bytes, false), box_copy_request(element_bytes, true), box_sum_request(element_bytes)};
  const auto loaded = device_->load_all(wanted);
  straight_ = loaded[0];
  turned_ = loaded[1];
  sum_ = loaded[2];
}

std::int64_t box_kernels::blocks_for(const std::int64_t (&count)[3], int rows_axis, int columns_axis, int share) const {
  const auto tiles = [&](int axis) { return (count[axis] + k_box_tile - 1) / k_box_tile; };
  const std::int64_t all = tiles(rows_axis) * tiles(columns_axis) * count[3 - rows_axis - columns_axis];
  return std::clamp<std::int64_t>(all, 1, std::int64_t{share} * device_->about().multiprocessors);
}

void box_kernels::copy(const void* from, const std::int64_t (&from_step)[3], void* to, const std::int64_t (&to_step)[3],
                       const std::int64_t (&count)[3], int share, ballast::cuda::stream on) const {
  if (count[0] * count[1] * count[2] == 0) return;
  const int near = nearest_axis(from_step, count), last = nearest_axis(to_step, count);
  const bool turned = near != last;
  // Without a turn any other axis may be the second; the longest fills the tiles.
  int second = last;
  if (!turned) second = count[(near + 1) % 3] >= count[(near + 2) % 3] ? (near + 1) % 3 : (near + 2) % 3;
  const int axes[3] = {near, second, 3 - near - second};
  box_copy_arguments a{.from = from, .to = to, .count = {}, .from_step = {}, .to_step = {}};
  for (int i = 0; i < 3; ++i) {
    a.count[i] = count[axes[i]];
    a.from_step[i] = from_step[axes[i]];
    a.to_step[i] = to_step[axes[i]];
  }
  device_->launch(turned ? *turned_ : *straight_, blocks_for(count, near, second, share), &a, sizeof a, on);
}

void box_kernels::sum(const void* from, const std::int64_t (&step)[3], const std::int64_t (&count)[3], std::int64_t first,
                      const std::int64_t (&number_step)[3], unsigned long long* sum, int share, ballast::cuda::stream on) const {
  if (count[0] * count[1] * count[2] == 0) return;
  const int near = nearest_axis(step, count);
  const int second = count[(near + 1) % 3] >= count[(near + 2) % 3] ? (near + 1) % 3 : (near + 2) % 3;
  const int axes[3] = {near, second, 3 - near - second};
  box_sum_arguments a{.from = from, .sum = sum, .count = {}, .step = {}, .first = first, .number_step = {}};
  for (int i = 0; i < 3; ++i) {
    a.count[i] = count[axes[i]];
    a.step[i] = step[axes[i]];
    a.number_step[i] = number_step[axes[i]];
  }
  device_->launch(*sum_, blocks_for(count, near, second, share), &a, sizeof a, on);
}

}  // namespace ballast::fft::cuda
