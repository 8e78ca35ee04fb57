// A group of MPI processes: ballast::mpi_group(MPI_COMM_WORLD).
// Layer: interface, header only. It needs the program's own <mpi.h>; the library links no MPI. ballast.hpp does not include it.
#pragma once

#include <chrono>
#include <climits>
#include <cstddef>
#include <deque>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <mpi.h>
#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <ballast/error.hpp>
#include <ballast/group.hpp>

namespace ballast {
inline namespace abi_1 {

// The engine of a communicator's ranks: messages by MPI_Isend and matched receives of any source, on a duplicate of the communicator. The
// thread that makes calls on the group makes all calls of MPI, so MPI_THREAD_FUNNELED suffices. Messages may exceed 2³¹ bytes. Open MPI 5
// with user-level failure mitigation (ULFM: mpirun --with-ft ulfm) says which processes have ended, and the others go on. An MPI without
// fault tolerance ends the whole job when a process ends; lost() is then never asked. Throws device_error with MPI's words.
class mpi_transport final : public transport {
 public:
  explicit mpi_transport(MPI_Comm over) {
    check(MPI_Comm_dup(over, &comm_), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
    lost_.assign(static_cast<std::size_t>(size_), false);
  }
  mpi_transport(const mpi_transport&) = delete;
  mpi_transport& operator=(const mpi_transport&) = delete;
  // Waits a second at most until other ranks have taken what was sent. A program destroys its groups before MPI_Finalize.
  ~mpi_transport() override {
    int over = 0;
    if (MPI_Finalized(&over) != MPI_SUCCESS || over != 0) return;
    const auto start = std::chrono::steady_clock::now();
    while (!sending_.empty() && std::chrono::steady_clock::now() - start < std::chrono::seconds(1)) {
      (void)forget_sent();
      std::this_thread::yield();
    }
    // Messages that MPI still reads stay, and the communicator; so does one whose processes have ended.
    if (sending_.empty() && !loss_) MPI_Comm_free(&comm_);
    for (outgoing& each : sending_) (void)new (std::nothrow) std::vector<std::byte>(std::move(each.bytes));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void send(int to, std::span<const std::byte> bytes) override {
    if (lost_[static_cast<std::size_t>(to)]) return;
    outgoing& made = sending_.emplace_back();
    if (!spares_.empty()) {
      made.bytes = std::move(spares_.back());
      spares_.pop_back();
    }
    made.bytes.assign(bytes.begin(), bytes.end());
    made.to = to;
    const byte_count count(bytes.size());
    if (MPI_Isend(made.bytes.data(), count.count, count.type, to, k_tag, comm_, &made.request) != MPI_SUCCESS) {
      lost_[static_cast<std::size_t>(to)] = true;
      loss_ = true;
      sending_.pop_back();
    }
    (void)forget_sent();
  }

  int receive(std::vector<std::byte>& bytes, double seconds) override {
    const auto start = std::chrono::steady_clock::now();
    for (int turns = 0;; ++turns) {
      int found = 0;
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      const int probed = MPI_Improbe(MPI_ANY_SOURCE, k_tag, comm_, &found, &message, &status);
      if (probed != MPI_SUCCESS) {
        if (!note_losses(probed)) check(probed, "MPI_Improbe");
        return -1;
      }
      if (found != 0) {
        MPI_Count size = 0;
        check(MPI_Get_elements_x(&status, MPI_BYTE, &size), "MPI_Get_elements_x");
        bytes.resize(static_cast<std::size_t>(size));
        const byte_count count(bytes.size());
        const int received = MPI_Mrecv(bytes.data(), count.count, count.type, &message, &status);
        if (received != MPI_SUCCESS) {
          if (!note_losses(received)) check(received, "MPI_Mrecv");
          return -1;
        }
        return status.MPI_SOURCE;
      }
      (void)forget_sent();
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() >= seconds) return -1;
      // Ranks may be more than processors.
      if (turns < 200) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  }

  bool lost(int rank) override { return lost_[static_cast<std::size_t>(rank)]; }

 private:
  static constexpr int k_tag = 0x6261;
  // Memory of messages that have been sent is kept for others: fresh memory costs more than the copy into it.
  static constexpr std::size_t k_most_spares = 8, k_longest_spare = std::size_t{2} << 20;

  // A count and a type for so many bytes: MPI's counts have 31 bits.
  struct byte_count {
    explicit byte_count(std::size_t size) {
      constexpr std::size_t block = std::size_t{1} << 20;
      if (size <= INT_MAX) {
        count = static_cast<int>(size);
        return;
      }
      MPI_Datatype blocks = MPI_DATATYPE_NULL;
      check(MPI_Type_contiguous(static_cast<int>(block), MPI_BYTE, &blocks), "MPI_Type_contiguous");
      const int lengths[] = {static_cast<int>(size / block), static_cast<int>(size % block)};
      const MPI_Aint places[] = {0, static_cast<MPI_Aint>(size / block * block)};
      const MPI_Datatype types[] = {blocks, MPI_BYTE};
      check(MPI_Type_create_struct(2, lengths, places, types, &type), "MPI_Type_create_struct");
      check(MPI_Type_commit(&type), "MPI_Type_commit");
      MPI_Type_free(&blocks);
    }
    byte_count(const byte_count&) = delete;
    byte_count& operator=(const byte_count&) = delete;
    ~byte_count() {
      if (type != MPI_BYTE) MPI_Type_free(&type);
    }
    MPI_Datatype type = MPI_BYTE;
    int count = 1;
  };
  struct outgoing {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
    int to = 0;
  };

  static void check(int code, const char* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw device_error(std::string(call) + ": " + std::string(text, static_cast<std::size_t>(length)));
  }

  // Notes the processes that have ended if an error says that there are any. Returns false for other errors.
  bool note_losses([[maybe_unused]] int code) {
#if defined(OMPI_HAVE_MPI_EXT_FTMPI)
    int kind = MPI_SUCCESS;
    MPI_Error_class(code, &kind);
    if (kind != MPIX_ERR_PROC_FAILED && kind != MPIX_ERR_PROC_FAILED_PENDING) return false;
    loss_ = true;
    MPI_Group failed = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
    check(MPIX_Comm_failure_ack(comm_), "MPIX_Comm_failure_ack");
    check(MPIX_Comm_failure_get_acked(comm_, &failed), "MPIX_Comm_failure_get_acked");
    check(MPI_Comm_group(comm_, &all), "MPI_Comm_group");
    int count = 0;
    MPI_Group_size(failed, &count);
    for (int i = 0; i < count; ++i) {
      int ended = MPI_UNDEFINED;
      MPI_Group_translate_ranks(failed, 1, &i, all, &ended);
      if (ended >= 0 && ended < size_) lost_[static_cast<std::size_t>(ended)] = true;
    }
    MPI_Group_free(&failed);
    MPI_Group_free(&all);
    return true;
#else
    return false;
#endif
  }

  // Forgets messages that have been sent, from the oldest on.
  bool forget_sent() {
    while (!sending_.empty()) {
      int done = 0;
      if (MPI_Test(&sending_.front().request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        lost_[static_cast<std::size_t>(sending_.front().to)] = true;
        loss_ = true;
        done = 1;
      }
      if (done == 0) return false;
      std::vector<std::byte>& sent = sending_.front().bytes;
      if (spares_.size() < k_most_spares && sent.capacity() <= k_longest_spare) spares_.push_back(std::move(sent));
      sending_.pop_front();
    }
    return true;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  bool loss_ = false;  // true if any rank is lost
  std::vector<bool> lost_;
  std::deque<outgoing> sending_;
  std::vector<std::vector<std::byte>> spares_;
};

// Returns this rank's handle on a group of all ranks of a communicator. Every rank calls it, after MPI_Init; the communicator is
// duplicated.
inline group mpi_group(MPI_Comm over, const group_options& how = {}) { return group(std::make_shared<mpi_transport>(over), how); }

}  // namespace abi_1
}  // namespace ballast
