// The subcommand `ballast convolve`.
#include <complex>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <ballast/convolve.hpp>

#include "command.hpp"

namespace ballast::tools {
namespace {

struct convolve_options : common_options {
  std::string first, second, output, mode = "full";
  bool correlate = false;
};

template <class Element>
int run(const convolve_options& wanted, array first, array second) {
  invocation work(wanted, "convolve");
  const auto check = [](const std::string& name, const array& of) {
    if (of.shape.empty() || of.size() == 0)
      throw invalid_argument_error(fmt::format("{}: expected an array with elements, got shape {}", printable(name), to_string(of.shape)));
  };
  check(wanted.first, first);
  check(wanted.second, second);
  if (first.shape.size() != second.shape.size())
    throw invalid_argument_error(fmt::format("{}: expected {} axes, those of {}, got shape {}", printable(wanted.second),
                                             first.shape.size(), printable(wanted.first), to_string(second.shape)));
  if (!wanted.output.empty()) work.reserve(wanted.output, first.shape.size());
  using real = decltype(std::abs(Element{}));
  const fft::convolution plan({.precision = precision_of<real>,
                               .complex = !std::is_floating_point_v<Element>,
                               .correlate = wanted.correlate,
                               .first = first.shape,
                               .second = second.shape,
                               .mode = wanted.mode == "same"    ? fft::convolution_mode::same
                                       : wanted.mode == "valid" ? fft::convolution_mode::valid
                                                                : fft::convolution_mode::full},
                              work.where());
  const auto in_order = [](array of) {
    if (!of.fortran) return std::move(of).template as<Element>();
    // The file holds columns first.
    const std::vector<std::int64_t> shape = of.shape, strides = of.strides();
    std::vector<Element> made, values = std::move(of).template as<Element>();
    made.reserve(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::int64_t rest = static_cast<std::int64_t>(i), at = 0;
      for (std::size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) at += rest % shape[axis] * strides[axis];
      made.push_back(values[static_cast<std::size_t>(at)]);
    }
    return made;
  };
  array result;
  result.shape = plan.output_shape();
  const std::vector<Element> x = in_order(std::move(first)), h = in_order(std::move(second));
  std::vector<Element> out(static_cast<std::size_t>(result.size()));
  nlohmann::ordered_json results;
  std::vector<std::string> lines;
  if (work.add(plan.run(x, h, out, work.now()))) {
    work.count<Element>(out);
    results = {{"shape", result.shape}};
    lines.push_back(fmt::format("output shape {}", to_string(result.shape)));
    if (!wanted.output.empty()) {
      result.values = std::move(out);
      work.write(wanted.output, result);
    }
  }
  return work.finish(results, lines);
}

template <class T>
int run_as(const convolve_options& wanted, array first, array second) {
  if (first.is_complex() || second.is_complex()) return run<std::complex<T>>(wanted, std::move(first), std::move(second));
  return run<T>(wanted, std::move(first), std::move(second));
}

}  // namespace

void add_convolve(command_line& program) {
  auto wanted = std::make_shared<convolve_options>();
  command_line& command = program.subcommand("convolve", "Convolve FIRST with SECOND along all axes, by Fourier transforms");
  command.operand("FIRST", wanted->first, ".npy, .csv or .tsv, real or complex; - is standard input");
  command.operand("SECOND", wanted->second, "the same, with as many axes");
  command.text("-o,--output", wanted->output, "write the result (.npy, .csv or .tsv)");
  command.choice("--mode", wanted->mode, "all sums, those in the middle, or those that no zeros continue", {"full", "same", "valid"});
  command.flag("--correlate", wanted->correlate, "correlate: SECOND reversed and conjugated");
  wanted->files->add_to(command);
  wanted->add_to(command);
  command.action([wanted] {
    array first = wanted->files->operand(wanted->first), second = wanted->files->operand(wanted->second);
    return wanted->precision_for(first.is_double() || second.is_double()) == precision::f32
               ? run_as<float>(*wanted, std::move(first), std::move(second))
               : run_as<double>(*wanted, std::move(first), std::move(second));
  });
}

}  // namespace ballast::tools
