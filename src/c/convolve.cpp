// Convolution in one call.
// Layer: interface.
#include <complex>
#include <span>
#include <string>
#include <vector>

#include <ballast/convolve.hpp>
#include <ballast/error.hpp>

#include "c/handles.hpp"
#include "c/tensor.hpp"
#include "core/format.hpp"

using namespace ballast::c;
namespace fft = ballast::fft;

namespace {

template <class Element>
std::span<Element> all_of(const tensor& of, const ballast::execution& where) {
  return elements_of<Element>(of, of.axes, where);
}

std::vector<std::int64_t> shape_of(const tensor& of) { return {of.length.begin(), of.length.begin() + of.axes}; }

}  // namespace

int32_t ballast_convolve(const DLTensor* first, const DLTensor* second, const DLTensor* out, int32_t mode, int32_t correlate,
                         const ballast_options* options, const ballast_call* call, ballast_report* report, ballast_error* error) {
  return guarded(error, [&](frame& here) {
    const ballast::execution where = options == nullptr ? ballast::execution{} : where_of(options_for(options, algorithm::fft));
    if (mode < BALLAST_CONVOLVE_FULL || mode > BALLAST_CONVOLVE_VALID)
      throw ballast::invalid_argument_error(ballast::fmt::format("mode: expected 0 (full), 1 (same) or 2 (valid), got {}", mode));
    const tensor probe(first, {"", "first"});
    if (!is_number(probe.type)) probe.expect(element::f32);
    const fft::convolution_problem problem{.precision = precision_of_element(probe.type),
                                           .complex = is_complex(probe.type),
                                           .correlate = correlate != 0,
                                           .first = shape_of(probe),
                                           .second = shape_of(tensor(second, {"", "second"})),
                                           .mode = static_cast<fft::convolution_mode>(mode)};
    const std::string token = to_token(problem);
    here.poses(token);
    const ballast::call& now = call_of(call);
    begin(here, report, now);
    const fft::convolution plan(problem, where);
    const tensor a(first, {token, "first"}), b(second, {token, "second"}), c(out, {token, "out"});
    if (shape_of(c) != plan.output_shape()) {
      std::string shape;
      for (const std::int64_t n : plan.output_shape()) shape += (shape.empty() ? "" : " x ") + std::to_string(n);
      throw ballast::invalid_argument_error(ballast::fmt::format("{}: out: expected {}, got {}", token, shape, lengths_of(c)));
    }
    const auto run = [&]<class Element>(Element) {
      fill(report, plan.run(all_of<const Element>(a, where), all_of<const Element>(b, where), all_of<Element>(c, where), now));
    };
    switch (probe.type) {
      case element::f32: return run(float{});
      case element::f64: return run(double{});
      case element::c64: return run(std::complex<float>{});
      default: return run(std::complex<double>{});
    }
  });
}
