// Kernels of the production library contain no trace of fault injection: their code equals that of sources without the hooks.
#include <cctype>
#include <limits>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/jit/embedded.hpp"
#include "cuda/jit/nvrtc.hpp"
#include "fft/cuda/plan/kernels.hpp"
#include "fft/cuda/plan/schedule.hpp"
#include "fft/problem.hpp"
#include "unit/cuda_fft_devices.hpp"

namespace ballast::fft::cuda {
namespace {

// Returns the sources without the calls of strike(index<…>{}, …); `removed` counts the calls.
std::vector<std::string> without_strikes(std::span<const ballast::cuda::nvrtc::source> sources, int& removed) {
  std::vector<std::string> made;
  for (const auto& each : sources) {
    std::string text = each.text;
    for (std::size_t at = text.find("strike(index<"); at != std::string::npos; at = text.find("strike(index<", at)) {
      std::size_t end = text.find('(', at);
      int depth = 0;
      do {
        depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
        ++end;
      } while (depth != 0);
      // Back to the start of the statement: `this->strike(…)`, `given.strike(…)`.
      std::size_t start = at;
      while (std::isalnum(static_cast<unsigned char>(text[start - 1])) != 0 ||
             std::string_view("._->").find(text[start - 1]) != std::string_view::npos)
        --start;
      if (text[end] == ';') {
        text.replace(start, end - start, "static_cast<void>(0)");
        ++removed;
        at = start;
      } else {
        at = end;
      }
    }
    made.push_back(std::move(text));
  }
  return made;
}

// This is the first test of the program (see CMakeLists.txt): NVRTC 13.0 has crashed internally after many allocations.
TEST(cuda_fft_injection, leaves_no_trace_in_kernels_of_the_production_library) {
  const auto* const compiler = ballast::cuda::nvrtc::find(std::numeric_limits<int>::max());
  if (compiler == nullptr) GTEST_SKIP() << ballast::cuda::nvrtc::why_not_found(std::numeric_limits<int>::max());
  const auto sources = ballast::cuda::embedded_sources();
  int removed = 0;
  const auto texts = without_strikes(sources, removed);
  EXPECT_GE(removed, 8) << "every site of the FFT and the log";
  std::vector<ballast::cuda::nvrtc::source> bare;
  for (std::size_t i = 0; i < sources.size(); ++i) bare.push_back({sources[i].name, texts[i].c_str()});
  const tuning_table rules;
  schedule_request wanted;
  wanted.shape = resolve({.shape = {1 << 15}, .batch = 2});
  wanted.check = check_form::verify_before_store;
  wanted.tuned = &rules;
  const schedule made = make_schedule(wanted, ampere());
  ASSERT_EQ(made.passes.size(), 2u);
  // The first pass has stages, twiddle factors after them and every check.
  const line_policy& policy = made.passes.front().policy;
  ASSERT_EQ(policy.store_factor, factor_form::separated);
  const auto compiled = [&](bool instrumented, const char* architecture, std::span<const ballast::cuda::nvrtc::source> from) {
    const auto request = kernel_for(policy, instrumented);
    return compiler->compile(request.header, request.expression, architecture, from);
  };
  // Count operations without their types: the compiler may write x > y as !(x ≤ y).
  const auto operations = [](const std::string& ptx) {
    std::map<std::string, int> count;
    std::istringstream lines(ptx);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string word;
      words >> word;
      if (word.starts_with('@')) words >> word;  // a predicate
      if (!word.empty() && std::isalpha(static_cast<unsigned char>(word.front())) != 0) ++count[word.substr(0, word.find('.'))];
    }
    return count;
  };
  const auto production = compiled(false, "compute_80", sources);
  EXPECT_EQ(operations(production.image), operations(compiled(false, "compute_80", bare).image)) << "the hook must vanish";
  EXPECT_EQ(compiled(false, "sm_80", sources).uses, compiled(false, "sm_80", bare).uses);
  const auto instrumented = compiled(true, "compute_80", sources);
  EXPECT_NE(operations(instrumented.image), operations(compiled(true, "compute_80", bare).image))
      << "or the comparison would prove nothing";
}

}  // namespace
}  // namespace ballast::fft::cuda
