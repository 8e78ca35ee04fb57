// Computes one problem on the host and prints its report: skeleton TOKEN [FAULT]. FAULT is what the command takes as --inject, for instance
// site=skeleton.partial,model=bit_flip,bit=60. Returns 0 if the sums are right.
#include <cstdio>
#include <exception>
#include <vector>

#include "inject/active.hpp"
#include "inject/plan.hpp"
#include "skeleton/plan.hpp"

int main(int count, char** words) {
  using namespace ballast;
  try {
    const skeleton::problem size = skeleton::parse_token(count > 1 ? words[1] : "");
    inject::plan faults;
    if (count > 2) faults.add(inject::parse_request(words[2]));
    const std::vector<double> x(static_cast<std::size_t>(size.m * size.n), 3.0);
    std::vector<double> y(static_cast<std::size_t>(size.m));
    const inject::scope inside(&faults);
    const report seen = skeleton::plan(size).sum(x.data(), y.data());
    std::puts(to_json(seen).c_str());
    return y == std::vector<double>(y.size(), 3.0 * static_cast<double>(size.n)) ? 0 : 1;
  } catch (const std::exception& wrong) {
    std::fprintf(stderr, "%s\n", wrong.what());
    return 2;
  }
}
