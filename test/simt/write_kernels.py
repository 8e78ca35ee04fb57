# Converts a list of kernel requests into C++ files that instantiate each kernel and register it with the emulator.
# Usage: write_kernels.py CHECKED FILE… -- GENERATOR…    A generator prints one request per line: header TAB expression [TAB anything].
# The first CHECKED files get one kernel in four, and at least one of each template. Unchanged files are not written, so that only changed
# ones are compiled again.
import subprocess
import sys
import zlib


def main(checked, files, generators):
    requests = {}  # expression: header
    for generator in generators:
        lines = subprocess.run([generator], stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
        if not lines:
            sys.exit(f"{generator}: expected kernel requests, got none")
        for number, line in enumerate(lines, 1):
            fields = line.split("\t")
            if len(fields) < 2 or not fields[0] or not fields[1]:
                sys.exit(f"{generator}: line {number}: expected header TAB expression, got {line!r}")
            requests[fields[1]] = fields[0]

    # The hash assigns kernels to files, so that a new request changes only one or two files.
    def hash_of(expression):
        return zlib.crc32(expression.encode())

    first = {}  # template: its request with the smallest hash
    for expression in sorted(requests, key=hash_of):
        first.setdefault(expression.split("<")[0], expression)
    shares = [[] for _ in files]
    for expression in sorted(requests):
        number = hash_of(expression)
        if checked == len(files) or number % 4 == 0 or expression in first.values():
            shares[number // 4 % checked].append(expression)
        else:
            shares[checked + number // 4 % (len(files) - checked)].append(expression)
    for path, share in zip(files, shares):
        text = "// Generated: kernels for the emulator.\n"
        text += "".join(f'#include "{header}"\n' for header in sorted({requests[expression] for expression in share}))
        text += '#include "simt/emulated_device.hpp"\n\nnamespace {\n'
        for index, expression in enumerate(share):
            literal = expression.replace("\\", "\\\\").replace('"', '\\"')
            text += f'[[maybe_unused]] const bool registered_{index} = simt::register_kernel("{literal}", &{expression});\n'
        text += "}  // namespace\n"
        try:
            with open(path) as old:
                if old.read() == text:
                    continue
        except FileNotFoundError:
            pass
        with open(path, "w") as new:
            new.write(text)


end = sys.argv.index("--")
main(int(sys.argv[1]), sys.argv[2:end], sys.argv[end + 1:])
