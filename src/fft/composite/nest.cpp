// The loops around a transform.
#include "fft/composite/nest.hpp"

#include <cstddef>
#include <utility>

#include "core/memory.hpp"
#if defined(BALLAST_HAS_CPU)
#include "core/parallel.hpp"
#endif

namespace ballast::fft::composite {
namespace {

class pending_loops final : public run::pending {
 public:
  void collect(run::recorder& seen) override {
    for (const auto& each : all) each->collect(seen);
  }
  core::vector<std::unique_ptr<run::pending>> all;
};

class nest final : public transform {
 public:
  nest(nested_geometry shape, const array_side& input, const array_side& output, precision type, std::unique_ptr<transform> inner,
       bool concurrent)
      : shape_(std::move(shape)),
        in_bytes_((input.real ? 1 : 2) * (type == precision::f32 ? 4 : 8)),
        out_bytes_((output.real ? 1 : 2) * (type == precision::f32 ? 4 : 8)),
        in_first_(input.first),
        out_first_(output.first),
        inner_(std::move(inner)),
        concurrent_(concurrent) {
    for (const loop& each : shape_.outer) runs_ *= each.count;
  }

  void run(const void* in, void* out, const transform_args& how) const override {
    const auto once = [&](std::int64_t number, const transform_args& args) {
      const auto [from, to] = operands(in, out, number);
      inner_->run(from, to, args);
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

  std::unique_ptr<run::pending> enqueue(const void* in, void* out, const transform_args& how) const override {
    auto made = std::make_unique<pending_loops>();
    for (std::int64_t number = 0; number < runs_; ++number) {
      const auto [from, to] = operands(in, out, number);
      made->all.push_back(inner_->enqueue(from, to, how));
      if (!made->all.back()) return nullptr;
    }
    return made;
  }

  std::int64_t workspace_bytes() const override { return inner_->workspace_bytes(); }

 private:
  std::pair<const void*, void*> operands(const void* in, void* out, std::int64_t number) const {
    std::int64_t from = in_first_, to = out_first_;
    for (std::size_t i = shape_.outer.size(); i-- > 0; number /= shape_.outer[i].count) {
      from += number % shape_.outer[i].count * shape_.outer[i].input;
      to += number % shape_.outer[i].count * shape_.outer[i].output;
    }
    return {static_cast<const std::byte*>(in) + from * in_bytes_, static_cast<std::byte*>(out) + to * out_bytes_};
  }

  nested_geometry shape_;
  std::int64_t in_bytes_, out_bytes_;  // the size of an element
  std::int64_t in_first_, out_first_;
  std::unique_ptr<transform> inner_;
  bool concurrent_;
  std::int64_t runs_ = 1;
};

}  // namespace

std::unique_ptr<transform> make_nest(nested_geometry shape, const array_side& input, const array_side& output, precision type,
                                     std::unique_ptr<transform> inner, bool concurrent) {
  if (shape.outer.empty() && input.first == 0 && output.first == 0) return inner;
  return std::make_unique<nest>(std::move(shape), input, output, type, std::move(inner), concurrent);
}

}  // namespace ballast::fft::composite
