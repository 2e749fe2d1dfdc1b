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

# configure PRESET [cmake arguments]: on a machine with a GPU only its own architecture is built.
configure() {
  local preset=$1 arguments=()
  shift
  if [ "$preset" = cuda ] && have_gpu; then
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
    [ "$capability" = 90 ] && capability=90a
    arguments+=("-DCMAKE_CUDA_ARCHITECTURES=${capability}-real")
  fi
  cmake --preset "$preset" "${arguments[@]}" "$@" >"build-$preset.log" 2>&1 || { cat "build-$preset.log"; return 1; }
  rm -f "build-$preset.log"
}
