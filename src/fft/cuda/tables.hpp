// What kernels read besides the data: twiddle factors, chirps and filters of convolutions, checksum weights. Computed above the
// precision of the data, rounded once, and uploaded once for a plan.
// Layer: fft/cuda.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda/device.hpp"
#include "fft/cuda/schedule.hpp"

namespace ballast::fft::cuda {

// Host side of the tables; T is the precision of the data, each complex number two of them.
template <class T>
struct table_source {
  static std::vector<T> stage_twiddles(const line_policy& policy);
  // Coarse and fine powers of w_order: [w^{i·2^bits}…, w^i…].
  static std::vector<T> split_twiddles(std::int64_t order, int fine_bits);
  // w^{ck · length/r} at cr + k, r the last radix, c < columns, and behind them w^{cj} at j · columns + c, w = w_{length · columns}.
  static std::vector<T> separated_twiddles(const line_policy& policy, std::int64_t columns);
  // What stands between the line of N numbers that 2N reals are in pairs and their spectrum: for butterfly j of the last stage
  // −i/2 · w_{2N}^j, or, with `inwards`, for that of the first stage i · w_{2N}^{−j}.
  static std::vector<T> spectrum_factors(const line_policy& policy, bool inwards);
  // e^{∓πi j²/n} for j < n (`mirrored`: its conjugate, for a pass that exchanges real and imaginary parts), and zeros up to padded_to: the
  // pass multiplies its outputs beyond n, too, before it drops them.
  static std::vector<T> chirp(std::int64_t convolution, std::int64_t padded_to, bool mirrored);
  // Transform of the conjugate chirp, periodic with `padded_to`, over padded_to.
  static std::vector<T> filter(std::int64_t convolution, std::int64_t padded_to);
  // What weights.hpp calls α and α′ for each last butterfly of a line, four scalars; and for each first one, if it is not the last, A and
  // A′ times w^{j·centre}, four scalars, and then all w^j.
  struct weights {
    std::vector<T> verify, encode;
  };
  static weights checksum_weights(const line_policy& policy);
};
extern template struct table_source<float>;
extern template struct table_source<double>;

int fine_bits_of(std::int64_t order);
std::int64_t coarse_size_of(std::int64_t order);

// Device tables by name, each uploaded once.
class table_store {
 public:
  explicit table_store(std::shared_ptr<ballast::cuda::device> device) : device_(std::move(device)) {}

  // The table `name`, made by `make` if it is not there. Copies with different `copy` lie in different memory.
  template <class T, class Make>
  const void* get(const std::string& name, int copy, Make&& make) {
    const std::string key = name + (copy == 0 ? "" : "'");
    const auto found = tables_.find(key);
    if (found != tables_.end()) return found->second.data();
    const std::vector<T>& values = source<T>(name, make);
    ballast::cuda::device_buffer memory(device_, static_cast<std::int64_t>(values.size() * sizeof(T)));
    device_->copy(memory.data(), values.data(), memory.bytes(), nullptr);
    return tables_.emplace(key, std::move(memory)).first->second.data();
  }
  // Waits until all of them are there, and gives the host's copies back.
  void finish() {
    device_->synchronize(nullptr);
    hosts_.clear();
  }

 private:
  template <class T, class Make>
  const std::vector<T>& source(const std::string& name, Make&& make) {
    auto& slot = hosts_[name];
    if (!slot) slot = std::make_shared<std::vector<T>>(make());
    return *std::static_pointer_cast<std::vector<T>>(slot);
  }
  std::shared_ptr<ballast::cuda::device> device_;
  std::map<std::string, std::shared_ptr<void>> hosts_;
  std::map<std::string, ballast::cuda::device_buffer> tables_;
};

}  // namespace ballast::fft::cuda
