// The objects that C handles point to, and the frame of every C function: it turns exceptions into statuses.
// Layer: interface, over the C++ headers. Nothing here computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ballast/ballast.h>
#include <ballast/ballast.hpp>

namespace ballast::c {

// A number at the begin of each object, so that an address of another object is refused.
enum class kind : std::uint64_t {
  error = 0xba11a57000000001,
  options,
  report,
  call,
  pending,
  fft_plan,
  kmeans_plan,
  qr_plan,
  factors,
  group,
  column_factors,
  grid_factors
};

template <kind Kind>
struct handle {
  static constexpr kind k_kind = Kind;
  kind mark = Kind;
};

enum class algorithm : std::uint8_t { fft, kmeans, qr };

// The progress callback throws it to end a call. It is no std::exception: nothing in the library catches it.
struct cancelled {};

}  // namespace ballast::c

struct ballast_error : ballast::c::handle<ballast::c::kind::error> {
  std::int32_t status = BALLAST_OK;
  std::string message, problem;
};

struct ballast_options : ballast::c::handle<ballast::c::kind::options> {
  explicit ballast_options(ballast::c::algorithm one) : which(one) {}
  ballast::c::algorithm which;
  ballast::execution where;
  ballast::fft::problem fft;
  ballast::fft::options fft_wanted;
  // fft: the axes of operands; what `fft` has as enumerators and loops.
  std::vector<std::int64_t> axes, real_kinds, loop_counts, loop_inputs, loop_outputs;
  std::vector<std::int64_t> devices;  // those of a group
  ballast::kmeans::problem kmeans;
  ballast::kmeans::options kmeans_wanted;
  ballast::qr::problem qr;
  ballast::qr::options qr_wanted;
};

struct ballast_group : ballast::c::handle<ballast::c::kind::group> {
  explicit ballast_group(ballast::group made) : value(std::move(made)) {}
  ballast::group value;
};

struct ballast_report : ballast::c::handle<ballast::c::kind::report> {
  std::optional<ballast::report> value;  // empty until a call fills it
};

struct ballast_call : ballast::c::handle<ballast::c::kind::call> {
  ballast::call now;
};

struct ballast_pending : ballast::c::handle<ballast::c::kind::pending> {
  ballast_pending(ballast::pending_report enqueued, std::string of, bool with_report)
      : work(std::move(enqueued)), problem(std::move(of)), needs_report(with_report) {}
  ballast::pending_report work;
  std::string problem;
  bool needs_report;  // an uncorrectable fault is no status
  // K-Means: where the work stores its stop reasons, and the caller's memory for them.
  std::vector<ballast::kmeans::stop_reason> stopped;
  std::int32_t* stopped_to = nullptr;
};

namespace ballast::c {

// Stop reasons are stored as one byte by the library and as 32 bits for the caller. This one stands where no fit has stored one.
inline constexpr std::uint8_t k_no_stop_reason = 255;

// Stores those that a fit has stored in the caller's memory (may be null), and forgets them: enqueued work may run again.
void store_stop_reasons(std::vector<kmeans::stop_reason>& from, std::int32_t* to);

// The knowledge of a function that fails.
struct frame {
  std::string_view problem;          // the token, if the problem is known
  ballast_report* report = nullptr;  // filled by an uncorrectable fault
  std::string token;                 // the token of a problem that has no plan yet

  void poses(std::string made) {
    token = std::move(made);
    problem = token;
  }
};

// Stores the exception that is being handled in `error` (may be null) and returns its status.
std::int32_t failed(ballast_error* error, const frame& where) noexcept;

// The body of a C function: work(frame) throws, and the status says what.
template <class Work>
std::int32_t guarded(ballast_error* error, Work&& work) noexcept {
  if (error != nullptr) {
    if (error->mark != kind::error) return BALLAST_INVALID_ARGUMENT;
    error->status = BALLAST_OK;
    error->message.clear();
    error->problem.clear();
  }
  frame here;
  try {
    std::forward<Work>(work)(here);
    return BALLAST_OK;
  } catch (...) {
    return failed(error, here);
  }
}

// The same for a call on a group of ranks, if `ranks` is one: the others are told when arguments are refused before it has begun.
template <class Work>
std::int32_t guarded(ballast_error* error, const group& ranks, Work&& work) noexcept {
  return guarded(error, [&](frame& here) { prepare_call(ranks, [&] { std::forward<Work>(work)(here); }); });
}
// The group of options; none where they are null or no options.
inline group group_of(const ballast_options* given) noexcept {
  return given != nullptr && given->mark == ballast_options::k_kind ? given->where.group : group();
}

// Throws invalid_argument_error: what a pointer should be, and what it is.
[[noreturn]] void refuse_handle(std::string_view name, bool null);

// The object of a handle. `name` is the parameter's.
template <class Handle>
Handle& needed(Handle* given, std::string_view name) {
  if (given == nullptr || given->mark != std::remove_const_t<Handle>::k_kind) refuse_handle(name, given == nullptr);
  return *given;
}

// The place of an output.
template <class T>
T& output(T* given, std::string_view name) {
  if (given == nullptr) refuse_handle(name, true);
  return *given;
}

// A text argument.
std::string_view text(const char* given, std::string_view name);

// A copy of a text for the caller, from malloc: ballast_free returns it.
char* copy_of(std::string_view text);

template <class Handle>
void destroy(Handle* given) noexcept {
  if (given != nullptr && given->mark == Handle::k_kind) {
    given->mark = kind{};
    delete given;
  }
}

// The call, or one with all defaults.
const ballast::call& call_of(const ballast_call* given);

// Prepares the report of a call, which may be null: it becomes empty. Throws if the call needs one.
void begin(frame& here, ballast_report* report, const ballast::call& now);

inline void fill(ballast_report* report, ballast::report&& seen) {
  if (report != nullptr) report->value = std::move(seen);
}

// The caller's record of an event. Its texts are those of `seen`.
ballast_event record_of(const event& seen);

// The options, which must be for `which`.
const ballast_options& options_for(const ballast_options* given, algorithm which);
// The execution that options name, on a group if they have a list of devices.
execution where_of(const ballast_options& with);

std::string_view name_of(algorithm which);

// Copies the caller's struct, whose size may be that of an older or newer header. Members that it lacks are 0. Throws if it has members
// that this library does not know and that are not 0.
void read_struct(const void* given, std::size_t size, std::string_view name, void* to, std::size_t known);
template <class Struct>
Struct read_struct(const Struct* given, std::string_view name) {
  if (given == nullptr) refuse_handle(name, true);
  Struct made{};
  read_struct(given, given->size, name, &made, sizeof made);
  return made;
}

// Stores a struct in the caller's, as far as that reaches.
void write_struct(const void* from, std::size_t known, std::string_view name, void* to, std::size_t size);
template <class Struct>
void write_struct(Struct from, std::string_view name, Struct* to) {
  if (to == nullptr) refuse_handle(name, true);
  from.size = to->size;
  write_struct(&from, sizeof from, name, to, to->size);
}

}  // namespace ballast::c
