#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Prints one hash of everything that the test binary is compiled from.
# Usage: tests/tools/source_hash.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
find CMakeLists.txt kernels src models data train tests -type f \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name CMakeLists.txt \) |
  LC_ALL=C sort | xargs sha256sum | sha256sum | cut -d' ' -f1
