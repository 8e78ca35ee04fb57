// Constructs a transform on the CPU by a choice: one pass, a volume, a convolution or pairs of signals.
// Layer: backend "cpu".
#include "fft/cpu/transform.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "fft/cpu/convolution.hpp"
#include "fft/cpu/long_real.hpp"
#include "fft/cpu/one_pass.hpp"
#include "fft/cpu/signal_pairs.hpp"
#include "fft/cpu/tuning.hpp"
#include "fft/cpu/volume.hpp"
#include "fft/cpu/whole_volume.hpp"

namespace ballast::fft::cpu {
namespace {

template <class T>
std::unique_ptr<transform> make(const geometry& given, bool protect, const choice& by) {
  const geometry shape = with_short_axes_first(given);
  const line_split split{by.n1, by.n2};
  switch (by.how) {
    case method::volume:
      if (whole_volume<T>::takes(shape)) return std::make_unique<whole_volume<T>>(shape, protect, by.share);
      return std::make_unique<volume<T>>(shape, std::nullopt, protect, by.share);
    case method::matrix: return std::make_unique<volume<T>>(shape, split, protect, by.share);
    case method::half_matrix: return std::make_unique<long_real<T>>(shape, split, protect, by.share);
    case method::convolution: return std::make_unique<convolution<T>>(shape, protect);
    case method::signal_pairs:
      return std::make_unique<signal_pairs<T>>(shape, by.n1 == 0 ? std::nullopt : std::optional(split), protect, by.share);
    case method::tile: break;
  }
  return std::make_unique<one_pass<T>>(shape, protect);
}

// A transform that takes at most so many threads.
class with_fewer_threads final : public transform {
 public:
  with_fewer_threads(std::unique_ptr<transform> work, int most) : work_(std::move(work)), most_(most) {}
  void run(const void* in, void* out, const transform_args& how) const override {
    transform_args fewer = how;
    fewer.threads = std::min(how.threads, most_);
    work_->run(in, out, fewer);
  }

 private:
  std::unique_ptr<transform> work_;
  int most_;
};

}  // namespace

std::unique_ptr<transform> make_chosen_transform(const geometry& shape, precision type, bool protect, const choice& by) {
  auto made = type == precision::f32 ? make<float>(shape, protect, by) : make<double>(shape, protect, by);
  if (by.threads > 0) return std::make_unique<with_fewer_threads>(std::move(made), by.threads);
  return made;
}

std::unique_ptr<transform> make_transform(const geometry& shape, precision type, bool protect) {
  return make_chosen_transform(shape, type, protect, choose_by_rule(shape, type));
}

std::unique_ptr<transform> make_tuned_transform(const geometry& shape, precision type, bool protect, int threads) {
  return make_chosen_transform(shape, type, protect, choose(shape, type, protect, threads, installed_choices()));
}

}  // namespace ballast::fft::cpu
