#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Two hosts on one machine, host0 and host1: network and host-name namespaces joined by a cable (veth). Starts a program N
# times on each, with the variables that torchrun sets, and waits for all. No root is needed where user namespaces are allowed.
# Usage: two_hosts.sh N PROGRAM [ARGUMENT ...]
# SIGTERM goes to every process. When a file of the name in CUT appears, the cable is cut. Exit code: 0, or that of the first
# process, by rank, that failed; 77 and a line that says why where namespaces cannot be had.
set -u
ranks=$1
shift

lacking() { echo "no two hosts here: $*" >&2; exit 77; }

if [ "${WEFT_TWO_HOSTS:-}" != inside ]; then
  for tool in unshare nsenter setpriv ip; do
    command -v "$tool" >/dev/null || lacking "no program $tool (packages util-linux and iproute2)"
  done
  own=(unshare --net --uts)
  [ "$(id -u)" -eq 0 ] || own+=(--user --map-root-user)
  why=$("${own[@]}" ip link add weft0 type veth peer name weft1 2>&1) || lacking "$why"
  WEFT_TWO_HOSTS=inside exec "${own[@]}" bash "$0" "$ranks" "$@"
fi
unset WEFT_TWO_HOSTS

setpriv --pdeathsig KILL unshare --net --uts sleep infinity &
other=$!
until [ "$(readlink "/proc/$other/ns/net")" != "$(readlink /proc/$$/ns/net)" ] && [ "$(cat "/proc/$other/comm")" = sleep ]; do
  kill -0 "$other" 2>/dev/null || lacking "no second namespace"
  sleep 0.02
done
there=(nsenter --target "$other" --net --uts)
hostname host0
"${there[@]}" hostname host1
ip link add weft0 type veth peer name weft1 netns "$other"
ip link set lo up
ip address add 192.0.2.1/24 dev weft0 && ip link set weft0 up
"${there[@]}" ip link set lo up
"${there[@]}" ip address add 192.0.2.2/24 dev weft1 && "${there[@]}" ip link set weft1 up

processes=()
for ((rank = 0; rank < 2 * ranks; ++rank)); do
  place=()
  [ "$rank" -lt "$ranks" ] || place=("${there[@]}")
  RANK=$rank WORLD_SIZE=$((2 * ranks)) LOCAL_RANK=$((rank % ranks)) LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=192.0.2.1 \
    MASTER_PORT=29500 OMP_NUM_THREADS=1 "${place[@]}" setpriv --pdeathsig KILL "$@" &
  processes+=($!)
done
exec 2>/dev/null  # what bash has to say of processes that were killed
trap 'kill -TERM "${processes[@]}"' TERM
cutter=
if [ -n "${CUT:-}" ]; then
  (until [ -e "$CUT" ]; do sleep 0.1; done; ip link set weft0 down) &
  cutter=$!
fi
code=0
for process in "${processes[@]}"; do
  while kill -0 "$process"; do wait "$process"; done
  wait "$process" || { failed=$?; [ "$code" -ne 0 ] || code=$failed; }
done
kill "$other" $cutter
exit "$code"
