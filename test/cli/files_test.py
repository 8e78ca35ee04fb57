"""Input files: .npy of each kind, damaged ones, names, and streams."""

import json
import os
import struct
import subprocess
import threading
import unittest

import numpy as np

from support import BALLAST, DATA, WithFolder, run, run_json


class Files(WithFolder):
    def npy(self, header, body=b"", magic=b"\x93NUMPY\x01\x00"):
        text = header.encode() if isinstance(header, str) else header
        path = self.dir / "bad.npy"
        path.write_bytes(magic + struct.pack("<H", len(text)) + text + body)
        return path

    def check_bad(self, path):
        out = self.dir / "out.npy"
        out.write_bytes(b"precious")
        done = run("fft", path, "-o", out, status=2)
        self.assertIn(str(path.name), done.stderr)
        self.assertEqual(out.read_bytes(), b"precious")
        self.assertEqual(sorted(p.name for p in self.dir.iterdir() if "partial" in p.name), [])

    def piped(self, content, *arguments):
        return subprocess.run([BALLAST, *map(str, arguments)], input=content, capture_output=True, timeout=60)

    def transformed(self, source, *options, input=None):
        """What was read, by way of the inverse of the transform."""
        done = subprocess.run([BALLAST, "fft", str(source), "-o", self.dir / "f.npy", "--json", *map(str, options)], input=input, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return np.fft.ifft(np.load(self.dir / "f.npy")), json.loads(done.stdout)

    def test_each_damaged_npy(self):
        good = "{'descr': '<f8', 'fortran_order': False, 'shape': (4,), }"
        for header, body, magic in (
            (good, bytes(31), None), (good, bytes(33), None), (good.replace("<f8", "<U2"), bytes(32), None),
            (good.replace("<f8", "|O"), bytes(32), None), (good.replace("<f8", ""), bytes(32), None), (good.replace("<f8", "|f8"), bytes(32), None),
            (good.replace("<f8", "<f16"), bytes(64), None), (good.replace("4,", "4611686018427387904, 4"), bytes(32), None),
            (good.replace("4,", "99999999999999999999"), bytes(32), None), (good.replace("4,", "-4,"), bytes(32), None),
            (good.replace("False", "Maybe"), bytes(32), None), (good.replace("'shape'", "'form'"), bytes(32), None),
            ("not a dictionary", bytes(32), None), ("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (4,)}", bytes(32), None),
            (good, bytes(32), b"\x93NUMPY\x09\x00"), (good, bytes(32), b"PK\x03\x04...."), ("", b"", None), (b"\xff" * 40, b"", None),
        ):
            with self.subTest(header=header, magic=magic):
                self.check_bad(self.npy(header, body, magic or b"\x93NUMPY\x01\x00"))
                if magic is None:  # a stream, whose size is not known before
                    done = self.piped(self.npy(header, body).read_bytes(), "fft", "-", "-o", self.dir / "out.npy")
                    self.assertEqual(done.returncode, 2)
                    self.assertIn("standard input: ", done.stderr.decode())
        path = self.dir / "short.npy"
        for size in range(0, 12):
            path.write_bytes(b"\x93NUMPY\x01\x00\x46\x00{'"[:size])
            self.check_bad(path)
        huge = self.dir / "huge.npy"
        huge.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 0xFFFFFFF0) + b"{}")
        self.check_bad(huge)

    def test_missing_folder_and_wrong_ending(self):
        self.check_bad(self.dir / "absent.npy")
        (self.dir / "folder.npy").mkdir()
        self.check_bad(self.dir / "folder.npy")
        (self.dir / "x.txt").write_text("1,2")
        self.check_bad(self.dir / "x.txt")

    def test_unwritable_places(self):
        source = self.save("in.npy", np.ones(4))
        for place in (self.dir / "no" / "such" / "folder.npy", self.dir, self.dir / "out.txt", "/proc/out.npy"):
            run("fft", source, "-o", place, status=2)
        three = self.save("three.npy", np.ones((2, 2, 2)))
        run("fft", three, "-o", self.dir / "out.csv", status=2)
        run("qr", self.save("a.npy", np.ones((3, 2))), "--q", self.dir / "same.npy", "--r", self.dir / "same.npy", status=2)

    def test_numpy_format_2_and_empty_axes(self):
        path = self.dir / "v2.npy"
        with open(path, "wb") as out:
            np.lib.format.write_array(out, np.arange(4.0), version=(2, 0))
        run("fft", path, "-o", self.dir / "out.npy")
        np.testing.assert_allclose(np.load(self.dir / "out.npy"), np.fft.fft(np.arange(4.0)), atol=1e-14)
        run("fft", self.save("scalar.npy", np.array(1.0)), status=2)
        run("fft", self.save("empty.npy", np.zeros((3, 0))), status=2)

    def test_every_type_of_number_in_both_byte_orders(self):
        for dtype in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"):
            for order in "<>":
                for layout in "CF":
                    with self.subTest(dtype=dtype, order=order, layout=layout):
                        values = np.array([[0, 1, 0], [1, 1, 0]] if dtype == "?" else [[0, 1, 7], [100, 3, 5]]).astype(np.dtype(dtype).newbyteorder(order))
                        if dtype[0] in "if":
                            values[0, 2] = -2
                        if dtype[0] == "c":
                            values[0, 2] = 3 - 4j
                        path = self.save("x.npy", np.asarray(values, order=layout))
                        for source, data in ((path, None), ("-", path.read_bytes())):
                            read, seen = self.transformed(source, input=data)
                            np.testing.assert_allclose(read, values, atol=1e-5)
                            self.assertIn("f32" if dtype in ("f2", "f4", "c8") else "f64", seen["problem"])

    def test_extreme_numbers_of_each_type(self):
        halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
        halves = halves[np.isfinite(halves)]
        # One point each, whose transform is the point itself.
        run("fft", self.save("x.npy", halves.reshape(-1, 1)), "-o", self.dir / "y.npy")
        np.testing.assert_array_equal(np.load(self.dir / "y.npy")[:, 0], halves.astype(np.complex64))
        for dtype in ("i1", "u2", "i4", "u4", "i8", "u8"):
            about = np.iinfo(dtype)
            values = np.array([about.min, about.max, 1], dtype).reshape(-1, 1)
            seen = run_json("fft", self.save("x.npy", values), "-o", self.dir / "y.npy")
            np.testing.assert_array_equal(np.load(self.dir / "y.npy").real, values.astype(np.float64))
            self.assertEqual(len(seen["inputs"][0]["notes"]), 1 if dtype in ("i8", "u8") else 0)
        self.assertIn("1 of 3 integers need more than 53 bits", run("fft", self.save("x.npy", np.array([2**53 + 1, 2**53, 2**60]))).stdout)

    def test_labels_of_the_command_are_read(self):
        run("kmeans", DATA / "iris.csv", "-k", 3, "--labels", self.dir / "l.npy")
        self.assertEqual(np.load(self.dir / "l.npy").dtype, np.int32)
        read, _ = self.transformed(self.dir / "l.npy")
        np.testing.assert_allclose(read, np.load(self.dir / "l.npy"), atol=1e-12)

    def test_endings_in_capitals_and_names_without_one(self):
        values = np.array([[1.0, 2.0], [3.0, 4.0]])
        np.save(self.dir / "x.npy", values)
        (self.dir / "x.npy").rename(self.dir / "X.NPY")
        (self.dir / "D.CSV").write_text("1,2\n3,4\n")
        (self.dir / "text").write_text("1;2\n3;4\n")
        (self.dir / "array").write_bytes((self.dir / "X.NPY").read_bytes())
        for name in ("X.NPY", "D.CSV", "text", "array"):
            np.testing.assert_allclose(self.transformed(self.dir / name)[0], values)
        for name in ("Y.NPY", "Y.Csv"):
            run("fft", self.dir / "X.NPY", "-o", self.dir / name)
            self.assertTrue((self.dir / name).exists())
        self.assertIn(".npz", run("fft", self.npy("", magic=b"PK\x03\x04rest"), status=2).stderr)

    def test_standard_input(self):
        for content in (b"1,2\n3,4\n", (self.save("x.npy", np.array([[1.0, 2.0], [3.0, 4.0]]))).read_bytes()):
            for name in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
                with self.subTest(name=name):
                    np.testing.assert_allclose(self.transformed(name, input=content)[0], [[1, 2], [3, 4]])
                    (self.dir / "file").write_bytes(content)
                    with open(self.dir / "file", "rb") as file:
                        done = subprocess.run([BALLAST, "fft", name, "-o", self.dir / "g.npy"], stdin=file, capture_output=True)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    np.testing.assert_allclose(np.fft.ifft(np.load(self.dir / "g.npy")), [[1, 2], [3, 4]])
        for second in ("-", "/dev/stdin"):
            done = self.piped(b"1\n2\n", "lstsq", "-", second)
            self.assertEqual(done.returncode, 2)
            self.assertIn(b"for two inputs", done.stderr)
        done = subprocess.run(["sh", "-c", '"$0" fft - <&-', BALLAST], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("standard input: ", done.stderr)
        for endless in ("/dev/zero", "/dev/urandom"):
            self.assertIn("zero byte", run("fft", endless, status=2).stderr)

    def test_process_substitution(self):
        done = subprocess.run(["bash", "-c", '"$0" lstsq <(printf "1\\n2\\n") <(printf "2\\n4\\n") --json', BALLAST], capture_output=True, text=True, timeout=60)
        self.assertEqual(json.loads(done.stdout)["x"], [[2]])

    def test_fifos_are_read(self):
        csv, npy, other = self.dir / "in.csv", self.dir / "in.npy", self.dir / "in.txt"
        for path in (csv, npy, other):
            os.mkfifo(path)
        array = self.save("x.npy", np.arange(70000.0)).read_bytes()
        for path, content, length in ((csv, b"1\n2\n3\n", 3), (npy, array, 70000)):
            writer = threading.Thread(target=path.write_bytes, args=(content,))
            writer.start()
            self.assertEqual(run_json("fft", path)["shape"], [length])
            writer.join()
        run("fft", other, status=2)  # refused at once, without a writer

    def test_streams_that_are_not_as_their_header_says(self):
        content = self.save("x.npy", np.arange(8.0)).read_bytes()
        for data, part in ((content[:-1], b"truncated"), (content + b"x", b"got more"), (content[:60], b"truncated"), (content[:11], b"truncated"),
                           (content.replace(b"(8,)", b"(8000000000000,)").replace(b"             \n", b"\n"), b"truncated")):
            done = self.piped(data, "fft", "-")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(part, done.stderr)

    def test_messages_name_the_option_of_a_file(self):
        for option, name in (("--init", "kmeans++"), ("--weights", "absent.npy")):
            said = run("kmeans", DATA / "iris.csv", "-k", 3, option, name, status=2).stderr
            self.assertIn(f"{option}: ", said)
            self.assertIn(name, said)
        self.assertIn("k-means++", run("kmeans", DATA / "iris.csv", "-k", 3, "--init", "kmeans++", status=2).stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
