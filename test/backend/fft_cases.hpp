// The problems that the FFT's backends are tested with. small_cases() are small: the generator (fft_cuda_kernels.cpp) makes the kernels
// for them, and every backend runs them. host_cases() are more: the emulator runs those that need no other kernels.
// Layer: backend tests.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ballast/fft.hpp>

#include "fft/problem.hpp"
#include "support/effort.hpp"

namespace ballast::fft {

// The emulated device of a case (fft_emulator.hpp); the backends of the host have no use for it. `single` has one multiprocessor, so that a
// block processes several tiles. `small` has little shared memory and no clusters: lines of more than 64 (f32) or 32 (f64) elements take
// several passes; and little memory: what waits between passes stays below 1 MB. `clustered` holds lines of more than 256 (f32) or 128
// (f64) elements in clusters. `paired` is `small` with several blocks on a multiprocessor: two passes are one launch wherever that is
// possible (never on the others), and several blocks run side by side. `fallback` has no kernels but the fallback kernels,
// which its plans must allow.
enum class machine : std::uint8_t { whole, single, small, clustered, paired, fallback };

// In which further ways the emulator runs a case; each needs kernels of its own. k_bare: without protection. k_faults: with kernels that
// faults can be injected into, protected and not; the cpu backend is struck in these cases, too. k_unaligned: with an input that is aligned
// for one complex number only, or with reals that are aligned for one real only. k_smoke, k_sample: the emulator runs the case also with
// little effort (support/effort.hpp), k_sample from effort sample on.
enum use : unsigned { k_protected_only = 0, k_bare = 1, k_faults = 2, k_unaligned = 4, k_smoke = 8, k_sample = 16 };

struct fft_case {
  std::string token = {};
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
  fft::options options() const { return {where == machine::fallback ? kernels::fallback_at_first : kernels::own}; }
  bool strided() const { return !input.strides.empty() || !output.strides.empty(); }
};

// As a part of a test's name: letters, digits and underscores. Layouts follow as the strides and the distance of each side.
inline std::string name_of(const fft_case& each) {
  constexpr const char* machines[] = {"", "_single", "_small", "_clustered", "_paired", "_fallback"};
  constexpr const char* norms[] = {"", "_ortho", "_forward"};
  std::string name = each.token + machines[static_cast<int>(each.where)] + norms[static_cast<int>(each.norm)];
  if (!each.strided()) return name;
  const auto add = [&](const char* side, const layout& of) {
    if (of.strides.empty()) return;
    name += side;
    for (const std::int64_t stride : of.strides) name += '_' + std::to_string(stride);
    name += "_d" + std::to_string(of.distance);
  };
  add("_in", each.input);
  add("_out", each.output);
  return name;
}

// If a tile has several lines, the batch is no multiple of that number.
inline std::vector<fft_case> small_cases_of_blocks() {
  return {
      // One pass: every radix, powers of two and mixed ones.
      {"fft_c2c_f32_n1_b37_fwd", machine::whole, k_sample},
      {"fft_c2c_f64_n2_b75_fwd"},
      {"fft_c2c_f32_n3_b41_fwd", machine::whole, k_smoke},
      {"fft_c2c_f64_n5_b33_inv"},
      {"fft_c2c_f64_n7_b35_fwd", machine::whole, k_sample},
      {"fft_c2c_f32_n11_b34_fwd", machine::whole, k_bare},
      {"fft_c2c_f32_n13_b50_fwd"},
      {"fft_c2c_f32_n17_b33_fwd", machine::whole, k_bare},
      {"fft_c2c_f64_n23_b37_inv"},
      // By the definition.
      {"fft_c2c_f32_n37_b43_fwd", machine::whole, k_bare | k_faults | k_smoke},
      {"fft_c2c_f64_n29_b21_inv", machine::single, k_bare | k_faults | k_sample},
      {"fft_c2c_f32_n127_b19_inv"},
      {"fft_r2c_f32_n53_b9_fwd", machine::whole, k_sample},
      {"fft_c2r_f64_n41_b12_inv"},
      {"fft_c2c_f32_n111_b7_fwd", machine::whole, k_bare | k_faults | k_sample},
      {"fft_c2c_f64_n232x6_b1_inv"},
      {"fft_c2c_f32_n31_b35_fwd", machine::whole, k_sample},
      {"fft_c2c_f32_n437_b3_fwd", machine::whole, k_faults | k_sample},
      {"fft_c2c_f64_n19x34_b2_fwd"},
      {"fft_c2c_f64_n8_b67_fwd", machine::whole, k_bare},
      {"fft_c2c_f32_n16_b39_inv"},
      {"fft_c2c_f64_n32_b35_fwd", machine::whole, k_bare | k_faults | k_smoke},
      {"fft_c2c_f32_n60_b11_fwd", machine::whole, k_sample, norm::ortho},
      {"fft_c2c_f32_n64_b43_fwd", machine::whole, k_bare | k_faults | k_smoke},
      {"fft_c2c_f64_n64_b21_inv"},
      {"fft_c2c_f64_n100_b9_fwd", machine::whole, k_bare | k_faults | k_smoke},
      {"fft_c2c_f64_n1000_b19_fwd", machine::single},
      // Some threads have fewer first butterflies than others. The second case copies its tiles ahead.
      {"fft_c2c_f32_n200_b9_fwd", machine::whole, k_bare | k_faults | k_smoke},
      {"fft_c2c_f64_n200_b19_inv", machine::single, k_faults | k_sample},
      {"fft_c2c_f32_n1331_b2_fwd", machine::whole, k_smoke},
      {"fft_c2c_f32_n1024_b5_fwd"},
      {"fft_c2c_f64_n1024_b2_fwd", machine::whole, k_bare},
      {"fft_c2c_f32_n4096_b2_inv"},
      {"fft_c2c_f64_n4096_b1_fwd"},
      {"fft_c2c_f32_n256_b77_fwd", machine::single, k_bare | k_faults | k_unaligned | k_smoke},
      {"fft_c2c_f32_n512_b9_fwd"},
      {"fft_c2c_f32_n128_b21_fwd", machine::whole, k_bare | k_faults},
      // Two and three passes.
      {"fft_c2c_f32_n128_b20_fwd", machine::small, k_faults | k_sample},
      {"fft_c2c_f32_n1024_b3_fwd", machine::small, k_bare | k_faults | k_smoke},
      {"fft_c2c_f32_n4096_b2_inv", machine::small, k_bare | k_faults},
      {"fft_c2c_f64_n1000_b2_fwd", machine::small},
      {"fft_c2c_f32_n6000_b2_fwd", machine::small, k_sample},
      {"fft_c2c_f64_n1728_b2_inv", machine::small},
      {"fft_c2c_f64_n1728_b3_fwd", machine::small, k_faults},
      {"fft_c2c_f32_n768_b2_fwd", machine::small, k_bare | k_faults | k_sample},
      // Convolutions.
      {"fft_c2c_f32_n131_b9_fwd", machine::whole, k_faults | k_sample},
      {"fft_c2c_f32_n131_b9_inv"},
      {"fft_c2c_f64_n137_b4_fwd", machine::whole, k_sample},
      {"fft_c2c_f32_n131_b3_fwd", machine::small, k_smoke},
      {"fft_r2c_f32_n131_b5_fwd", machine::whole, k_sample},
      {"fft_c2r_f64_n139_b5_inv"},
      // Real data.
      {"fft_r2c_f32_n64_b19_fwd", machine::whole, k_bare | k_faults | k_unaligned | k_smoke},
      {"fft_r2c_f64_n33_b9_fwd", machine::whole, k_faults | k_sample},
      {"fft_r2c_f64_n4_b35_fwd"},
      {"fft_r2c_f64_n400_b9_fwd", machine::whole, k_bare | k_faults, norm::ortho},
      {"fft_r2c_f32_n160_b5_fwd", machine::whole, k_bare | k_faults},
      {"fft_r2c_f32_n512_b77_fwd", machine::single, k_bare},
      {"fft_r2c_f32_n1000_b2_fwd", machine::small, k_sample},
      {"fft_c2r_f32_n90_b7_inv", machine::whole, k_bare | k_faults | k_unaligned | k_smoke},
      {"fft_c2r_f64_n35_b9_inv", machine::whole, k_faults | k_sample},
      {"fft_c2r_f32_n400_b5_inv", machine::whole, k_faults | k_sample},
      {"fft_c2r_f32_n8_b35_inv"},
      {"fft_c2r_f64_n512_b5_inv", machine::whole, k_bare | k_faults | k_smoke, norm::forward},
      {"fft_c2r_f32_n1000_b2_inv", machine::small},
      // Several axes.
      {"fft_c2c_f32_n20x33_b3_fwd", machine::whole, k_bare | k_sample},
      {"fft_r2c_f64_n12x18_b3_fwd"},
      {"fft_c2r_f32_n12x18_b3_inv", machine::whole, k_sample},
      {"fft_c2c_f64_n6x5x8_b2_inv"},
      {"fft_r2c_f32_n6x5x8_b2_fwd", machine::whole, k_sample},
      {"fft_c2r_f64_n6x5x7_b2_inv"},
      // Axes of two passes whose lines lie side by side, in the output and in the workspace.
      {"fft_c2c_f32_n256x20_b2_fwd", machine::small, k_bare | k_faults | k_smoke},
      {"fft_c2c_f64_n6x144x9_b2_inv", machine::small, k_bare | k_faults | k_sample},
      {"fft_r2c_f32_n160x30_b3_fwd", machine::small, k_sample},
      {"fft_c2r_f64_n128x18_b2_inv", machine::small},
      // Signals that interleave, and strides.
      {"fft_c2c_f32_n60_b21_fwd", machine::whole, k_protected_only, norm::backward, {{21}, 1}, {{21}, 1}},
      {"fft_c2c_f32_n60_b21_fwd", machine::whole, k_bare | k_sample, norm::backward, {{2}, 130}, {{40}, 1}},
      {"fft_c2c_f32_n256_b40_fwd", machine::whole, k_bare | k_faults, norm::backward, {{40}, 1}, {{40}, 1}},
      {"fft_c2c_f64_n128_b19_inv", machine::whole, k_protected_only, norm::forward, {{1}, 128}, {{19}, 1}},
      {"fft_c2c_f32_n256_b21_fwd", machine::whole, k_faults | k_sample, norm::backward, {{21}, 1}, {{1}, 256}},
      {"fft_c2c_f32_n64_b130_fwd", machine::whole, k_protected_only, norm::backward, {{130}, 1}, {{1}, 64}},
      {"fft_c2c_f64_n60_b13_inv", machine::whole, k_protected_only, norm::backward, {{20}, 1}, {{3}, 200}},
      {"fft_c2c_f32_n8_b50_fwd", machine::whole, k_sample, norm::backward, {{1}, 9}, {{50}, 1}},
      {"fft_c2c_f32_n512_b5_fwd", machine::small, k_sample, norm::backward, {{2}, 1025}, {{5}, 1}},
      {"fft_r2c_f64_n12x20_b3_fwd", machine::whole, k_sample, norm::backward, {{25, 1}, 320}, {{2, 30}, 700}},
      // More dimensions than a launch has.
      {"fft_c2c_f32_n2x3x80_b3_fwd", machine::small, k_faults | k_sample, norm::backward, {{250, 82, 1}, 504}, {{1, 3, 10}, 801}},
  };
}
inline std::vector<fft_case> small_cases_of_several_blocks() {
  return {
      // Lines that clusters of 2, 4, 8 and 16 blocks hold.
      {"fft_c2c_f32_n512_b5_fwd", machine::clustered, k_bare | k_faults | k_smoke},
      {"fft_c2c_f64_n512_b3_inv", machine::clustered, k_bare | k_faults | k_smoke},
      {"fft_c2c_f32_n2048_b7_fwd", machine::clustered, k_bare | k_faults},
      {"fft_c2c_f32_n4096_b2_fwd", machine::clustered, k_bare | k_faults | k_sample, norm::ortho},
      {"fft_c2c_f64_n256_b7_fwd", machine::clustered, k_bare | k_faults},
      {"fft_c2c_f64_n1024_b3_inv", machine::clustered, k_bare | k_faults, norm::forward},
      {"fft_c2c_f64_n2048_b2_fwd", machine::clustered, k_bare | k_faults},
      {"fft_c2c_f32_n576_b3_fwd", machine::clustered, k_faults},
      {"fft_c2c_f64_n720_b2_inv", machine::clustered, k_sample},
      {"fft_r2c_f32_n1024_b5_fwd", machine::clustered, k_bare | k_faults | k_sample},
      {"fft_r2c_f64_n4096_b2_fwd", machine::clustered, k_bare | k_faults},
      {"fft_r2c_f32_n1152_b3_fwd", machine::clustered, k_bare},
      {"fft_c2r_f64_n512_b5_inv", machine::clustered, k_bare | k_faults | k_sample},
      {"fft_c2r_f32_n4096_b3_inv", machine::clustered, k_bare},
      // Two passes in one launch: of two passes, in place, of real data, of a convolution, the last two of three, two axes. Batches are
      // smaller and larger than what the ring holds.
      {"fft_c2c_f32_n1024_b1_fwd", machine::paired, k_bare},
      {"fft_c2c_f32_n1024_b2_fwd", machine::paired},
      {"fft_c2r_f32_n12x18_b1_inv", machine::paired},
      {"fft_c2c_f64_n1728_b1_fwd", machine::paired},
      {"fft_c2c_f32_n1024_b19_inv", machine::paired, k_bare | k_faults | k_smoke},
      {"fft_c2c_f32_n128_b300_fwd", machine::paired, k_smoke},
      {"fft_c2c_f64_n1000_b7_fwd", machine::paired, k_bare | k_faults},
      {"fft_c2c_f32_n6000_b3_fwd", machine::paired, k_bare | k_sample},
      {"fft_c2c_f64_n1728_b3_inv", machine::paired, k_bare},
      {"fft_c2c_f32_n131_b70_fwd", machine::paired, k_faults | k_sample},
      {"fft_c2c_f32_n8192_b2_fwd", machine::paired, k_faults},
      {"fft_r2c_f32_n1024_b12_fwd", machine::paired, k_sample},
      {"fft_c2r_f32_n1024_b12_inv", machine::paired, k_sample},
      {"fft_c2c_f32_n20x33_b13_fwd", machine::paired, k_bare | k_faults},
      {"fft_r2c_f64_n12x18_b23_fwd", machine::paired, k_faults | k_sample},
      {"fft_c2r_f32_n12x18_b23_inv", machine::paired, k_faults},
      {"fft_c2c_f64_n6x5x8_b7_inv", machine::paired, k_sample},
      {"fft_r2c_f32_n6x5x8_b7_fwd", machine::paired},
      {"fft_c2c_f32_n512_b9_fwd", machine::paired, k_protected_only, norm::backward, {{2}, 1025}, {{9}, 1}},
      {"fft_c2c_f32_n512_b9_fwd", machine::paired, k_sample, norm::backward, {{9}, 1}, {{9}, 1}},
      // By fallback kernels: as they are, padded to a convolution, of one, two and three passes, of every kind, with and without strides.
      {"fft_c2c_f32_n64_b21_fwd", machine::fallback, k_bare | k_faults | k_smoke},
      {"fft_c2c_f64_n16_b35_inv", machine::fallback, k_bare, norm::forward},
      {"fft_c2c_f32_n60_b21_fwd", machine::fallback, k_protected_only, norm::ortho, {{2}, 130}, {{40}, 1}},
      {"fft_c2c_f64_n35_b9_inv", machine::fallback, k_bare | k_faults | k_sample},
      {"fft_r2c_f32_n100_b9_fwd", machine::fallback, k_bare | k_faults},
      {"fft_c2r_f64_n24_b19_inv", machine::fallback, k_bare | k_faults | k_sample},
      {"fft_r2c_f64_n64_b9_fwd", machine::fallback},
      {"fft_c2r_f32_n64_b9_inv", machine::fallback, k_bare | k_sample},
      {"fft_r2c_f64_n12x20_b3_fwd", machine::fallback, k_sample, norm::backward, {{25, 1}, 320}, {{2, 30}, 700}},
      {"fft_c2c_f32_n6x5x8_b2_inv", machine::fallback, k_bare},
      {"fft_c2c_f32_n4096_b3_fwd", machine::fallback, k_bare | k_faults},
      {"fft_c2c_f64_n1000_b2_fwd", machine::fallback, k_sample},
      {"fft_c2r_f32_n1001_b2_inv", machine::fallback},
      {"fft_r2c_f64_n2048_b2_fwd", machine::fallback, k_bare},
      {"fft_c2c_f32_n512_b5_fwd", machine::fallback},
      {"fft_c2c_f64_n1024_b3_inv", machine::fallback},
      // A batch in three chunks.
      {"fft_c2c_f32_n4096_b70_fwd", machine::small, k_faults | k_smoke},
  };
}
inline const std::vector<fft_case>& small_cases() {
  static const std::vector<fft_case> cases = [] {
    std::vector<fft_case> made = small_cases_of_blocks();
    for (fft_case& each : small_cases_of_several_blocks()) made.push_back(std::move(each));
    return made;
  }();
  return cases;
}

// The cases whose kernels are compiled for the emulator: with effort wide and full all, with sample those that are marked so, with smoke
// those of the tests that need certain cases.
inline const std::vector<fft_case>& emulated_cases() {
  static const std::vector<fft_case> cases = [] {
    const unsigned needed = test::chosen_effort() >= test::effort::wide     ? 0U
                            : test::chosen_effort() == test::effort::sample ? unsigned{k_smoke | k_sample}
                                                                            : unsigned{k_smoke};
    std::vector<fft_case> made = small_cases();
    std::erase_if(made, [&](const fft_case& each) { return needed != 0 && (each.uses & needed) == 0; });
    return made;
  }();
  return cases;
}

// In both precisions every kind, one to three axes, lengths of every class, strides; complex data also in both directions and with every
// norm.
inline const std::vector<fft_case>& host_cases() {
  static const std::vector<fft_case> cases = [] {
    std::vector<fft_case> made;
    const auto add = [&](kind what, const std::string& type, const std::string& shape, fft_case each) {
      const std::string name = what == kind::c2c ? "fft_c2c_" : what == kind::r2c ? "fft_r2c_" : "fft_c2r_";
      for (const char* way : {"_fwd", "_inv"}) {
        if (what == (way[1] == 'f' ? kind::c2r : kind::r2c)) continue;
        each.token = name + type + "_n" + shape + way;
        made.push_back(each);
      }
    };
    for (const char* type : {"f32", "f64"}) {
      for (const char* shape : {"1_b3",     "2_b5",     "7_b20",      "8_b40",       "30_b17",     "64_b33",    "101_b9",      "360_b18",
                                "1000_b3",  "4096_b5",  "8192_b2",    "6000_b2",     "6250_b2",    "8x8_b5",    "33x20_b3",    "20x33_b2",
                                "64x96_b2", "1x40_b3",  "40x1_b3",    "17x5x12_b2",  "6x34x18_b2", "3x1x20_b2", "16x32x64_b1", "2x3x7_b4",
                                "5001_b2",  "398_b9",   "211_b9",     "526_b3",      "12_b40",     "4_b100",    "15_b70",      "50_b37",
                                "16x32_b5", "32x35_b3", "8x16x37_b2", "45x48x17_b1", "64x36x16_b1"}) {
        for (const norm factor : {norm::backward, norm::ortho, norm::forward}) add(kind::c2c, type, shape, {.norm = factor});
        add(kind::r2c, type, shape, {});
        add(kind::c2r, type, shape, {});
      }
      for (const kind what : {kind::c2c, kind::r2c, kind::c2r}) {
        add(what, type, "60_b21", {.input = {{1}, 64}, .output = {{3}, 200}});
        add(what, type, "60_b21", {.input = {{21}, 1}, .output = {{21}, 1}});
        add(what, type, "60_b21", {.input = {{2}, 130}, .output = {{40}, 1}});
        add(what, type, "9000_b2", {.input = {{2}, 18001}, .output = {{3}, 27001}});
        add(what, type, "9000_b2", {.input = {{1}, 9000}, .output = {{2}, 1}});
        add(what, type, "12x20_b3", {.input = {{25, 1}, 320}, .output = {{2, 30}, 700}});
        add(what, type, "5x12x20_b2", {.input = {{300, 25, 1}, 1600}, .output = {{1, 6, 80}, 1700}});
        add(what, type, "16x32_b3", {.input = {{40, 1}, 700}, .output = {{35, 1}, 600}});
        add(what, type, "4x16x20_b2", {.input = {{340, 21, 1}, 1600}, .output = {{400, 24, 1}, 1700}});
        add(what, type, "67_b20", {.input = {{20}, 1}, .output = {{1}, 67}});
        add(what, type, "10007_b1", {.input = {{2}, 0}, .output = {{1}, 0}});
      }
    }
    return made;
  }();
  return cases;
}

// The cases in which the backends of the host are struck by every fault, in both precisions.
// With effort full all of them in both precisions, otherwise each in one.
inline const std::vector<fft_case>& host_fault_cases() {
  static const std::vector<fft_case> cases = [] {
    std::vector<fft_case> made;
    int number = 0;
    const auto add = [&](const std::string& kind, const std::string& rest) {
      const bool odd = number++ % 2 == 1;
      for (const std::string type : {"f32", "f64"}) {
        if (!test::sampled() || (type == "f64") == odd)
          made.push_back({"fft_" + kind + "_" + type + "_n" + rest, machine::whole, k_faults});
      }
    };
    for (const char* shape : {"64_b40",     "100_b20",  "37_b20", "134_b20",  "422_b20",  "526_b18",    "4096_b2",    "48x32_b2",
                              "6x20x24_b1", "10007_b1", "8_b300", "16_b330",  "32_b70",   "16_b5",      "12_b100",    "5_b300",
                              "7_b20",      "15_b40",   "20_b41", "16x32_b3", "30x37_b2", "4x16x32_b2", "6x20x25_b2", "50x42x24_b1"})
      add("c2c", std::string(shape) + "_fwd");
    for (const char* shape : {"128_b18", "40x33_b1", "6x20x24_b1", "6000_b2", "1155_b19", "4095_b2", "16x34_b2", "6x20x25_b2"})
      add("r2c", std::string(shape) + "_fwd");
    for (const char* shape : {"90_b18", "6x20x24_b1", "6000_b2", "4095_b2", "1155_b19"}) add("c2r", std::string(shape) + "_inv");
    return made;
  }();
  return cases;
}

}  // namespace ballast::fft
