// One case of a stage that verifies: a row of type "check", printed when the case ends.
// Layer: gpu-check, for all algorithms.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "output.hpp"
#include "stages.hpp"

namespace ballast::gpu_check {

struct tally {
  int failed = 0;
  int skipped = 0;
};

// A failure states what was wrong.
class one_case {
 public:
  one_case(tally& seen, std::string_view group, std::string_view token, std::string_view manner) : seen_(seen), line_("check") {
    line_.add("group", group).add("token", token).add("manner", manner);
  }
  one_case(const one_case&) = delete;
  one_case& operator=(const one_case&) = delete;
  ~one_case() {
    line_.add("seconds", -clock_.left()).add("pass", wrong_.empty());
    if (!wrong_.empty()) {
      line_.add("wrong", wrong_);
      ++seen_.failed;
    }
    line_.print();
  }
  row& line() { return line_; }
  void fail(const std::string& what) { wrong_ += (wrong_.empty() ? "" : "; ") + what; }
  void expect(bool holds, const std::string& what) {
    if (!holds) fail(what);
  }
  // Runs a body; an exception fails the case.
  template <class Body>
  void guarded(const Body& body) {
    try {
      body();
    } catch (const std::exception& e) {
      fail(e.what());
    }
  }

 private:
  tally& seen_;
  row line_;
  std::string wrong_;
  time_limit clock_{0};
};

}  // namespace ballast::gpu_check
