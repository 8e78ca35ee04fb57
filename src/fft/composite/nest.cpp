// The loops around a transform.
#include "fft/composite/nest.hpp"

#include <cstddef>
#include <utility>

#if defined(BALLAST_HAS_CPU)
#include "core/parallel.hpp"
#endif

namespace ballast::fft::composite {
namespace {

class nest final : public transform {
 public:
  nest(nested_geometry shape, precision type, std::unique_ptr<transform> inner, bool concurrent)
      : shape_(std::move(shape)),
        in_bytes_((shape_.input.real ? 1 : 2) * (type == precision::f32 ? 4 : 8)),
        out_bytes_((shape_.output.real ? 1 : 2) * (type == precision::f32 ? 4 : 8)),
        inner_(std::move(inner)),
        concurrent_(concurrent),
        runs_(shape_.runs()) {}

  void run(const void* in, void* out, const transform_args& how) const override {
    const auto once = [&](std::int64_t number, const transform_args& args) {
      const nested_geometry::place begin = shape_.begin_of(number);
      inner_->run(static_cast<const std::byte*>(in) + begin.input * in_bytes_, static_cast<std::byte*>(out) + begin.output * out_bytes_,
                  args);
    };
#if defined(BALLAST_HAS_CPU)
    if (concurrent_ && how.threads > 1 && runs_ >= how.threads) {
      transform_args one = how;
      one.threads = 1;
      core::parallel_for(how.threads, runs_, [&](std::int64_t number, int) { once(number, one); });
      return;
    }
#endif
    for (std::int64_t number = 0; number < runs_; ++number) once(number, how);
  }

 private:
  nested_geometry shape_;
  std::int64_t in_bytes_, out_bytes_;  // the size of an element
  std::unique_ptr<transform> inner_;
  bool concurrent_;
  std::int64_t runs_;
};

}  // namespace

std::unique_ptr<transform> make_nest(nested_geometry shape, precision type, std::unique_ptr<transform> inner, bool concurrent) {
  if (shape.outer.empty() && shape.input.first == 0 && shape.output.first == 0) return inner;
  return std::make_unique<nest>(std::move(shape), type, std::move(inner), concurrent);
}

}  // namespace ballast::fft::composite
