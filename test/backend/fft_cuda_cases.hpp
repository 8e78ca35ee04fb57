// The problems that the cuda backend's FFT is tested with on the emulator: one list for the program that finds out which kernels they need
// and for the tests that run them.
// Layer: backend tests.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <ballast/fft.hpp>

#include "cuda/device.hpp"
#include "fft/cuda/transform.hpp"
#include "fft/problem.hpp"
#include "inject/plan.hpp"
#include "simt/emulated_device.hpp"

namespace ballast::fft {

// The emulated device. `single` has one multiprocessor, so that its blocks go over several tiles. `small` has so little shared memory that
// lines of more than 64 (f32) or 32 (f64) elements take several passes, having no clusters, and so little memory that what waits between
// them is kept below 1 MB. `clustered` has clusters, which hold lines of more than 256 (f32) or 128 (f64) elements. `paired` is `small`
// with several blocks on a multiprocessor: passes that follow each other are one launch where they can be (on the others never), and
// several blocks run side by side.
enum class machine : std::uint8_t { whole, single, small, clustered, paired };

// Whether short lines already take several passes.
inline bool divides(machine which) { return which == machine::small || which == machine::paired; }

inline ballast::cuda::capabilities capabilities_of(machine which) {
  ballast::cuda::capabilities about = simt::emulated_capabilities(which == machine::single ? 1 : 4);
  if (divides(which)) {
    about.shared_per_block = 8192 + 4 * 64;
    about.shared_per_multiprocessor = which == machine::small ? about.shared_per_block : 4 * about.shared_per_block;
    about.memory = std::int64_t{1} << 28;
    about.major = 8;
  }
  if (which == machine::clustered) {
    about.shared_per_block = 8192 + 4 * 256;
    about.shared_per_multiprocessor = 4 * (about.shared_per_block + 1024);
  }
  return about;
}

inline void choose_pairing(machine which) {
  cuda::override_pairing(which == machine::paired ? cuda::pairing::wherever_possible : cuda::pairing::never);
}

// How else than protected a case is run: without protection; with kernels that faults can be injected into, protected and not; with an
// input that is aligned for one complex number only, or with reals that are aligned for one real only.
enum use : unsigned { k_protected_only = 0, k_bare = 1, k_faults = 2, k_unaligned = 4 };

struct cuda_case {
  const char* token;
  machine where = machine::whole;
  unsigned uses = k_protected_only;
  fft::norm norm = norm::backward;
  layout input = {}, output = {};

