"""Writes a C source that defines each function of ballast.h and of the headers that it includes, empty: compiled with debug information it has the types of the interface.

Usage: types_of_header.py HEADER SOURCE
"""

import pathlib
import re
import sys


def main():
    header, source = map(pathlib.Path, sys.argv[1:])
    text = header.read_text()
    for included in re.findall(r"^#include <ballast/(\w+\.h)>", text, re.MULTILINE):
        text += (header.parent / included).read_text()
    text = re.sub(r"//.*", "", text)
    found = re.findall(r"^BALLAST_C_API ([^;]+);", text, re.MULTILINE)
    if len(found) != text.count("BALLAST_C_API") - 2:  # its two definitions
        sys.exit("types_of_header: expected every BALLAST_C_API at the begin of a declaration")
    bodies = [f"{each} {{{'' if each.startswith('void ') else ' return 0; '}}}" for each in found]
    source.write_text("#include <ballast/ballast.h>\n" + "\n".join(bodies) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
