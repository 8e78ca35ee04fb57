// What a benchmark of one problem is made of. Layer: tools, over the public API.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ballast/types.hpp>

namespace ballast::bench {

struct settings {
  ballast::backend backend = ballast::backend::automatic;
  int threads = 0;      // of both sides; never 0 once main has resolved it
  bool peers = false;   // run the rivals, too
  std::string python;   // interpreter for the rivals that live in Python
  std::string scripts;  // where bench/peers/*.py lie
};

// One way to solve the problem. run() solves it once and returns the seconds of the part that is compared.
struct variant {
  std::string name;  // "off" and "correct" are Ballast without and with protection; others are rivals
  std::function<double()> run;
};

// A problem with its data; the variants of one problem share the data.
struct subject {
  std::string token;
  double flops = 0;  // nominal flops of one run, by the field's convention; 0 if there is none
  std::string unit;  // what one run is: "transform", "Lloyd iteration", "factorization"
  std::vector<variant> variants;
};

// Throw ballast::invalid_argument_error if the token is not theirs.
subject make_fft(const std::string& token, const settings& how);
subject make_kmeans(const std::string& token, const settings& how);
subject make_qr(const std::string& token, const settings& how);

}  // namespace ballast::bench