  fft::problem problem() const {
    fft::problem made = parse_token(token).problem;
    made.norm = norm;
    made.input = input;
    made.output = output;
    return made;
  }
  fft::direction direction() const { return parse_token(token).direction; }
};

// Batches are no multiples of the lines of a tile where tiles have more than one.
inline const std::vector<cuda_case>& cuda_cases() {
  static const std::vector<cuda_case> cases = {
      // One pass: every radix, powers of two and mixed ones.
      {"fft_c2c_f32_n1_b37_fwd"},
      {"fft_c2c_f64_n2_b75_fwd"},
      {"fft_c2c_f32_n3_b41_fwd"},
      {"fft_c2c_f64_n5_b33_inv"},
      {"fft_c2c_f64_n7_b35_fwd"},
      {"fft_c2c_f32_n11_b34_fwd", machine::whole, k_bare},
      {"fft_c2c_f32_n13_b50_fwd"},
      {"fft_c2c_f32_n17_b33_fwd", machine::whole, k_bare},
      {"fft_c2c_f64_n23_b37_inv"},
      {"fft_c2c_f32_n31_b35_fwd"},
      {"fft_c2c_f32_n437_b3_fwd", machine::whole, k_faults},
      {"fft_c2c_f64_n19x34_b2_fwd"},
      {"fft_c2c_f64_n8_b67_fwd", machine::whole, k_bare},
      {"fft_c2c_f32_n16_b39_inv"},
      {"fft_c2c_f64_n32_b35_fwd", machine::whole, k_bare | k_faults},
      {"fft_c2c_f32_n60_b11_fwd", machine::whole, k_protected_only, norm::ortho},
      {"fft_c2c_f32_n64_b43_fwd", machine::whole, k_bare | k_faults},
      {"fft_c2c_f64_n64_b21_inv"},
      {"fft_c2c_f64_n100_b9_fwd", machine::whole, k_bare | k_faults},
      {"fft_c2c_f64_n1000_b19_fwd", machine::single},
      {"fft_c2c_f32_n1331_b2_fwd"},
      {"fft_c2c_f32_n1024_b5_fwd"},
      {"fft_c2c_f64_n1024_b2_fwd", machine::whole, k_bare},
      {"fft_c2c_f32_n4096_b2_inv"},
      {"fft_c2c_f64_n4096_b1_fwd"},
      {"fft_c2c_f32_n256_b77_fwd", machine::single, k_bare | k_faults | k_unaligned},
      {"fft_c2c_f32_n512_b9_fwd"},
      {"fft_c2c_f32_n128_b21_fwd", machine::whole, k_bare | k_faults},
      // Two and three passes.
      {"fft_c2c_f32_n128_b20_fwd", machine::small, k_faults},
      {"fft_c2c_f32_n1024_b3_fwd", machine::small, k_bare | k_faults},
      {"fft_c2c_f32_n4096_b2_inv", machine::small, k_bare | k_faults},
      {"fft_c2c_f64_n1000_b2_fwd", machine::small},
      {"fft_c2c_f32_n6000_b2_fwd", machine::small},
      {"fft_c2c_f64_n1728_b2_inv", machine::small},
      {"fft_c2c_f64_n1728_b3_fwd", machine::small, k_faults},
      // Convolutions.
      {"fft_c2c_f32_n67_b9_fwd", machine::whole, k_faults},
      {"fft_c2c_f32_n67_b9_inv"},
      {"fft_c2c_f64_n101_b4_fwd"},
      {"fft_c2c_f32_n67_b3_fwd", machine::small},
      {"fft_r2c_f32_n67_b5_fwd"},
      {"fft_c2r_f64_n37_b5_inv"},
      // Real data.
      {"fft_r2c_f32_n64_b19_fwd", machine::whole, k_bare | k_faults | k_unaligned},
      {"fft_r2c_f64_n33_b9_fwd", machine::whole, k_faults},
      {"fft_r2c_f64_n4_b35_fwd"},
      {"fft_r2c_f64_n400_b9_fwd", machine::whole, k_bare | k_faults, norm::ortho},
      {"fft_r2c_f32_n160_b5_fwd", machine::whole, k_bare | k_faults},
      {"fft_r2c_f32_n512_b77_fwd", machine::single, k_bare},
      {"fft_r2c_f32_n1000_b2_fwd", machine::small},
      {"fft_c2r_f32_n90_b7_inv", machine::whole, k_bare | k_faults | k_unaligned},
      {"fft_c2r_f64_n35_b9_inv", machine::whole, k_faults},
      {"fft_c2r_f32_n8_b35_inv"},
      {"fft_c2r_f64_n512_b5_inv", machine::whole, k_bare | k_faults, norm::forward},
      {"fft_c2r_f32_n1000_b2_inv", machine::small},
      // Several axes.
      {"fft_c2c_f32_n20x33_b3_fwd", machine::whole, k_bare},
      {"fft_r2c_f64_n12x18_b3_fwd"},
      {"fft_c2r_f32_n12x18_b3_inv"},
      {"fft_c2c_f64_n6x5x8_b2_inv"},
      {"fft_r2c_f32_n6x5x8_b2_fwd"},
      {"fft_c2r_f64_n6x5x7_b2_inv"},
      // Signals that interleave, and strides.
      {"fft_c2c_f32_n60_b21_fwd", machine::whole, k_protected_only, norm::backward, {{21}, 1}, {{21}, 1}},
      {"fft_c2c_f32_n60_b21_fwd", machine::whole, k_bare, norm::backward, {{2}, 130}, {{40}, 1}},
      {"fft_c2c_f32_n256_b40_fwd", machine::whole, k_bare | k_faults, norm::backward, {{40}, 1}, {{40}, 1}},
      {"fft_c2c_f64_n128_b19_inv", machine::whole, k_protected_only, norm::forward, {{1}, 128}, {{19}, 1}},
      {"fft_c2c_f32_n256_b21_fwd", machine::whole, k_faults, norm::backward, {{21}, 1}, {{1}, 256}},
      {"fft_c2c_f32_n64_b130_fwd", machine::whole, k_protected_only, norm::backward, {{130}, 1}, {{1}, 64}},
      {"fft_c2c_f64_n60_b13_inv", machine::whole, k_protected_only, norm::backward, {{20}, 1}, {{3}, 200}},
      {"fft_c2c_f32_n8_b50_fwd", machine::whole, k_protected_only, norm::backward, {{1}, 9}, {{50}, 1}},
      {"fft_c2c_f32_n512_b5_fwd", machine::small, k_protected_only, norm::backward, {{2}, 1025}, {{5}, 1}},
      {"fft_r2c_f64_n12x20_b3_fwd", machine::whole, k_protected_only, norm::backward, {{25, 1}, 320}, {{2, 30}, 700}},
      // More dimensions than a launch has.
      {"fft_c2c_f32_n2x3x80_b3_fwd", machine::small, k_faults, norm::backward, {{250, 82, 1}, 504}, {{1, 3, 10}, 801}},
      // Lines that clusters of 2, 4, 8 and 16 blocks hold.
      {"fft_c2c_f32_n512_b5_fwd", machine::clustered, k_bare | k_faults},
      {"fft_c2c_f64_n512_b3_inv", machine::clustered, k_bare | k_faults},
      {"fft_c2c_f32_n2048_b7_fwd", machine::clustered, k_bare | k_faults},
      {"fft_c2c_f32_n4096_b2_fwd", machine::clustered, k_bare | k_faults, norm::ortho},
      {"fft_c2c_f64_n256_b7_fwd", machine::clustered, k_bare | k_faults},
      {"fft_c2c_f64_n1024_b3_inv", machine::clustered, k_bare | k_faults, norm::forward},
      {"fft_c2c_f64_n2048_b2_fwd", machine::clustered, k_bare | k_faults},
      {"fft_c2c_f32_n576_b3_fwd", machine::clustered, k_faults},
      {"fft_c2c_f64_n720_b2_inv", machine::clustered},
      {"fft_r2c_f32_n1024_b5_fwd", machine::clustered, k_bare | k_faults},
      {"fft_r2c_f64_n4096_b2_fwd", machine::clustered, k_bare | k_faults},
      {"fft_r2c_f32_n1152_b3_fwd", machine::clustered, k_bare},
      {"fft_c2r_f64_n512_b5_inv", machine::clustered, k_bare | k_faults},
      {"fft_c2r_f32_n4096_b3_inv", machine::clustered, k_bare},
      // Two passes in one launch: two of two, of one that is in place, of two and of real data and of a convolution, the last two of three,
      // two axes; batches below and beyond what the ring holds.
      {"fft_c2c_f32_n1024_b1_fwd", machine::paired, k_bare},
      {"fft_c2c_f32_n1024_b2_fwd", machine::paired},
      {"fft_c2r_f32_n12x18_b1_inv", machine::paired},
      {"fft_c2c_f64_n1728_b1_fwd", machine::paired},
      {"fft_c2c_f32_n1024_b19_inv", machine::paired, k_bare | k_faults},
      {"fft_c2c_f32_n128_b300_fwd", machine::paired},
      {"fft_c2c_f64_n1000_b7_fwd", machine::paired, k_bare | k_faults},
      {"fft_c2c_f32_n6000_b3_fwd", machine::paired, k_bare},
      {"fft_c2c_f64_n1728_b3_inv", machine::paired, k_bare},
      {"fft_c2c_f32_n67_b150_fwd", machine::paired, k_faults},
      {"fft_c2c_f32_n8192_b2_fwd", machine::paired, k_faults},
      {"fft_r2c_f32_n1024_b12_fwd", machine::paired},
      {"fft_c2r_f32_n1024_b12_inv", machine::paired},
      {"fft_c2c_f32_n20x33_b13_fwd", machine::paired, k_bare | k_faults},
      {"fft_r2c_f64_n12x18_b23_fwd", machine::paired, k_faults},
      {"fft_c2r_f32_n12x18_b23_inv", machine::paired, k_faults},
      {"fft_c2c_f64_n6x5x8_b7_inv", machine::paired},
      {"fft_r2c_f32_n6x5x8_b7_fwd", machine::paired},
      {"fft_c2c_f32_n512_b9_fwd", machine::paired, k_protected_only, norm::backward, {{2}, 1025}, {{9}, 1}},
      {"fft_c2c_f32_n512_b9_fwd", machine::paired, k_protected_only, norm::backward, {{9}, 1}, {{9}, 1}},
      // A batch in three chunks.
      {"fft_c2c_f32_n4096_b70_fwd", machine::small, k_faults},
  };
  return cases;
}

// Strides with which a real and a complex side share memory.
inline fft::problem padded_rows(fft::problem p) {
  const std::int64_t half = p.shape.back() / 2 + 1;
  layout real{std::vector<std::int64_t>(p.shape.size(), 1)}, complex = real;
  std::int64_t stride = half;
  for (std::size_t axis = p.shape.size() - 1; axis-- > 0; stride *= p.shape[axis]) {
    complex.strides[axis] = stride;
    real.strides[axis] = 2 * stride;
  }
  real.distance = 2 * stride;
  complex.distance = stride;
  p.input = p.kind == kind::r2c ? real : complex;
  p.output = p.kind == kind::r2c ? complex : real;
  return p;
}

// Runs before anything else in both programs: the tuning table beside this file instead of the user's own.
inline void use_own_tuning() { setenv("BALLAST_CACHE_DIR", BALLAST_TEST_DIR "/backend/fft_cuda_tuning", 1); }

}  // namespace ballast::fft
