// _core_instrumented: _core, and faults for the tests. The calls of a thread begin with the faults that it armed last, those of XLA's
// threads with the faults that any thread armed last.
#include <memory>
#include <mutex>
#include <optional>

#include "core.hpp"
#include "inject/active.hpp"
#include "inject/plan.hpp"

namespace ballast_python {

namespace {

namespace inject = ballast::inject;

struct armed {
  std::shared_ptr<const inject::plan> faults;
  std::optional<inject::scope> active;
};
thread_local armed of_thread;
std::mutex guard;
std::shared_ptr<const inject::plan> of_programs;  // under the guard

void arm(const std::vector<std::string>& wanted) {
  of_thread.active.reset();
  std::vector<inject::request> parsed;
  for (const std::string& each : wanted) parsed.push_back(inject::parse_request(each));
  of_thread.faults = wanted.empty() ? nullptr : std::make_shared<const inject::plan>(std::move(parsed));
  if (of_thread.faults) of_thread.active.emplace(of_thread.faults.get());
  const std::scoped_lock lock(guard);
  of_programs = of_thread.faults;
}

void make_program_call(const std::function<void()>& call) {
  std::shared_ptr<const inject::plan> faults;
  {
    const std::scoped_lock lock(guard);
    faults = of_programs;
  }
  std::optional<inject::scope> active;
  if (faults && inject::scoped_faults() == nullptr) active.emplace(faults.get());
  call();
}

}  // namespace

}  // namespace ballast_python

NB_MODULE(_core_instrumented, m) {
  ballast_python::add_everything(m);
  ballast_python::around_program_call = ballast_python::make_program_call;
  m.def("arm", ballast_python::arm);
}
