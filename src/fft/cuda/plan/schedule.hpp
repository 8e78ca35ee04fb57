// The device schedule of a problem: passes over lines, each with its policy, its addresses and its buffers. Plain host code.
// Layer: fft/cuda. transform.cpp runs schedules; the tuner and the build-time checks only inspect them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "cuda/device/device.hpp"
#include "fft/contract.hpp"
#include "fft/cuda/policy/policy.hpp"
#include "fft/cuda/policy/tuning.hpp"

namespace ballast::fft::cuda {

// The source or destination of a pass: the caller's arrays (input, output), or a part of the workspace.
//   checks:    verdicts and sums of lines with a check from end to end
//   split:     between the passes of a split axis
//   convolved: the padded lines of a convolution
//   spectrum:  half spectra between the axes of a c2r transform
//   ring:      the intermediate data of two fused passes, as much as is needed at a time
enum class pass_buffer : std::uint8_t { input, output, checks, split, convolved, spectrum, ring };
inline constexpr int k_pass_buffers = 7;

// The signal that line i along a dimension belongs to: i / divisor % modulus.
struct signal_of_index {
  std::int64_t divisor = 1;
  std::int64_t modulus = 1;
};

// The contents of the table of a factor_form::table.
enum class table_kind : std::uint8_t { none, chirp, filter };

// The part of a pass in the check of whole lines from end to end.
struct end_to_end_part {
  std::size_t first = 0;    // number of the first pass of these lines in the schedule
  std::size_t passes = 2;   // their passes, of one schedule entry each, followed by as many that repair
  std::int64_t points = 0;  // points of a whole line
  std::int64_t lines = 0;   // whole lines
  std::int64_t tiles = 0;   // tiles of this pass in a whole line
  std::int64_t first_tiles = 0, last_tiles = 0;
  int first_radix = 1;  // the first radix of the first pass
  int levels = 0;       // additions between the sum of a thread and that of its tile
};
// The parts of pass_buffer::checks, in bytes from its beginning.
struct end_to_end_offsets {
  std::int64_t encoded, summed, squares, all;
};
end_to_end_offsets offsets_of(const end_to_end_part& part, bool wide);

// All lines along one dimension, computed by one kernel. It has many members because a pass combines the policy of its kernel with the
// numbers that the host copies into line_arguments.
struct pass {
  line_policy policy;
  line_request request;  // the request for which the policy was chosen
  line_side source{}, target{};
  std::int64_t columns = 1, middles = 1, batches = 1;
  std::array<signal_of_index, 3> signals;  // signals of column, middle and batch
  struct repeat {
    std::int64_t count, source, target;  // one more dimension, over which the host loops
    signal_of_index signals;
  };
  std::vector<repeat> repeats;
  pass_buffer from = pass_buffer::input;
  pass_buffer to = pass_buffer::output;
  std::int64_t twiddle_order = 0;  // M of factor_form::twiddle
  table_kind load_table = table_kind::none, store_table = table_kind::none;
  std::int64_t whole = 0, unit = 1, loaded = 0, stored = 0;
  std::int64_t convolution = 0;               // length N of the transform of chirp and filter, −N if it is inverse; 0: no convolution
  std::int64_t padded_to = 0;                 // length of the convolution
  real_kind real = real_kind::r2hc;           // policy.of_reals(): the transform of the line
  std::optional<end_to_end_part> whole_line;  // set if its lines are part of lines with a check from end to end
  std::optional<fused_arguments> pair;        // set if this pass and the next one are one launch; its counters are set at the launch

  std::int64_t lines() const;   // lines of all repeats
  std::int64_t groups() const;  // groups of tiles in one repeat; a block takes one group at a time
  std::int64_t checks() const;  // checks of all repeats
  bool repairs() const { return policy.repair != repair_form::none; }
};

struct schedule {
  std::vector<pass> passes;
  std::array<std::int64_t, k_pass_buffers> elements{};  // complex numbers that each part of the workspace needs for all signals
  std::int64_t work_elements() const;
  std::uint32_t counters() const;  // counters of the largest pair of fused passes
};

// The pairs of passes that become one launch (fused_passes.cpp): those that were measured to be faster fused; none; all that can (for
// tests).
enum class fusion : std::uint8_t { where_it_pays, never, wherever_possible };

// The properties of the addresses of the caller's arrays, and of each signal in them.
struct alignment {
  bool copied = true;  // the input is at multiples of 16 bytes: it can be copied in bulk
  bool paired = true;  // both are at multiples of a complex number: two reals can be read as one

  auto operator<=>(const alignment&) const = default;  // NOLINT(modernize-use-nullptr): as in tuning.hpp
};

// The inputs of a schedule.
struct schedule_request {
  geometry shape;
  ballast::precision precision = ballast::precision::f32;
  fft::direction direction = fft::direction::forward;
  bool scaled = false;
  check_form check = check_form::none;
  int transactions = 1;  // composite: tiles that share one check
  const tuning_table* tuned = &tuning_table::active();
  bool end_to_end = false;  // check lines of several passes from end to end where their input is kept
  bool plain = false;       // scheme v1: no swizzle, and the same parameters for every problem
  bool fallback = false;    // use fallback kernels only (fallback.hpp)
  alignment aligned = {};
  fusion pairs = fusion::where_it_pays;
};

// Returns the passes of a problem. Throws unsupported_error for lengths whose convolution is too long, and for problems that `fallback`
// does not support.
schedule make_schedule(const schedule_request& wanted, const ballast::cuda::capabilities& device);

}  // namespace ballast::fft::cuda
