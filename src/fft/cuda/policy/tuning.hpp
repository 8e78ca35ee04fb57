// The tuning table of the FFT: which policy a line gets on an architecture, where measuring found a better one than the rules of
// choose_policy.cpp.
// Layer: fft/cuda. The table that is built in comes from `ballast tune`; a user's own is read from the cache folder.
#pragma once

#include <compare>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/tuning/tuning_table.hpp"
#include "fft/cuda/policy/policy.hpp"

namespace ballast::fft::cuda {

// One pass's line: what the choice of a policy depends on.
struct line_request {
  int length = 1;
  bool wide = false;
  bool in_columns = false, out_columns = false;
  check_form check = check_form::none;
  std::int64_t count = 1;    // how many lines there are in all
  std::int64_t columns = 1;  // and how many side by side
  bool plain = false;        // no swizzle, and neither rules nor table
  bool stageable = false;    // tiles lie together in memory, aligned, and are read as they are
  bool clusterable = false;  // elements of a line lie side by side in memory, so that blocks can take runs of them
};

// The part of a policy that is tuned.
struct tuned_line {
  std::vector<int> radices;
  int threads = 1;
  int lines = 1;
  bool split = false;
  int min_blocks = 1;
  bool staged = false;
  double gain = 1;        // measured: time by the rules over time by this entry
  int cluster = 1;        // blocks that hold a line together
  int cluster_after = 0;  // the stage behind which its data change blocks

  bool operator==(const tuned_line&) const = default;
};

// A line of the table, behind its algorithm: "sm_90 f32 1024 rows rows checked 16.8.8 64 4 whole 3 1.08": architecture, precision, length,
// order of load and store, checked or unchecked, radices, threads of a line, lines of a tile, exchange (whole, split, and with a stage
// staged or staged_split), blocks on a multiprocessor, gain; for lines that a cluster holds also the number of its blocks and the stage
// (from 0) whose results change blocks.
struct line_form {
  struct key {
    int major = 0;
    bool wide = false;
    int length = 1;
    bool in_columns = false, out_columns = false, checked = false;

    auto operator<=>(const key&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 means the implicit code
  };
  using value = tuned_line;
  static constexpr std::string_view algorithm = "fft";
  static constexpr std::string_view built_in =
#include "fft/cuda/policy/tuning_table.inc"
      ;
  static void read(std::istream& words, key& at, value& chosen);
  static void write(std::ostream& to, const key& at, const value& chosen);
};

class tuning_table : public ballast::cuda::tuning_entries<line_form> {
  using entries_type = ballast::cuda::tuning_entries<line_form>;

 public:
  tuning_table() = default;
  explicit tuning_table(entries_type entries) : entries_type(std::move(entries)) {}

  static tuning_table parse(std::string_view text) { return tuning_table(entries_type::parse(text)); }
  // The built-in table, with the entries of the user's file over it.
  static const tuning_table& active();
  // An empty one: every policy is by rule.
  static const tuning_table& rules();

  void set(const line_request& wanted, int major, tuned_line value) { entries_type::set(key_of(wanted, major), std::move(value)); }
  std::optional<tuned_line> find(const line_request& wanted, int major) const { return entries_type::find(key_of(wanted, major)); }
  std::vector<std::pair<line_request, tuned_line>> lines() const;  // of all architectures; counts and columns are not known

 private:
  static line_form::key key_of(const line_request& wanted, int major) {
    return {major, wanted.wide, wanted.length, wanted.in_columns, wanted.out_columns, wanted.check != check_form::none};
  }
};

}  // namespace ballast::fft::cuda
