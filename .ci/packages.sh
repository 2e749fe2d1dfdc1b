# SPDX-License-Identifier: MIT
# What weft is built with, on Debian 12 and Ubuntu 24.04. Sourced by train/quickstart.sh and tests/run.sh.
# The CUDA toolkit is not among them: with it (nvcc on PATH or in /usr/local/cuda) the CUDA kernels are built too.

packages=(build-essential cmake ninja-build git libyaml-cpp-dev libhdf5-dev libopenblas-dev libcli11-dev
          nlohmann-json3-dev libpng-dev libarchive-dev libsndfile1-dev libsamplerate0-dev pkg-config libgtest-dev
          googletest)

say() { printf '\n== %s\n' "$*"; }

# install_packages [more...]: installs what is missing, through apt-get (with sudo when not root, with $apt_options).
install_packages() {
  local missing=() root=() p
  for p in "${packages[@]}" "$@"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  say "installing: ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then root=(sudo); fi
  "${root[@]}" apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq ${apt_options:-} "${missing[@]}" >/dev/null
}

# nvcc's folder goes on PATH; true when there is a CUDA toolkit.
have_nvcc() {
  command -v nvcc >/dev/null && return 0
  [ -x /usr/local/cuda/bin/nvcc ] && export PATH="$PATH:/usr/local/cuda/bin"
}

have_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; }

# The preset for this machine: WEFT_PRESET, else cuda where there are a GPU and a toolkit, else cpu.
preset_here() { if have_nvcc && have_gpu; then echo "${WEFT_PRESET:-cuda}"; else echo "${WEFT_PRESET:-cpu}"; fi; }

# build PRESET [targets]: configures and compiles, on a machine with a GPU for its own architecture only, behind one
# line that shows how far it is. What cmake and the compiler say is in build/PRESET/{configure,compile}.log.
build() {
  local preset=$1 arguments=()
  shift
  if [ "$preset" = cuda ] && have_gpu; then
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
    [ "$capability" = 90 ] && capability=90a
    arguments+=("-DCMAKE_CUDA_ARCHITECTURES=${capability}-real")
  fi
  say "building with the preset '$preset' ($(nproc) cores); build/$preset/compile.log has what the compiler says"
  mkdir -p "build/$preset"
  logged "build/$preset/configure.log" cmake --preset "$preset" "${arguments[@]}"
  logged "build/$preset/compile.log" cmake --build --preset "$preset" ${@:+--target "$@"}
}

minutes() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }  # of seconds

# logged LOG COMMAND...: what it prints goes to LOG; a terminal sees how many steps of ninja are done. When it fails: the
# last lines, and where the others are. For scripts with `set -o pipefail`.
logged() {
  local log=$1 line start=$SECONDS failed=0
  shift
  "$@" 2>&1 | tee "$log" | while IFS= read -r line; do
    if [ -t 1 ] && [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
      printf '\r\033[K%d of %d compiled, %s' "${BASH_REMATCH[@]:1}" "$(minutes $((SECONDS - start)))"
    fi
  done || failed=1
  if [ -t 1 ]; then printf '\r\033[K'; fi
  if [ $failed = 0 ]; then return 0; fi
  echo "error: '$*' failed; the last lines of $log, which has all:" >&2
  tail -n 30 "$log" >&2
  return 1
}

# free_run FOLDER: FOLDER, or the first of FOLDER_2, FOLDER_3 ... that neither is there nor has a data file beside it.
free_run() {
  local name=$1 n=1
  while [ -e "$name" ] || [ -e "$name.h5" ]; do name=$1_$((++n)); done
  echo "$name"
}
