#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Formatting of C++ and CUDA by .clang-format (clang-format 16). Usage: format.sh [--fix] (without: leaves with 1 where it differs)
set -euo pipefail
cd "$(dirname "$0")/../../.."
mode=(--dry-run --Werror)
case "${1-}" in
  "") ;;
  --fix) mode=(-i) ;;
  *) echo "usage: format.sh [--fix]" >&2; exit 1 ;;
esac
mapfile -d '' -t sources < <(git ls-files -z --cached --others --exclude-standard '*.h' '*.cpp' '*.cu' '*.cuh')
existing=()
for source in "${sources[@]}"; do if [ -f "$source" ]; then existing+=("$source"); fi; done
clang-format-16 "${mode[@]}" "${existing[@]}"
echo "format: ${#existing[@]} files"
