#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Prints one hash of what the GPU tests are built from (gpu_sources.py).
# Usage: tests/tools/source_hash.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
python3 tests/tools/gpu_sources.py | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -d' ' -f1
