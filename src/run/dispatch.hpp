// Which backend runs a call.
// Layer: run.
#pragma once

#include <string_view>
#include <vector>

#include <ballast/execution.hpp>

namespace ballast::run {

// The backends that can run on this machine, the fastest first.
std::vector<backend> available_backends();

// The backend for `how`: its own if it can run here, the fastest if it is automatic. Throws unsupported_error, which says why not and
// what there is; `token` names the problem. `without_cuda` is the name of an operation that has no cuda backend, "" for one that has.
backend choose_backend(const execution& how, std::string_view token, std::string_view without_cuda = "");

// `how.scheme`, or `fallback` if that is empty. Throws unsupported_error unless it is one of `known`.
std::string_view choose_scheme(const execution& how, std::string_view fallback, const std::vector<std::string_view>& known,
                               std::string_view token);

}  // namespace ballast::run
