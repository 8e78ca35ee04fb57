// The findings of a protected call: verdict, counts and events. The return value of every operation.
// Layer: interface.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <ballast/types.hpp>

namespace ballast {
inline namespace abi_1 {

// clean: no check fired. corrected: every fault was repaired in place. recomputed: at least one fault was repaired by
// computing its tile again. uncorrectable: at least one fault was detected and not repaired; the result is not to be used.
enum class verdict : std::uint8_t { clean, corrected, recomputed, uncorrectable };

BALLAST_API std::string_view to_string(verdict value) noexcept;  // the enumerator's name

// The treatment of one detected fault.
enum class action : std::uint8_t { corrected, recomputed, uncorrectable };

BALLAST_API std::string_view to_string(action value) noexcept;  // the enumerator's name

// One detected fault.
struct event {
  std::string site;         // which check fired, for instance "fft.signal" or "qr.panel_entry"
  std::int64_t index = -1;  // its location: signal, row of points, column, …; -1 if the check cannot place it
  double residual = 0;      // encoded minus recomputed checksum, absolute value; NaN or Inf if the data held one
  double threshold = 0;     // the bound it exceeded
  ballast::action action = ballast::action::uncorrectable;
  std::string device;       // "cpu", or the name of the CUDA device
  int thread = 0;           // slot of the worker thread in this call, 0 … threads − 1; 0 on a CUDA device
  int multiprocessor = -1;  // the one that ran the check that fired; −1 on a CPU
  double time = 0;          // seconds since the Unix epoch
  int rank = -1;            // the rank of the group that detected it; −1: the call had no group
  bool damaged = false;     // true if the event itself was hit while it waited in the log: believe only its existence
};

// One line of JSON, without a newline: the format of the event log.
BALLAST_API std::string to_json(const event& value);

// The findings of one call. It cannot be dropped.
struct [[nodiscard]] report {
  ballast::verdict verdict = ballast::verdict::clean;
  std::uint64_t checks = 0;         // comparisons of a residual with its threshold
  std::uint64_t detected = 0;       // comparisons that failed, one for each fault or damaged interval
  std::uint64_t corrected = 0;      // repaired in place
  std::uint64_t recomputed = 0;     // repaired by computing again
  std::uint64_t uncorrectable = 0;  // not repaired
  std::uint64_t false_alarms = 0;   // among `recomputed`: the second result was bitwise the first (the check was hit, not the data)
  std::vector<event> events;        // at most k_max_events; the counts above are complete
  shared_text problem;              // the problem token
  ballast::backend backend = ballast::backend::automatic;         // the one that computed
  ballast::protection protection = ballast::protection::correct;  // off also for a call that execution::sampled leaves out
  shared_text scheme;                                             // how the algorithm encoded and repaired
  // FFT on cuda with fft::kernels::fallback_at_first: the reason why fallback kernels computed this call. Empty if the problem's own
  // kernels did.
  shared_text fallback_kernels;
  double seconds = 0;  // wall time of the call
  // qr::gels and solve: the condition number of A, estimated from below: ‖S‖_F ‖S⁺‖₂ / √n, where S is A with columns (rows if m < n)
  // scaled to norms near 1. 1 for orthogonal columns. The largest of a batch one by one. gelsy: that of R's part that counts. NaN: unknown.
  double condition = std::numeric_limits<double>::quiet_NaN();
  int sampled = 1;  // execution::sampled: one call of so many is protected

  static constexpr std::size_t k_max_events = 4096;

  // Adds the counts and events of a later part of the same call; the verdict becomes the worse of the two.
  BALLAST_API void merge(const report& later);
};

// One JSON object with verdict, counts and events.
BALLAST_API std::string to_json(const report& value);

}  // namespace abi_1
}  // namespace ballast
