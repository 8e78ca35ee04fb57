// The tuning table: which policy a line gets on an architecture, where measuring found a better one than the rules of policy.cpp.
// Layer: fft/cuda. The table that is built in comes from `ballast tune`; a user's own is read from the cache directory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/device.hpp"
#include "fft/cuda/policy.hpp"

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

class tuning_table {
 public:
  // The built-in table, with the entries of $BALLAST_CACHE_DIR/tuning.txt (see cuda::default_cache_folder) over it if there is such a file.
  static const tuning_table& active();
  // An empty one: every policy is by rule.
  static const tuning_table& rules();

  // One entry a line: "sm_90 f32 1024 rows rows checked 16.8.8 64 4 whole 3 1.08": architecture, precision, length, order of load and
  // store, checked or unchecked, radices, threads of a line, lines of a tile, exchange (whole, split, and with a stage staged or
  // staged_split), blocks on a multiprocessor, gain; for lines that a cluster holds also the number of its blocks and the stage (from 0)
  // whose results change blocks. Lines that begin with # are comments. Throws invalid_argument_error with the number of a line that it
  // cannot read.
  static tuning_table parse(std::string_view text);
  std::string to_text() const;

  void set(const line_request& wanted, int major, tuned_line value);
  std::optional<tuned_line> find(const line_request& wanted, int major) const;
  std::vector<std::pair<line_request, tuned_line>> lines() const;  // of all architectures; counts and columns are not known

 private:
  using key = std::tuple<int, bool, int, bool, bool, bool>;  // major, wide, length, in columns, out columns, checked
  static key key_of(const line_request& wanted, int major);
  std::map<key, tuned_line> entries_;
};

}  // namespace ballast::fft::cuda
