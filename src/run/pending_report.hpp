// What a pending_report holds.
// Layer: run. Made by the public call of an algorithm that enqueues.
#pragma once

#include <memory>
#include <string>

#include <ballast/execution.hpp>
#include <ballast/pending_report.hpp>

#include "inject/injector.hpp"
#include "run/pending.hpp"

namespace ballast {

struct pending_report::implementation {
  std::shared_ptr<const void> owner;  // keeps alive what `how` and the work refer to: a plan, say
  const execution& how;
  std::string token;
  ballast::backend backend;
  std::string scheme;
  inject::active_injector injector;
  std::unique_ptr<run::pending> work;
};

}  // namespace ballast
