// The public handle of a group.
#include <ballast/group.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>

#include <ballast/error.hpp>

#include "core/format.hpp"
#include "group/nccl_engine.hpp"
#include "group/session.hpp"
#include "group/state.hpp"
#include "group/thread_engine.hpp"

namespace ballast {
inline namespace abi_1 {

namespace {

void check(const group_options& how) {
  if (how.tries < 1) throw invalid_argument_error(fmt::format("group: tries: expected at least 1, got {}", how.tries));
  if (!(how.resend_after > 0) || !std::isfinite(how.resend_after))
    throw invalid_argument_error(fmt::format("group: resend_after: expected seconds above 0, got {}", how.resend_after));
  if (!(how.patience > 0)) throw invalid_argument_error(fmt::format("group: patience: expected seconds above 0, got {}", how.patience));
}

}  // namespace

transport::~transport() = default;

group::group(std::shared_ptr<transport> over, const group_options& how) {
  check(how);
  if (over == nullptr) throw invalid_argument_error("group: transport: expected an engine, got null");
  if (over->size() < 1 || over->rank() < 0 || over->rank() >= over->size())
    throw invalid_argument_error(fmt::format("group: transport: expected a rank below the size, got {} of {}", over->rank(), over->size()));
  state_ = std::make_shared<state>(std::move(over), how);
}

std::vector<group> group::threads(int ranks, const group_options& how) {
  if (ranks < 1) throw invalid_argument_error(fmt::format("group: ranks: expected at least 1, got {}", ranks));
  const auto board = std::make_shared<wire::switchboard>(ranks);
  std::vector<group> made;
  for (int r = 0; r < ranks; ++r) made.emplace_back(std::make_shared<wire::thread_engine>(board, r), how);
  return made;
}

group group::devices(std::vector<int> numbers, const group_options& how) {
  check(how);
  if (numbers.empty()) throw invalid_argument_error("group: devices: expected at least one, got none");
  for (const int each : numbers)
    if (each < 0) throw invalid_argument_error(fmt::format("group: devices: expected numbers from 0 on, got {}", each));
  group made;
  made.state_ = std::make_shared<state>(std::move(numbers), how);
  return made;
}

group group::nccl(void* communicator, const group_options& how) {
  check(how);
  if (communicator == nullptr) throw invalid_argument_error("group: nccl: expected a communicator, got null");
  const nccl::api& functions = nccl::found();
  const auto engine = std::make_shared<wire::nccl_engine>(functions, communicator, how.patience, std::int64_t{64} << 10);
  group_options own = how;
  own.patience = 1e15;  // the engine finds who is silent
  group made(engine, own);
  made.state_->how = how;
  made.state_->over->set_direct_ranks(static_cast<std::size_t>(engine->size()));  // a round of NCCL goes to all ranks
  made.state_->link = std::make_shared<wire::nccl_link>(functions, communicator, engine);
  made.state_->link->answer_by([over = &*made.state_->over] {  // the state outlives its link
    over->answer();
    over->leave_if_ended();
  });
  made.state_->over->when_left([link = made.state_->link.get()] { link->leave(); });
  return made;
}

int group::rank() const { return state_ != nullptr && state_->over ? state_->over->rank() : 0; }

int group::size() const {
  if (state_ == nullptr) return 1;
  return static_cast<int>(state_->over ? state_->over->size() : state_->devices.size());
}

std::vector<int> group::ranks() const {
  if (state_ != nullptr && state_->over) return state_->over->members();
  std::vector<int> made(static_cast<std::size_t>(size()));
  std::iota(made.begin(), made.end(), 0);
  return made;
}

void group::barrier() const {
  if (state_ == nullptr || !state_->over) return;
  wire::in_exchange(*state_->over, "group", [&] { state_->over->barrier(); });
}

std::uint64_t group::calls() const { return state_ != nullptr && state_->over ? state_->over->calls() : 0; }

void group::leave_call() const {
  if (state_ != nullptr && state_->over) state_->over->refuse_call();
}

}  // namespace abi_1
}  // namespace ballast
