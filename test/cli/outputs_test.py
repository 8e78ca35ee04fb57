"""Output files and streams: whole or untouched."""

import json
import os
import signal
import stat
import subprocess
import time
import unittest

import numpy as np

from support import BALLAST, DATA, WithFolder, run


class Outputs(WithFolder):
    """What lies at the place of an output, what signals leave behind, and what others do there meanwhile."""

    STRIKE = ("--inject", "site=fft.stage,model=bit_flip,bit=62,seed=1")

    def setUp(self):
        super().setUp()
        self.matrix = self.save("a.npy", self.random.normal(size=(5, 3)))
        self.q, self.r, self.fifo = self.dir / "q.npy", self.dir / "r.npy", self.dir / "events"

    def partial(self):
        return [each for each in self.dir.iterdir() if "partial" in each.name]

    def start_and_stop_before_names_are_given(self, *before):
        """A run with two files and a FIFO that nobody reads: it waits when the files are complete under their temporary names."""
        os.mkfifo(self.fifo)
        running = subprocess.Popen([*before, BALLAST, "qr", self.matrix, "--q", self.q, "--r", self.r, "--events", self.fifo],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(running.stderr.close)
        self.addCleanup(running.wait)
        self.addCleanup(running.kill)
        end = time.monotonic() + 20
        while len(self.partial()) < 2 or any(each.stat().st_size == 0 for each in self.partial()):
            self.assertIsNone(running.poll(), "it did not wait for the reader of the FIFO")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        return running

    def go_on(self, running):
        with open(self.fifo) as events:
            events.read()
        return running.communicate(timeout=60)[1]

    def test_fifos_and_devices_are_written_through(self):
        os.mkfifo(self.fifo)
        with subprocess.Popen([BALLAST, "fft", DATA / "sunspots.csv", "--events", self.fifo, "--quiet", *self.STRIKE]) as running:
            reader = os.open(self.fifo, os.O_RDONLY | os.O_NONBLOCK)
            running.wait(60)
            self.assertEqual(running.returncode, 0)
            self.assertEqual(json.loads(os.read(reader, 1 << 16))["action"], "recomputed")
            os.close(reader)
        self.assertTrue(stat.S_ISFIFO(self.fifo.stat().st_mode))
        ours, theirs = os.openpty()
        name = os.ttyname(theirs)
        run("fft", DATA / "sunspots.csv", "--events", name, *self.STRIKE)
        self.assertTrue(stat.S_ISCHR(os.stat(name).st_mode))
        self.assertIn(b"recomputed", os.read(ours, 1 << 16))
        os.close(ours)
        os.close(theirs)

    def test_arrays_go_into_a_fifo(self):
        path = self.dir / "pipe.csv"
        os.mkfifo(path)
        with subprocess.Popen([BALLAST, "fft", DATA / "sunspots.csv", "-o", path, "--quiet"]) as running:
            self.assertEqual(len(path.read_text().split()), 309)
            self.assertEqual(running.wait(60), 0)

    def test_the_file_of_standard_output_is_written_through(self):
        log, link = self.dir / "log", self.dir / "stdout"
        link.symlink_to("/proc/self/fd/1")  # as /dev/stdout, which a command that fails here would replace
        with open(log, "w") as out:
            out.write("before\n")
            out.flush()
            subprocess.run([BALLAST, "fft", DATA / "sunspots.csv", "--events", link, *self.STRIKE], stdout=out, check=True)
            out.write("after\n")
        lines = log.read_text().splitlines()
        self.assertEqual((lines[0], lines[-1]), ("before", "after"))
        self.assertEqual(json.loads(lines[1])["action"], "recomputed")
        self.assertIn("verdict recomputed", "".join(lines))

    def test_what_standard_output_does_not_take_is_a_failure(self):
        for arguments in (("fft", DATA / "sunspots.csv"), ("fft", DATA / "sunspots.csv", "--json"), ("info",), ("--help",), ("--version",)):
            with self.subTest(arguments=arguments), open("/dev/full", "w") as full:
                done = subprocess.run([BALLAST, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 1)
                self.assertIn("No space left", done.stderr)
        # A closed one: no output file may become it.
        out = self.dir / "out.npy"
        done = subprocess.run(["sh", "-c", '"$0" fft "$1" -o "$2" >&-', BALLAST, DATA / "sunspots.csv", out], stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)
        self.assertEqual(np.load(out).shape, (309,))

    def test_signals_leave_nothing_behind(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGABRT, signal.SIGQUIT):
            with self.subTest(signal=number):
                self.q.write_bytes(b"precious")
                running = self.start_and_stop_before_names_are_given()
                running.send_signal(number)
                self.assertEqual(running.wait(60), -number)
                self.assertEqual(self.partial(), [])
                self.assertEqual(self.q.read_bytes(), b"precious")
                self.assertFalse(self.r.exists())
                self.fifo.unlink()

    def test_what_a_killed_run_leaves_blocks_nobody(self):
        running = self.start_and_stop_before_names_are_given()
        running.kill()
        running.wait()
        left = len(self.partial())
        self.assertGreater(left, 0)
        run("qr", self.matrix, "--q", self.q, "--r", self.r)
        self.assertEqual(len(self.partial()), left)
        self.assertEqual(np.load(self.q).shape, (5, 3))

    def test_an_ignored_signal_stays_ignored(self):
        running = self.start_and_stop_before_names_are_given("sh", "-c", 'trap "" HUP; exec "$0" "$@"')
        running.send_signal(signal.SIGHUP)
        self.assertEqual(self.go_on(running), "")
        self.assertEqual(running.returncode, 0)
        self.assertTrue(self.q.exists())

    def test_a_set_of_outputs_appears_together_or_not_at_all(self):
        for existed in (True, False):
            with self.subTest(existed=existed):
                if existed:
                    self.q.write_bytes(b"precious")
                else:
                    self.q.unlink()
                running = self.start_and_stop_before_names_are_given()
                self.r.mkdir()
                said = self.go_on(running)
                self.assertEqual(running.returncode, 1)
                self.assertIn("r.npy: expected a file to replace, got a folder", said)
                self.assertEqual(self.q.read_bytes() if self.q.exists() else None, b"precious" if existed else None)
                self.assertEqual(self.partial(), [])
                self.r.rmdir()
                self.fifo.unlink()

    def test_replacing_keeps_mode_and_owner(self):
        os.umask(0o022)
        self.q.write_bytes(b"old")
        self.q.chmod(0o640)
        if os.geteuid() == 0:
            os.chown(self.q, 12345, 23456)
        before = self.q.stat()
        run("qr", self.matrix, "--q", self.q, "--r", self.r)
        after = self.q.stat()
        self.assertEqual(np.load(self.q).shape, (5, 3))
        self.assertEqual((after.st_mode, after.st_uid, after.st_gid), (before.st_mode, before.st_uid, before.st_gid))
        self.assertEqual(stat.S_IMODE(self.r.stat().st_mode), 0o644)

    @unittest.skipUnless(os.geteuid() == 0, "needs files of two users")
    def test_a_file_of_another_user_is_not_taken_from_them(self):
        self.dir.chmod(0o777)
        self.matrix.chmod(0o644)
        self.q.write_bytes(b"precious")
        self.q.chmod(0o666)

        def as_another():
            os.setgroups([])
            os.setgid(12345)
            os.setuid(12345)

        done = subprocess.run([BALLAST, "qr", self.matrix, "--q", self.q], capture_output=True, text=True, preexec_fn=as_another, cwd="/")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("same owner", done.stderr)
        self.assertEqual((self.q.read_bytes(), self.q.stat().st_uid), (b"precious", 0))
        self.assertEqual(self.partial(), [])

    def test_links(self):
        """The file that a link names is replaced, not the link; a link that comes later is not followed."""
        target = self.dir / "target.npy"
        target.write_bytes(b"old")
        self.q.symlink_to("target.npy")
        run("qr", self.matrix, "--q", self.q)
        self.assertTrue(self.q.is_symlink())
        self.assertEqual(np.load(target).shape, (5, 3))
        run("qr", self.matrix, "--q", self.q, "--r", target, status=2)
        self.q.unlink()
        victim = self.dir / "victim"
        victim.write_bytes(b"precious")
        running = self.start_and_stop_before_names_are_given()
        self.q.symlink_to(victim)
        for each in self.partial():
            each.unlink()
            each.symlink_to(victim)
        self.go_on(running)
        self.assertEqual(victim.read_bytes(), b"precious")

    def test_a_link_to_nothing_is_followed(self):
        """As one to a file is: the link stays, and the file that it names is created."""
        (self.dir / "real").mkdir()
        target = self.dir / "real" / "target.npy"
        for name in ("real/target.npy", str(target), "second"):
            with self.subTest(name=name):
                (self.dir / "second").unlink(missing_ok=True)
                (self.dir / "second").symlink_to("real/target.npy")
                self.q.unlink(missing_ok=True)
                target.unlink(missing_ok=True)
                self.q.symlink_to(name)
                self.assertEqual(run("qr", self.matrix, "--q", self.q, "--r", target, status=2).stdout, "")  # the same file twice
                self.assertFalse(target.exists())
                run("qr", self.matrix, "--q", self.q)
                self.assertTrue(self.q.is_symlink())
                self.assertEqual(np.load(target).shape, (5, 3))
                self.assertEqual(self.partial(), [])
        for name in ("missing/target.npy", "q.npy"):  # no folder for the file; a link to itself
            self.q.unlink()
            self.q.symlink_to(name)
            run("qr", self.matrix, "--q", self.q, status=2)
            self.assertTrue(self.q.is_symlink())

    def test_closed_and_full_streams_do_not_change_the_exit_status(self):
        lost, missing = ("info",), ("fft", "absent.npy")
        uncorrectable = ("fft", str(DATA / "sunspots.csv"), "--inject", "site=fft.output,model=stuck_at,seed=1")
        for arguments, status in ((lost, 1), (missing, 2), ((), 2), (uncorrectable, 3)):
            for streams in (">&- 2>&-", ">/dev/full 2>/dev/full", ">&- 2>/dev/full", "<&- >&- 2>&-"):
                with self.subTest(arguments=arguments, streams=streams):
                    done = subprocess.run(["sh", "-c", f'"$0" "$@" {streams}', BALLAST, *arguments], timeout=60)
                    self.assertEqual(done.returncode, status)
        for streams in ("2>&-", "2>/dev/full"):
            self.assertEqual(subprocess.run(["sh", "-c", f'"$0" info {streams}', BALLAST], stdout=subprocess.DEVNULL, timeout=60).returncode, 0)
            self.assertEqual(subprocess.run(["sh", "-c", f'"$0" kmeans "$1" -k 2 --verbose {streams}', BALLAST, DATA / "iris.csv"],
                                            stdout=subprocess.DEVNULL, timeout=60).returncode, 0)

    def test_standard_output_is_no_file_by_the_name_of_a_dash(self):
        for option in ("--q", "--events"):
            self.assertEqual(subprocess.run([BALLAST, "qr", self.matrix, option, "-"], capture_output=True, cwd=self.dir).returncode, 2)
            self.assertFalse((self.dir / "-").exists())

    def test_long_names(self):
        path = self.dir / ("n" * 251 + ".npy")
        run("qr", self.matrix, "--q", path)
        self.assertEqual(np.load(path).shape, (5, 3))


if __name__ == "__main__":
    unittest.main(verbosity=1)
