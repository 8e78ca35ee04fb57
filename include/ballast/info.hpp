// What this build is and what it can do on this machine.
// Layer: interface.
#pragma once

#include <string>
#include <vector>

#include <ballast/types.hpp>

namespace ballast {

// A place where a fault can be injected.
struct site_information {
  std::string operation;  // "fft", "kmeans" or "qr"
  std::string name;       // for instance "fft.stage"
  bool data = true;       // true: a fault here reaches the output when protection is off. false: it hits the protection itself
  std::string description;
};

struct library_information {
  std::string version;
  std::vector<backend> backends;     // what can run here
  std::vector<std::string> devices;  // accelerators; empty without any
  std::string simd;                  // the instruction set that the cpu backend uses here
  std::string blas;                  // the BLAS behind QR, in its own words
  int threads = 0;                   // what execution::threads = 0 means here
  bool instrumented = false;         // true in the library that can inject faults
  std::vector<site_information> sites;
  std::vector<std::string> models;  // fault models
};

BALLAST_API library_information information();

}  // namespace ballast
