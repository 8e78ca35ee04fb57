"""Tables of text: what is read, what is refused, and that whatever is left out is told."""

import unittest

import numpy as np

from support import DATA, WithFolder, run, run_json


class Csv(WithFolder):
    def write(self, text, name="x.csv"):
        path = self.dir / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def values(self, text, *options, name="x.csv"):
        """The numbers that are read, by way of the inverse of the transform, and the facts about the file."""
        seen = run_json("fft", self.write(text, name), "-o", self.dir / "f.npy", *options)
        return np.fft.ifft(np.load(self.dir / "f.npy")), seen["inputs"][0]

    def check(self, text, expected, *options, name="x.csv"):
        values, facts = self.values(text, *options, name=name)
        self.assertEqual(list(values.shape), list(np.shape(expected)), text)
        np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12, err_msg=str(text))
        return facts

    def refused(self, text, *parts, options=(), name="x.csv"):
        out = self.dir / "out.npy"
        done = run("fft", self.write(text, name), "-o", out, *options, status=2)
        for part in (f"{name}: ", *parts):
            self.assertIn(part, done.stderr, text)
        self.assertFalse(out.exists())

    def test_forms(self):
        for text in ("x;y\r\n1;2\r\n3;4\r\n", "# c\n\n1\t2\n3\t4\n", '"x","y"\n1, 2\n+3,4.0e0\n', "\ufeff1,2\n3,4", '"length, cm";"a ""b"""\n1;2\n3;4\n',
                     ",y\n1,2\n3,4\n", 'x,y\n"1","2"\n"3",4\n', "°C,µ\n1,2\n3,4\n", "x,y\r1,2\r3,4\r", "1,2\r\r\n3,4\r\r\n", '"two\nlines",y\n1,2\n3,4\n',
                     "x,NA\n1,2\n3,4\n"):
            with self.subTest(text=text):
                self.check(text, [[1, 2], [3, 4]])

    def test_numbers(self):
        self.check("1\n2\n3.5\n", [1, 2, 3.5])
        self.check("−1.5\n2\n3\n", [-1.5, 2, 3])  # U+2212
        self.check("1−2j\n0\n", [1 - 2j, 0])
        for text in ("1+2j\n-3j\n4\n", " (1.0e+00+2.0e+00j)\n (0.0e+00+-3.0e+00j)\n4\n", "1+2i\n-3i\n4\n", "4\n1+2j\n-3j\n"):
            values, _ = self.values(text)
            np.testing.assert_allclose(sorted(values, key=abs), [1 + 2j, -3j, 4], atol=1e-12)

    def test_a_broken_line_is_refused_with_its_place(self):
        for text, *parts in (
            ("1,5;2,5\n", "line 1, column 2", "one kind of separator", "decimal point"),
            ("1;2\n3,4\n", "line 2, column 1", "one kind of separator"),
            ("1\t2\n3;4\n", "line 2", "'tab' and ';'"),
            ('"1,5"\n', "line 1, column 1", 'got "1,5"'),
            ('1,"2,5"\n', "line 1, column 2", 'got "2,5"'),
            ('1,"2\n', "line 1, column 2", "closing quote"),
            ('1,"2"3\n', "line 1, column 2", "separator after the closing quote"),
            ("1.0.0\n2\n", "line 1, column 1", 'got "1.0.0"'),
            ("# a comment\n12:30,1\n13:30,2\n", "line 2, column 1", 'got "12:30"'),
            ("0x10,0x20\n1,2\n", "line 1, column 1", 'got "0x10"'),
            ("1 2 3\n4 5 6\n", "line 1, column 1", 'got "1 2 3"'),
            ("1e999,2\n1,2\n", "line 1, column 1", "a double can hold"),
            ("x\n1,2\n", "line 2", "expected 1 columns", "got 2"),
            ("x,y\n1,2\n3\n", "line 3", "expected 2 columns", "got 1"),
            ("x,y\n1,2\nz,4\n", "line 3, column 1", 'got "z"'),
            ('"two\nlines"\n1\nz\n', "line 4, column 1", 'got "z"'),
            ("5.687138413593-304,1\n", "line 1, column 1", "5.687138413593-304"),
            ("1.0D+05,1\n", "line 1, column 1", "1.0D+05"),
            ("1,2\0\n", "line 1", "zero byte"),
            ("1\xa0000,2\n", "line 1, column 1", "1\\u{a0}000"),
            ("1,2\n\ufeff3,4\n", "line 2, column 1", "\\u{feff}3"),
            ("\ufeff1\n2\n".encode("utf-16"), "UTF-16"),
            (b"\x93NUMPY\x01\0", ".npy"),
            ("", "at least one line of numbers"), ("# nothing\n", "at least one line of numbers"), ("a,b\n", "at least one line of numbers"),
        ):
            with self.subTest(text=text):
                self.refused(text, *parts)

    def test_what_is_no_name_makes_no_header(self):
        for first in ("<0.01", "(5)", "$5", "€5", "'5", "?", "NA", "null", ".", "-", "~5", "≤5", "５", "5%", "#N/A", "#DIV/0!", "#VALEUR!", "#¡DIV/0!"):
            with self.subTest(first=first):
                self.refused(f"{first}\n2\n3\n", "line 1, column 1", f'got "{first}"')
                self.refused(f"1\n{first}\n3\n", "line 2, column 1", f'got "{first}"')
        self.check("\ufeff\ufeff1.5\n2\n3\n", [1.5, 2, 3])
        self.refused("1,NA\n3,4\n", "line 1, column 2", 'got "NA"', "--missing drop")
        for text in ("x,2.5\n1,2\n", "2.5,x\n1,2\n", "5.1,setosa\n4.9,setosa\n"):
            self.refused(text, "line 1", "column 1", "column 2", "--header", "--columns")

    def test_comments(self):
        facts = self.check("# one\n#two, and more\n1,2\n# \"three\n3,4\n#1,2\n", [[1, 2], [3, 4]])
        self.assertEqual(facts["comment_lines"], 4)
        self.assertEqual(self.check("#X,Y\n1,2\n3,4\n", [[1, 2], [3, 4]])["comment_lines"], 1)
        self.assertEqual(self.check("#####\n# a\n#####\n1\n2\n", [1, 2])["comment_lines"], 3)
        for text, line in (("1,2\n#N/A,4\n5,6\n", 2), ("1\n2\n#NV\n", 3), ("#NV,4\n1,2\n", 1), ("# a\n1\n#N/A N/A\n", 3), ("1\n#YOK\n", 2)):
            with self.subTest(text=text):
                self.refused(text, f"line {line}, column 1", 'got "#')

    def test_whatever_is_left_out_is_told(self):
        facts = self.check("junk\n# c\nx,y\n1,2\n\n3,\n5,6\n\n", [[1, 2], [5, 6]], "--skip", 1, "--missing", "drop")
        self.assertEqual((facts["skipped_lines"], facts["comment_lines"], facts["blank_lines"], facts["dropped_lines"]), (1, 1, 1, [6]))
        self.assertEqual((facts["header"], facts["shape"]), (["x", "y"], [2, 2]))
        said = run("fft", self.dir / "x.csv", "--skip", 1, "--missing", "drop").stdout
        self.assertIn('read ' + str(self.dir / "x.csv") + ': 2 rows of 2 numbers, header "x", "y"; 1 line skipped; 1 comment line; '
                      "1 blank line between rows left out; 1 row with missing values left out (line 6)", said)
        self.assertIsNone(self.check("1\n2\n", [1, 2])["header"])

    def test_missing(self):
        for mark in ("", "NA", "n/a", "null", "?", "#N/A", "#DIV/0!", "nan", "NaN", "1.#IND", "-"):
            with self.subTest(mark=mark):
                facts = self.check(f"1,2\n{mark},4\n5,6\n7,{mark}\n", [[1, 2], [5, 6]], "--missing", "drop")
                self.assertEqual((facts["dropped_rows"], facts["dropped_lines"]), (2, [2, 4]))
        self.refused("NA\n?\n", "without missing values, got none of 2", options=("--missing", "drop"))
        self.refused("1,2\n<0.5,4\n", "line 2, column 1", options=("--missing", "drop"))  # not missing: between two numbers
        self.refused("1,2\n3\n", "line 2", "expected 2 columns", options=("--missing", "drop"))

    def test_missing_rows_of_two_files_are_left_out_of_both(self):
        A, b = self.write("1,1\nNA,2\n1,3\n1,4\n1,6\n", "a.csv"), self.write("2\n3\n4\n?\n7\n", "b.csv")
        seen = run_json("lstsq", A, b, "--missing", "drop")
        self.assertEqual([each["dropped_lines"] for each in seen["inputs"]], [[2, 4], [2, 4]])
        np.testing.assert_allclose(seen["x"][0], [1, 1], atol=1e-12)
        run("lstsq", A, b, status=2)
        points, weights = self.write("0\nNA\n4\n", "p.csv"), self.write("1\n99\n3\n", "w.csv")
        run("kmeans", points, "-k", 1, "--missing", "drop", "--weights", weights, "--centroids", self.dir / "c.npy")
        np.testing.assert_allclose(np.load(self.dir / "c.npy"), [[3]])

    def test_header(self):
        text = "0,1\n5,3\n4,9\n"
        facts = self.check(text, [[0, 1], [5, 3], [4, 9]])
        self.assertIn("--header yes", facts["notes"][0])
        self.assertEqual(self.check(text, [[5, 3], [4, 9]], "--header", "yes")["header"], ["0", "1"])
        self.assertEqual(self.check(text, [[0, 1], [5, 3], [4, 9]], "--header", "no")["notes"], [])
        self.refused("x,y\n1,2\n", "line 1, column 1", options=("--header", "no"))
        self.check("$5\n2\n", [2], "--header", "yes")

    def test_row_numbers(self):
        facts = self.check(",a,b\n0,1,2\n1,3,4\n2,5,7\n", [[0, 1, 2], [1, 3, 4], [2, 5, 7]])
        self.assertIn("--columns 2-", facts["notes"][0])
        facts = self.check(",a,b\n0,1,2\n1,3,4\n2,5,7\n", [[1, 2], [3, 4], [5, 7]], "--columns", "2-")
        self.assertEqual((facts["header"], facts["notes"]), (["a", "b"], []))
        self.assertEqual(self.check("t,a\n0,1\n1,3\n2,5\n", [[0, 1], [1, 3], [2, 5]])["notes"], [])  # a name: it is data

    def test_columns(self):
        text = "a,b,kind\n1,2,x\n3,4,y\n5,7,z\n"
        for columns, expected in (("a,b", [[1, 2], [3, 4], [5, 7]]), ("b,1", [[2, 1], [4, 3], [7, 5]]), ("1-2", [[1, 2], [3, 4], [5, 7]]), ("2", [2, 4, 7])):
            with self.subTest(columns=columns):
                self.check(text, expected, "--columns", columns)
        self.check("1,2,x\n3,4,y\n", [[1, 2], [3, 4]], "--columns", "-".join("12"))
        for columns, *parts in (("d", "one of the names a, b, kind, got d"), ("4", "columns from 1 to 3, got 4"), ("0", "got 0"), ("3-2", "got 3-2"),
                                ("1,a", "different columns, got 1 twice"), ("kind", "line 2, column 3", 'got "x"'), ("99999999999999999999", "from 1 to 3")):
            with self.subTest(columns=columns):
                self.refused(text, *parts, options=("--columns", columns))
        self.refused("1,2,x\n", "there is no header, got a", options=("--columns", "a"))
        self.refused("a,a\n1,2\n", "another one has", options=("--columns", "a"))
        iris = run_json("kmeans", DATA / "iris.csv", "-k", 3, "--columns", "petal_length,petal_width")
        self.assertIn("_n2_", iris["problem"])
        A = self.write("y,one,x\n3,1,1\n5,1,2\n7,1,3\n", "a.csv")
        np.testing.assert_allclose(run_json("lstsq", A, A, "--columns", "one,x", "--columns-b", "y")["x"][0], [1, 2], atol=1e-12)

    def test_options_for_tables_need_a_table(self):
        source = self.save("x.npy", np.ones((3, 2)))
        for options in (("--header", "yes"), ("--columns", "1"), ("--skip", "1"), ("--missing", "drop")):
            self.assertIn(f"{options[0]}: expected a table", run("fft", source, *options, status=2).stderr)

    def test_trailing_separators(self):
        for text in ("1,2,\n3,4,\n", "a,b,\n1,2,\n3,4,\n", "a,b\n1,2,\n3,4,\n", "a,b,\n1,2\n3,4\n", "1\t2\t\n3\t4\t\n", "1,2,"):
            with self.subTest(text=text):
                self.check(text, [[1, 2], [3, 4]] if "4" in text else [[1, 2]])
        self.refused("1,2,\n3,4,5\n", "line 1, column 3", 'got ""')
        self.refused("a,b,c\n1,2,\n3,4,\n", "line 2, column 3", 'got ""')
        self.refused("1,2\n3,4,\n", "line 2", "expected 2 columns", "got 3")
        self.refused("1,,2\n", "line 1, column 2", 'got ""')

    def test_tsv(self):
        self.check("a,b\tc\n1\t2\n", [[1, 2]], name="x.tsv")
        self.refused("1,5\t2\n", "line 1, column 1", 'got "1,5"', name="x.tsv")
        source = self.save("in.npy", np.array([[1.0, 2.0]]))
        run("fft", source, "--inverse", "--axes", 0, "-o", self.dir / "Y.TSV")
        self.assertEqual([complex(field) for field in (self.dir / "Y.TSV").read_text().rstrip("\n").split("\t")], [1, 2])


if __name__ == "__main__":
    unittest.main(verbosity=1)
