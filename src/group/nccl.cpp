// Finds NCCL and calls it. See nccl.hpp.
#include "group/nccl.hpp"

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <dlfcn.h>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "cuda/system/library.hpp"

namespace ballast::nccl {

namespace {

std::string bind(void* library, api& functions) {
  std::string missing;
  const auto find = [&](auto& target, const char* name) {
    if (!cuda::find_function(library, name, target) && missing.empty()) missing = name;
  };
  find(functions.words, "ncclGetErrorString");
  find(functions.count, "ncclCommCount");
  find(functions.rank, "ncclCommUserRank");
  find(functions.device, "ncclCommCuDevice");
  find(functions.async_error, "ncclCommGetAsyncError");
  find(functions.split, "ncclCommSplit");
  find(functions.abort, "ncclCommAbort");
  find(functions.send, "ncclSend");
  find(functions.receive, "ncclRecv");
  find(functions.all_reduce, "ncclAllReduce");
  find(functions.group_start, "ncclGroupStart");
  find(functions.group_end, "ncclGroupEnd");
  return missing;
}

void* opened() {
  if (const char* const file = std::getenv("BALLAST_NCCL"); file != nullptr && *file != '\0') {
    const cuda::opened_library library = cuda::open_library(std::string(file));
    if (library.handle == nullptr) throw unsupported_error(fmt::format("NCCL: {}", library.why));
    return library.handle;
  }
  if (dlsym(RTLD_DEFAULT, "ncclGroupEnd") != nullptr) return RTLD_DEFAULT;
  if (void* const library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD); library != nullptr) return library;
  throw unsupported_error(
      "NCCL: expected a process that has loaded libnccl.so.2, got none among its libraries; $BALLAST_NCCL can name the file");
}

}  // namespace

const api& found() {
  static const api made = [] {
    api functions{};
    if (const std::string missing = bind(opened(), functions); !missing.empty())
      throw unsupported_error(fmt::format("NCCL: expected version 2.18 or later, got a library without {}", missing));
    return functions;
  }();
  return made;
}

communicator::communicator(const api& functions, handle parent, double patience) : functions_(functions) {
  check(functions_.count(parent, &size_), "ncclCommCount");
  check(functions_.rank(parent, &rank_), "ncclCommUserRank");
  check(functions_.device(parent, &device_), "ncclCommCuDevice");
  const auto start = std::chrono::steady_clock::now();
  configuration how;
  check(functions_.split(parent, 0, rank_, &made_, &how), "ncclCommSplit");
  try {
    // The new handle is known once the split of the parent has gone so far.
    for (;;) {
      status state = k_success;
      if (made_ == nullptr)
        check(functions_.async_error(parent, &state), "ncclCommGetAsyncError");
      else if (enqueued())
        return;
      check(state, "ncclCommSplit");
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > patience)
        throw device_error(fmt::format("ncclCommSplit: expected all {} ranks within {} s, some did not come", size_, patience));
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  } catch (...) {
    abort();
    throw;
  }
}

communicator::~communicator() { abort(); }

void communicator::check(status got, std::string_view call) const {
  if (got == k_success || got == k_in_progress) return;
  throw device_error(fmt::format("{}: expected success, got {}", call, functions_.words(got)));
}

void communicator::together(core::function_ref<void()> work) {
  check(functions_.group_start(), "ncclGroupStart");
  try {
    work();
  } catch (...) {
    (void)functions_.group_end();
    throw;
  }
  check(functions_.group_end(), "ncclGroupEnd");
}

void communicator::send(const void* from, std::size_t bytes, int peer, cuda::stream on) {
  check(functions_.send(from, bytes, data_type::bytes, peer, made_, on), "ncclSend");
}

void communicator::receive(void* to, std::size_t bytes, int peer, cuda::stream on) {
  check(functions_.receive(to, bytes, data_type::bytes, peer, made_, on), "ncclRecv");
}

void communicator::add(const void* from, void* to, std::size_t words, cuda::stream on) {
  check(functions_.all_reduce(from, to, words, data_type::words, k_sum, made_, on), "ncclAllReduce");
}

bool communicator::enqueued() {
  if (aborted()) throw device_error("NCCL: expected a communicator, got one that has been aborted");
  status state = k_success;
  check(functions_.async_error(made_, &state), "ncclCommGetAsyncError");
  check(state, "NCCL");
  return state == k_success;
}

void communicator::abort() noexcept {
  if (made_ != nullptr) (void)functions_.abort(made_);
  made_ = nullptr;
}

}  // namespace ballast::nccl
