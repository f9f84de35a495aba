"""Writes the console's files as a C++ source: embed.py OUT FILE..., so that the program needs none of them to run."""

import pathlib
import sys

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


def main():
    out = ['#include "aggregator/console/console.h"', "", "namespace weft::aggregator {", "namespace {", ""]
    rows = []
    for number, name in enumerate(sys.argv[2:]):
        path = pathlib.Path(name)
        data = path.read_bytes()
        out.append(f"constexpr unsigned char k{number}[] = {{{','.join(map(str, data))}}};")
        rows.append(f'    {{"{path.name}", "{TYPES[path.suffix]}", '
                    f"{{reinterpret_cast<const char*>(k{number}), sizeof k{number}}}}},")
    out += ["", "}  // namespace", "", "const std::vector<ConsoleFile>& console_files() {",
            "  static const std::vector<ConsoleFile> kFiles{", *rows, "  };", "  return kFiles;", "}", "",
            "}  // namespace weft::aggregator", ""]
    pathlib.Path(sys.argv[1]).write_text("\n".join(out), encoding="ascii")


if __name__ == "__main__":
    main()
