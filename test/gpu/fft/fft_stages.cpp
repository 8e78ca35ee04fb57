// The FFT as an algorithm of gpu-check.
#include "fft_stages.hpp"

#include <ballast/error.hpp>

#include "../../strike/subjects/subject.hpp"
#include "algorithm.hpp"
#include "fft/problem.hpp"
#include "output.hpp"
#include "problems.hpp"

namespace ballast::gpu_check {
namespace {

// Throws invalid_argument_error unless `token` is that of a transform or of a convolution.
void check_subject(std::string_view token) { convolves(token) ? check_kind_token(token) : (void)fft::parse_token(token); }

void list(const settings& wanted) {
  const auto print = [](const char* stage, const std::vector<std::string>& tokens) {
    for (const std::string& token : tokens) {
      check_subject(strike::parse_subject(token).token);
      row("problem").add("stage", stage).add("token", token).print();
    }
  };
  print("accuracy", accuracy_set(wanted.quick));
  print("faults", fault_set(wanted.quick));
  print("huge", huge_set());
  print("sanitize", sanitizer_set());
  print("strike", strike_set(wanted.quick));
  std::vector<std::string> timed;
  for (const timed_problem& each : benchmark_set(wanted.quick)) timed.push_back(each.token);
  print("bench", timed);
  for (const std::string& token : kinds_set(wanted.quick)) {
    check_kind_token(token);
    row("problem").add("stage", "kinds").add("token", token).print();
  }
}

void record_subject(test::recording_device& on, const std::string& name) {
  settings only;
  const strike::subject_name parsed = strike::parse_subject(name);
  if (parsed.operation == "convolve") {
    if (record_convolution(parsed.token) > 0) throw error("a convolution of the stage strike was refused: " + name);
    return;
  }
  only.tokens = {parsed.token};
  only.schemes = {parsed.scheme.empty() ? "offline" : parsed.scheme};  // offline: only the default scheme
  if (record_fft(on, only) > 0) throw error("a problem of the stage strike was refused: " + name);
}

}  // namespace

const algorithm& fft_algorithm() {
  static const algorithm made = {
      .name = "fft",
      .stages = {{"verify", verify},
                 {"sanitize", sanitize},
                 {"bench", bench},
                 {"repairs", repairs},
                 {"heatmap", heatmap},
                 {"first_calls", first_calls},
                 {"kinds", kinds},
                 {"tune", tune}},
      .record = [](test::recording_device& on,
                   const settings& wanted) { return wanted.only_kinds() ? record_fft_kinds(on, wanted) : record_fft(on, wanted); },
      .list = list,
      .check_token =
          [](std::string_view text, std::string_view stage) {
            stage == "kinds" ? check_kind_token(text) : stage == "strike" ? check_subject(text) : (void)fft::parse_token(text);
          },
      .strike_set = strike_set,
      .record_subject = record_subject};
  return made;
}

}  // namespace ballast::gpu_check
