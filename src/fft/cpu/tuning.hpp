// The tuning table of the FFT on processors: measured choices, for problems where one was faster than the rule (choice.hpp).
// Layer: backend "cpu". `ballast tune --backend cpu` adds to the table in the user's cache folder, and plans of every later process read
// it.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "cuda/tuning/tuning_table.hpp"
#include "fft/cpu/choice.hpp"

namespace ballast::fft::cpu {

// A line of the table, after the name of the algorithm: "AVX3_ZEN4 AuthenticAMD-25-17 2 c2c f32 1x1x65536 64 checked matrix 512x128 signals
// 2 1.08": instruction set and processor (lines of others are kept and not used), threads of the plan, kind, precision, the lengths of the
// three axes, signals, checked or unchecked; method, factors of a long line (0x0 without), sharing, threads (0: all), measured gain over
// the rule.
struct choice_form {
  struct key {
    std::string target, processor;
    int threads = 1;
    fft::kind kind = fft::kind::c2c;
    bool wide = false;
    std::array<std::int64_t, 3> n{1, 1, 1};
    std::int64_t batch = 1;
    bool checked = false;

    auto operator<=>(const key&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 means the implicit code
  };
  struct value {
    choice chosen;
    double gain = 1;

    bool operator==(const value&) const = default;
  };
  static constexpr std::string_view algorithm = "fft_cpu", built_in = "";
  static void read(std::istream& words, key& at, value& chosen);
  static void write(std::ostream& to, const key& at, const value& chosen);
};

using choice_table = ballast::cuda::tuning_entries<choice_form>;

// Returns the table that plans of this process read; the file is read once.
const choice_table& installed_choices();

// Returns the key of a problem on this machine. Only arrays without gaps have one: entries are measured on these.
std::optional<choice_form::key> key_of(const geometry& shape, precision type, bool protect, int threads);

// Returns the entry of the table if it is a candidate of the problem, else the choice by rule.
choice choose(const geometry& shape, precision type, bool protect, int threads, const choice_table& table);

}  // namespace ballast::fft::cpu
