"""Groups: processes that compute one problem, each on its own rows, over mpi4py, torch.distributed or NCCL."""

import atexit
import collections
import ctypes
import datetime
import os
import queue
import threading
import time
import weakref

from . import _core
from ._errors import DeviceError, InvalidArgumentError, UnsupportedError

__all__ = ["group", "joined"]

_TAG = 0x6261
_made = {}  # by the identity of a communicator: it, and its group


def group(over=None, *, tries=5, resend_after=0.02, patience=300.0):
    """One rank of a group, with rank, size and barrier(). Every process of `over` calls it.

    over: a communicator of mpi4py, which is duplicated; a process group of torch.distributed, or None for its default one; or an object with
    rank, size, send(to, bytes), receive(seconds), which returns None or (rank, bytes), and lost(rank). A torch group with the backend nccl
    becomes a communicator of NCCL of its own, on this process's current device; with gloo a group of its own that carries messages.
    A message is sent at most `tries` times, and asked for after `resend_after` seconds. A rank that is silent for `patience` seconds while
    others wait counts as lost: RankLostError.
    """
    settings = int(tries), float(resend_after), float(patience)
    library = "torch" if over is None else type(over).__module__.partition(".")[0]
    if library == "torch":
        import torch.distributed as dist

        if not dist.is_initialized():
            raise InvalidArgumentError("group: expected torch.distributed.init_process_group before, got none")
        over = dist.group.WORLD if over is None else over
        backend = dist.get_backend(over)
        if "nccl" in backend:
            return _over_nccl(dist, over, settings)
        if backend != "gloo":
            raise UnsupportedError(f'group: expected a process group with the backend nccl or gloo, got "{backend}"')
        engine = _Gloo(dist, over)
    elif library == "mpi4py":
        engine = _Mpi(over)
    else:
        engine = over
        for name in ("rank", "size", "send", "receive", "lost"):
            if not hasattr(engine, name):
                raise InvalidArgumentError(f"group: expected a communicator of mpi4py, a process group of torch.distributed or an engine, got "
                                           f"{type(over).__name__} without {name}")
    return _core.Group.over(engine, engine.rank, engine.size, *settings)


def joined(over):
    """`over` if it is a group already; else its group, which is made once for each communicator."""
    if isinstance(over, _core.Group):
        return over
    known = _made.get(id(over))
    if known is None or known[0] is not over:
        known = _made[id(over)] = over, group(over)
    return known[1]


def forget(lost):
    """Drops a group of which a rank is lost: its communicator gets a new one at the next use."""
    for key, (_, made) in list(_made.items()):
        if made is lost:
            del _made[key]


class _Mpi:
    """Messages by Isend and matched receives of any source. A message has less than 2³¹ bytes."""

    def __init__(self, over):
        from mpi4py import MPI

        self._mpi, self._over, self._sending = MPI, over.Dup(), collections.deque()
        self.rank, self.size = self._over.Get_rank(), self._over.Get_size()

    def _forget_sent(self):
        while self._sending and self._sending[0][0].Test():
            self._sending.popleft()

    def send(self, to, message):
        self._sending.append((self._over.Isend([message, self._mpi.BYTE], to, _TAG), message))
        self._forget_sent()

    def receive(self, seconds):
        end, turns, status = time.monotonic() + seconds, 0, self._mpi.Status()
        while True:
            found = self._over.Improbe(self._mpi.ANY_SOURCE, _TAG, status)
            if found is not None:
                message = bytearray(status.Get_count(self._mpi.BYTE))
                found.Recv([message, self._mpi.BYTE])
                return status.Get_source(), bytes(message)
            self._forget_sent()
            if time.monotonic() >= end:
                return None
            turns += 1
            time.sleep(0 if turns < 200 else 5e-5)

    def lost(self, rank):
        return False


