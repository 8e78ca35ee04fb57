// See command.hpp.
#include "command.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#if defined(BALLAST_INSTRUMENTED)
#include "inject/active.hpp"
#include "inject/plan.hpp"
#endif

namespace ballast::tools {

void common_options::add_to(command_line& command) {
  command.choice("--precision", precision, "of the computation; default: that of INPUT (tables and integers: f64)", {"f32", "f64"});
  command.choice("--backend", backend,
                 "what computes; auto: a GPU where the operation has a cuda backend and one can be used (`ballast info`), else the CPU",
                 {"auto", "reference", "cpu", "cuda"});
  command.choice(
      "--protect", protect,
      "off: compute only; detect: report faults; correct: repair them; final_only (kmeans): as correct, but only the last step of "
      "a fit and its results",
      {"off", "detect", "correct", "final_only"});
  command.integer("--sampled", sampled, "of a series of so many runs one is protected (--run), the others are not", 1);
  command.integer("--run", run, "the number of this run in its series, from 0: multiples of --sampled are protected", std::int64_t{0});
  command.text("--scheme", scheme, "how faults are found and repaired; an unknown name lists what there is for the operation");
  command.integer("--threads", threads, "at most so many; 0: all cores", 0);
  command.repeated(
      "--inject", inject,
      "put faults in: site=S[,model=M][,count=N][,seed=S][,bit=B][,visit=V][,interval=I]; `ballast info` lists sites and models");
  command.text("--events", events, "write one line of JSON for each detected fault to this file");
  command.flag("--json", json, "print one JSON object on standard output");
  command.flag("--quiet", quiet, "print nothing but errors (and the JSON object)");
}

ballast::precision common_options::precision_for(bool file_is_double) const {
  if (!precision.empty()) return *parse_precision(precision);
  return file_is_double ? precision::f64 : precision::f32;
}

#if defined(BALLAST_INSTRUMENTED)
struct invocation::faults {
  inject::plan plan;
  std::optional<inject::scope> active;
};
#else
struct invocation::faults {};
#endif

namespace {

// Shows the progress on a terminal: completed work, speed, and estimated remaining time.
class progress_line {
 public:
  void operator()(const progress& now) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    if (seconds - last_ < 0.1 || now.done <= 0) return;
    last_ = seconds;
    const double rate = static_cast<double>(now.done) / seconds;
    std::string line = fmt::format("{} {}", now.unit, now.done);
    if (now.total > 0) line += fmt::format(" of {}", now.total);
    line += fmt::format(", {:.3g}/s", rate);
    if (now.total > 0) line += fmt::format(", {:.0f} s left", static_cast<double>(now.total - now.done) / rate);
    write_text(stderr, "\r{:<60}\r", line);
    std::fflush(stderr);
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double last_ = 0;
};

std::string about_not_finite(std::int64_t results, std::int64_t of, std::int64_t inputs) {
  const std::string why =
      inputs > 0 ? fmt::format("so are {} of the input", inputs) : "all input is finite, so numbers exceeded the range of the precision";
  return fmt::format("{} of {} results are NaN or Inf: {}", results, of, why);
}

}  // namespace

invocation::invocation(const common_options& options, std::string operation) : options_(options), operation_(std::move(operation)) {
  where_.backend = *parse_backend(options.backend);
  // A process is one call of many: it does not know how many were before it.
  where_.protection = options.run % options.sampled == 0 ? *parse_protection(options.protect) : protection::off;
  where_.scheme = options.scheme;
  where_.threads = options.threads;
  where_.group = options.together.group;
  now_.throw_on_uncorrectable = false;
  if (!options.quiet && isatty(2) != 0) now_.on_progress = progress_line();
#if defined(BALLAST_INSTRUMENTED)
  faults_ = std::make_unique<faults>();
  for (const std::string& each : options.inject) faults_->plan.add(inject::parse_request(each));
  if (!options.inject.empty()) faults_->active.emplace(&faults_->plan);
#endif
  if (!options.events.empty()) files_.reserve(options.events);
}

invocation::~invocation() = default;

void invocation::reserve(const std::string& file, std::size_t axes) {
  check_writable_kind(file, axes);
  files_.reserve(file);
}

void invocation::write(const std::string& file, array value) { files_.write(file, content_of(file, std::move(value))); }

bool invocation::add(const report& seen) {
  if (report_) {
    report_->merge(seen);
  } else {
    report_ = seen;
  }
  return seen.verdict != verdict::uncorrectable;
}

int invocation::finish(const nlohmann::ordered_json& results, const std::vector<std::string>& lines) {
  report_->sampled = options_.sampled;
  const report& seen = *report_;
  const bool failed = seen.verdict == verdict::uncorrectable;
  if (!options_.events.empty()) {
    std::string log;
    for (const event& each : seen.events) log += to_json(each) + "\n";
    files_.write(options_.events, std::move(log));
  }
  files_.commit();
  if (options_.json) {
    auto report_json = nlohmann::ordered_json::parse(to_json(seen));
    report_json.erase("verdict");
    nlohmann::ordered_json out = {{"operation", operation_},
                                  {"problem", seen.problem.view()},
                                  {"backend", to_string(seen.backend)},
                                  {"protection", to_string(seen.protection)},
                                  {"scheme", seen.scheme.view()},
                                  {"seconds", seen.seconds},
                                  {"verdict", to_string(seen.verdict)},
                                  {"report", std::move(report_json)}};
    out["inputs"] = options_.files->json();
    if (!failed) {
      out["not_finite"] = not_finite_;
      out.update(results);
    }
    write_text("{}\n", out.dump(2));
  } else if (!options_.quiet) {
    const std::string sampled = seen.sampled > 1 ? fmt::format(" (run {}, sampled {})", options_.run, seen.sampled) : "";
    write_text("{}  backend {}, protection {}{}, scheme {}\n", seen.problem.view(), to_string(seen.backend), to_string(seen.protection),
               sampled, seen.scheme.view());
    for (const std::string& line : options_.files->lines()) write_text("{}\n", line);
    if (!failed) {
      for (const std::string& line : lines) write_text("{}\n", line);
      if (not_finite_ > 0) write_text("{}\n", about_not_finite(not_finite_, values_, options_.files->not_finite()));
    }
    write_text("verdict {}: {} checks, {} detected, {} corrected, {} recomputed, {} uncorrectable; {:.3g} s\n", to_string(seen.verdict),
               seen.checks, seen.detected, seen.corrected, seen.recomputed, seen.uncorrectable, seen.seconds);
    constexpr std::size_t shown = 10;
    for (std::size_t i = 0; i < std::min(shown, seen.events.size()); ++i) {
      const event& each = seen.events[i];
      write_text("  {} at {}: residual {:.3g}, threshold {:.3g}\n", to_string(each.action),
                 each.index >= 0 ? fmt::format("{}[{}]", each.site, each.index) : each.site, each.residual, each.threshold);
    }
    if (seen.events.size() > shown) write_text("  … {} more; --events FILE writes all\n", seen.events.size() - shown);
  }
  if (failed)
    write_text(stderr, "ballast {}: {}: {} fault(s) could not be repaired; no output was written\n", operation_, seen.problem.view(),
               seen.uncorrectable);
  return failed ? k_uncorrectable : k_done;
}

std::filesystem::path sibling(const std::string& name) {
  std::error_code status;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", status).parent_path();
  if (status) return {};
  for (const auto& folder : {here, here.parent_path() / "libexec" / "ballast"}) {
    if (access((folder / name).c_str(), X_OK) == 0) return folder / name;
  }
  return {};
}

void run_sibling(const std::string& name, const std::vector<std::string>& arguments, const std::string& origin) {
  const std::filesystem::path program = sibling(name);
  if (program.empty())
    throw unsupported_error(fmt::format("{} is not installed: expected it in the folder of this program or in ../libexec/ballast{}{}", name,
                                        origin.empty() ? "" : "; ", origin));
  std::vector<char*> argv = {const_cast<char*>(name.c_str())};
  for (const auto& each : arguments) argv.push_back(const_cast<char*>(each.c_str()));
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  throw unsupported_error(fmt::format("{}: {}", printable(program), std::strerror(errno)));
}

std::vector<int> devices_of(const std::string& list) {
  std::vector<int> made;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    int number = -1;
    const auto [last, failed] = std::from_chars(list.data() + begin, list.data() + end, number);
    if (failed != std::errc() || last != list.data() + end || number < 0)
      throw invalid_argument_error(fmt::format("--devices: expected numbers of devices, such as 0,1, got \"{}\"", printable(list)));
    made.push_back(number);
    begin = end + 1;
  }
  return made;
}

nlohmann::ordered_json json_number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

}  // namespace ballast::tools
