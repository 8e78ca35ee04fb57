// Groups of ranks: an engine that is an object of Python, and NCCL. ballast._group makes them.
#include <memory>

#include "core.hpp"

namespace ballast_python {

namespace {

// An object of Python with send(to, bytes), receive(seconds), which returns None or (rank, bytes), and lost(rank). Calls of the library
// have released the interpreter's lock.
class python_transport final : public ballast::transport {
 public:
  python_transport(nb::object engine, int rank, int size) : engine_(std::move(engine)), rank_(rank), size_(size) {}
  python_transport(const python_transport&) = delete;
  python_transport& operator=(const python_transport&) = delete;
  ~python_transport() override {
    if (!nb::is_alive()) {
      (void)engine_.release();  // the interpreter has ended
      return;
    }
    const nb::gil_scoped_acquire locked;
    engine_.reset();
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void send(int to, std::span<const std::byte> bytes) override {
    const nb::gil_scoped_acquire locked;
    engine_.attr("send")(to, nb::bytes(bytes.data(), bytes.size()));
  }
  int receive(std::vector<std::byte>& bytes, double seconds) override {
    const nb::gil_scoped_acquire locked;
    const nb::object come = engine_.attr("receive")(seconds);
    if (come.is_none()) return -1;
    const auto pair = nb::cast<nb::tuple>(come);
    const auto message = nb::cast<nb::bytes>(pair[1]);
    const auto* const first = static_cast<const std::byte*>(message.data());
    bytes.assign(first, first + message.size());
    return nb::cast<int>(pair[0]);
  }
  bool lost(int rank) override {
    const nb::gil_scoped_acquire locked;
    return nb::cast<bool>(engine_.attr("lost")(rank));
  }

 private:
  nb::object engine_;
  int rank_, size_;
};

ballast::group_options options_of(int tries, double resend_after, double patience) {
  return {.tries = tries, .resend_after = resend_after, .patience = patience};
}

}  // namespace

void add_groups(nb::module_& m) {
  nb::class_<ballast::group>(m, "Group")
      .def_static("over",
                  [](const nb::object& engine, int rank, int size, int tries, double resend_after, double patience) {
                    return ballast::group(std::make_shared<python_transport>(engine, rank, size),
                                          options_of(tries, resend_after, patience));
                  })
      .def_static("nccl",
                  [](std::uintptr_t communicator, int tries, double resend_after, double patience) {
                    const nb::gil_scoped_release released;
                    return ballast::group::nccl(std::bit_cast<void*>(communicator), options_of(tries, resend_after, patience));
                  })
      .def_prop_ro("rank", &ballast::group::rank)
      .def_prop_ro("size", &ballast::group::size)
      .def("barrier",
           [](const ballast::group& of) {
             const nb::gil_scoped_release released;
             of.barrier();
           })
      .def_prop_ro("calls", &ballast::group::calls)
      .def("leave_call", [](const ballast::group& of) {
        const nb::gil_scoped_release released;
        of.leave_call();
      });
}

}  // namespace ballast_python
