// The parts of a benchmark: settings, the problem (subject), and the ways to solve it (variants).
// Layer: tools, over the public API.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ballast/types.hpp>

namespace ballast::bench {

struct settings {
  ballast::backend backend = ballast::backend::automatic;
  int threads = 0;      // threads of Ballast and of the rivals; main replaces 0 by the number of cores
  bool peers = false;   // true: run the rivals, too
  std::string python;   // the interpreter for rivals in Python
  std::string scripts;  // the folder bench/peers
  std::string rivals;   // an environment of Python with MKL, DUCC and SciPy; empty: none
};

// One way to solve the problem. run() solves it once, and returns the seconds of the compared part.
struct variant {
  std::string name;  // "off" and "correct" are Ballast without and with protection; others are rivals
  std::function<double()> run;
};

// A problem with its data; the variants of one problem share the data.
struct subject {
  std::string token;
  double flops = 0;  // nominal flops of one run, by the convention of the field; 0 without a convention
  std::string unit;  // the unit of one run: "batch", "Lloyd iteration", "factorization"
  std::vector<variant> variants;
  std::int64_t bytes = 0;                      // the bytes of input and output together; 0 without a floor
  ballast::precision type = precision::f32;    // precision of the floor
  std::map<std::string, std::string> missing;  // rivals that are not compared, with the reason
};

// Throw ballast::invalid_argument_error if the token belongs to another algorithm.
subject make_fft(const std::string& token, const settings& how);
subject make_kmeans(const std::string& token, const settings& how);
subject make_qr(const std::string& token, const settings& how);
// geqp3_… is qr_… with column pivoting, gelsy_… the least-squares solution of least norm for one right-hand side.
subject make_geqp3(const std::string& token, const settings& how);
subject make_gelsy(const std::string& token, const settings& how);
// convolve_… and correlate_…
subject make_convolution(const std::string& token, const settings& how);

}  // namespace ballast::bench
