// The tuning table of the FFT: the policy of a line on an architecture, for lines where a measurement found a better policy than the rules
// of choose_policy.cpp.
// Layer: fft/cuda. `ballast tune` generates the built-in table; a user's own table is read from the cache folder.
#pragma once

#include <compare>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/device/device.hpp"
#include "cuda/tuning/tuning_table.hpp"
#include "fft/cuda/policy/policy.hpp"

namespace ballast::fft::cuda {

inline constexpr std::int64_t k_longest_pass = 16384;

// The line of one pass: the inputs of the choice of a policy.
struct line_request {
  int length = 1;
  bool wide = false;
  bool in_columns = false, out_columns = false;
  check_form check = check_form::none;
  std::int64_t count = 1;    // number of lines in total
  std::int64_t columns = 1;  // number of lines side by side
  bool few = false;          // at most 2048 numbers for each multiprocessor in all lines: latency decides
  bool plain = false;        // no swizzle, and neither rules nor table
  bool stageable = false;    // tiles are contiguous, aligned, and loaded without conversion
  bool clusterable = false;  // elements of a line are contiguous in memory, so that blocks can take runs of them
  bool reals = false;        // a real-to-real transform, whose threads hold results beside the numbers of the line
};

// Returns whether so few numbers are transformed that latency decides: not even 128 threads with 16 numbers on each multiprocessor.
inline bool is_few(std::int64_t length, std::int64_t lines, const ballast::cuda::capabilities& device) {
  return length * lines <= std::int64_t{2048} * device.multiprocessors;
}

// The part of a policy that is tuned.
struct tuned_line {
  std::vector<int> radices;
  int threads = 1;
  int lines = 1;
  bool split = false;
  int min_blocks = 1;
  bool staged = false;
  double gain = 1;        // measured: time by the rules divided by time by this entry
  int cluster = 1;        // blocks that share a line
  int cluster_after = 0;  // the stage after which its data go to other blocks

  bool operator==(const tuned_line&) const = default;
};

// A line of the table, after the name of the algorithm: "sm_90 f32 1024 rows rows checked 16.8.8 64 4 whole 3 1.08": architecture,
// precision, length, order of load and store, checked or unchecked (few_checked, few_unchecked: only where lines are few), radices, threads
// of a line, lines of a tile, exchange (whole or split, with prefetch staged or staged_split), blocks per multiprocessor, gain; for lines
// in clusters also the number of blocks and the stage (from 0) whose results go to other blocks.
struct line_form {
  struct key {
    int major = 0;
    bool wide = false;
    int length = 1;
    bool in_columns = false, out_columns = false, checked = false, few = false;

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

// The lengths of the passes of a line that is too long for one: "fft_split sm_90 f32 16777216 unchecked 4096.4096 1.15": architecture,
// precision, length, checked or unchecked (few_checked, few_unchecked), lengths of the passes, gain.
struct split_form {
  struct key {
    int major = 0;
    bool wide = false;
    std::int64_t length = 1;
    bool checked = false, few = false;

    auto operator<=>(const key&) const = default;  // NOLINT(modernize-use-nullptr): as above
  };
  struct value {
    std::vector<std::int64_t> lengths;
    double gain = 1;

    bool operator==(const value&) const = default;
  };
  static constexpr std::string_view algorithm = "fft_split";
  static constexpr std::string_view built_in =
#include "fft/cuda/policy/tuning_table.inc"
      ;
  static void read(std::istream& words, key& at, value& chosen);
  static void write(std::ostream& to, const key& at, const value& chosen);
};

class tuning_table : public ballast::cuda::tuning_entries<line_form> {
  using entries_type = ballast::cuda::tuning_entries<line_form>;
  using splits_type = ballast::cuda::tuning_entries<split_form>;

 public:
  tuning_table() = default;
  tuning_table(entries_type entries, splits_type splits) : entries_type(std::move(entries)), splits_(std::move(splits)) {}

  static tuning_table parse(std::string_view text) { return {entries_type::parse(text), splits_type::parse(text)}; }
  // The built-in table, overridden by the entries of the user's file.
  static const tuning_table& active();
  // An empty table: every policy is by rule.
  static const tuning_table& rules();

  void set(const line_request& wanted, int major, tuned_line value) { entries_type::set(key_of(wanted, major), std::move(value)); }
  // Returns the entry for few lines where lines are few and there is one, otherwise that for any number of them.
  std::optional<tuned_line> find(const line_request& wanted, int major) const;
  std::vector<std::pair<line_request, tuned_line>> lines() const;  // for all architectures; counts and columns are unknown

  const splits_type& splits() const noexcept { return splits_; }
  void set_split(const split_form::key& at, split_form::value chosen) { splits_.set(at, std::move(chosen)); }
  std::optional<split_form::value> find_split(split_form::key at) const;

  std::string to_text() const { return entries_type::to_text() + splits_.to_text(); }
  std::vector<std::string> warnings() const;

 private:
  static line_form::key key_of(const line_request& wanted, int major) {
    return {major, wanted.wide, wanted.length, wanted.in_columns, wanted.out_columns, wanted.check != check_form::none, wanted.few};
  }

  splits_type splits_;
};

}  // namespace ballast::fft::cuda
