// The code that the subcommands share: common options, running with faults and progress, and printing the result.
// Layer: tools, over the public API.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <ballast/ballast.hpp>

#include "array.hpp"
#include "command_line.hpp"
#include "inputs.hpp"
#include "outputs.hpp"
#include "terminal.hpp"

namespace ballast::tools {

// The ranks of a group that run a command together: each reads its part of the rows, and the first prints and writes.
struct ranks {
  ballast::group group = {};  // none: the command runs alone
  // Returns on the first rank the numbers of all, in the order of ranks; on the others nothing.
  std::function<std::vector<std::int32_t>(std::vector<std::int32_t>)> gather = {};
  bool several() const { return static_cast<bool>(group); }
  array_part rows() const { return {.rows = {group.rank(), group.size()}}; }
};

// The options that every operation takes.
struct common_options {
  std::string precision;  // empty: the precision of the input file
  std::string backend = "auto";
  std::string protect = "correct";
  int sampled = 1;       // runs of a series of which one is protected
  std::int64_t run = 0;  // the number of this one
  std::string scheme;
  int threads = 0;
  std::vector<std::string> inject;
  std::string events;
  bool json = false;
  bool quiet = false;
  bool any_rank = false;                                       // not qr::options::full_rank; lstsq
  ranks together;                                              // not an option; of commands that run on a group
  bool no_tf32x3 = false;                                      // qr::options::tf32x3; of the commands that have it
  std::shared_ptr<inputs> files = std::make_shared<inputs>();  // the input files, with the options for tables

  void add_to(command_line& command);
  // Returns the precision of the computation: that of the option, or else f64 if `file_is_double`.
  ballast::precision precision_for(bool file_is_double) const;
};

// One run of the command: execution, faults, outputs, and the printed result.
class invocation {
 public:
  invocation(const common_options& options, std::string operation);
  ~invocation();
  invocation(const invocation&) = delete;
  invocation& operator=(const invocation&) = delete;

  // The arguments of every call of this run.
  const execution& where() const { return where_; }
  const call& now() const { return now_; }

  // Call outputs::reserve and write for an array. `axes`: the number of axes of the array; .csv can hold at most 2. They throw the same
  // exceptions, and invalid_argument_error for a name that ends in neither .npy nor .csv.
  void reserve(const std::string& file, std::size_t axes);
  void write(const std::string& file, array value);

  // Adds the report of a call of this run. Returns false if it was uncorrectable: its results must not be used.
  bool add(const report& seen);

  // Counts the NaN and Inf among the results of this run. If there are any, finish() tells it.
  template <class T>
  void count(std::span<const T> values) {
    values_ += static_cast<std::int64_t>(values.size());
    not_finite_ += not_finite<T>(values);
  }

  // Prints the result (JSON: `results` after the common keys; text: `lines`), commits the files unless a fault was uncorrectable, always
  // writes the event log, and returns the exit status.
  int finish(const nlohmann::ordered_json& results, const std::vector<std::string>& lines);

 private:
  struct faults;
  const common_options& options_;
  std::string operation_;
  execution where_;
  call now_;
  outputs files_;
  std::optional<report> report_;
  std::unique_ptr<faults> faults_;
  std::int64_t values_ = 0, not_finite_ = 0;
};

// Each function adds its subcommand to the program's command line.
void add_fft(command_line& program);
void add_convolve(command_line& program);
void add_kmeans(command_line& program, const ranks& together = {});
void add_qr(command_line& program, const ranks& together = {});
void add_lstsq(command_line& program);
void add_bench(command_line& program);
void add_tune(command_line& program);
void add_info(command_line& program);

// Returns the path of the program `name` in the folder of this program or in ../libexec/ballast, or an empty path.
std::filesystem::path sibling(const std::string& name);

// Replaces this process by that program. Throws unsupported_error if that fails; `origin` says how to get a program that is not there.
[[noreturn]] void run_sibling(const std::string& name, const std::vector<std::string>& arguments, const std::string& origin = "");

// Returns the numbers of a list of devices such as "0,1". Throws invalid_argument_error.
std::vector<int> devices_of(const std::string& list);

// Converts a number for JSON. NaN and Inf become strings, because JSON has no such numbers.
nlohmann::ordered_json json_number(double value);

}  // namespace ballast::tools