class _Gloo:
    """Messages by send and recv of a process group of its own: a thread for each rank sends, another receives. Both end with the program."""

    def __init__(self, dist, over):
        import torch

        ranks = dist.get_process_group_ranks(over)
        self._dist, self._torch = dist, torch
        # A wait that runs out would end a connection: messages may be awaited for any time.
        self._over = dist.new_group(ranks, backend="gloo", timeout=datetime.timedelta(days=365), use_local_synchronization=True)
        self.rank, self.size = dist.get_rank(over), len(ranks)
        self._come, self._ended = queue.SimpleQueue(), set()
        self._going = {peer: queue.SimpleQueue() for peer in range(self.size) if peer != self.rank}
        self._threads = [threading.Thread(target=work, args=(peer,), daemon=True) for peer in self._going for work in (self._send_to, self._take_from)]
        for each in self._threads:
            each.start()
        _open.add(self)

    def _send_to(self, peer):
        """Sends what waits for a rank: the length, then the bytes; -1 at the end."""
        try:
            while True:
                message = self._going[peer].get()
                length = -1 if message is None else len(message)
                self._over.send([self._torch.tensor([length])], peer, 0).wait()
                if message is None:
                    return
                self._over.send([self._torch.frombuffer(bytearray(message), dtype=self._torch.uint8)], peer, 0).wait()
        except Exception:  # whatever it is, this rank sends no more
            self._ended.add(peer)

    def _take_from(self, peer):
        try:
            length = self._torch.empty(1, dtype=self._torch.int64)
            while True:
                self._over.recv([length], peer, 0).wait()
                if length.item() < 0:
                    break
                message = self._torch.empty(length.item(), dtype=self._torch.uint8)
                self._over.recv([message], peer, 0).wait()
                self._come.put((peer, message.numpy().tobytes()))
        except Exception:  # whatever it is, nothing more comes
            pass
        self._ended.add(peer)

    def send(self, to, message):
        self._going[to].put(message)

    def receive(self, seconds):
        try:
            return self._come.get(timeout=seconds) if seconds > 0 else self._come.get_nowait()
        except queue.Empty:
            return None

    def lost(self, rank):
        return rank in self._ended

    def say_end(self):
        """Tells the others that this rank ends."""
        for each in self._going.values():
            each.put(None)

    def close(self):
        """Waits until the others have said that they end, too."""
        end = time.monotonic() + 10
        for each in self._threads:
            each.join(max(0.0, end - time.monotonic()))
        if self._dist.is_initialized() and self._over in self._dist.distributed_c10d._world.pg_map and not any(each.is_alive() for each in self._threads):
            self._dist.destroy_process_group(self._over)


_open = weakref.WeakSet()


@atexit.register
def _close_all():
    every = list(_open)
    for each in every:
        each.say_end()
    for each in every:  # ranks may close them in different orders
        each.close()
    _made.clear()


class _UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


def _over_nccl(dist, over, settings):
    import torch

    file = os.environ.get("BALLAST_NCCL") or "libnccl.so.2"
    try:
        library = ctypes.CDLL(file)  # the one that PyTorch has loaded
    except OSError as wrong:
        raise UnsupportedError(f"group: NCCL: {wrong}") from None
    library.ncclGetErrorString.restype = ctypes.c_char_p
    library.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, _UniqueId, ctypes.c_int]
    library.ncclCommDestroy.argtypes = [ctypes.c_void_p]

    def check(status, name):
        if status != 0:
            raise DeviceError(f"group: {name}: expected success, got {library.ncclGetErrorString(status).decode()}")

    rank, size, one = dist.get_rank(over), dist.get_world_size(over), _UniqueId()
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # the device is this thread's
    refused = None
    if rank == 0:
        try:
            check(library.ncclGetUniqueId(ctypes.byref(one)), "ncclGetUniqueId")
        except DeviceError as wrong:
            refused = str(wrong)
    known = [ctypes.string_at(ctypes.byref(one), 128), refused]  # the others wait for it in any case
    dist.broadcast_object_list(known, src=dist.get_process_group_ranks(over)[0], group=over)
    if known[1] is not None:
        raise DeviceError(f"{known[1]} on rank 0")
    ctypes.memmove(ctypes.byref(one), known[0], 128)
    communicator = ctypes.c_void_p()
    check(library.ncclCommInitRank(ctypes.byref(communicator), size, one, rank), "ncclCommInitRank")
    try:
        made = _core.Group.nccl(communicator.value, *settings)
    except BaseException:
        library.ncclCommDestroy(communicator)  # the error is that of the group
        raise
    check(library.ncclCommDestroy(communicator), "ncclCommDestroy")
    return made
