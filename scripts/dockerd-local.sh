#!/bin/sh
# Starts and stops a Docker daemon for `make test-docker` on a machine that has
# the packages but no service manager (a plain virtual machine, root).
#
#   scripts/dockerd-local.sh start   # waits until it answers; leaves a daemon that is there alone
#   scripts/dockerd-local.sh stop    # stops only the one that `start` started
#
# Published ports are bound to 127.0.0.1 alone. That also cures Docker 20.10
# giving IPv4 and IPv6 different ports.
set -eu

state=${OVERBOOK_DOCKERD_STATE:-/run/overbook-dockerd}

die() { echo "dockerd-local: $*" >&2; exit 1; }

answers() { docker version >/dev/null 2>&1; }

start() {
	if answers; then
		echo "a Docker daemon answers already"
		return
	fi
	[ "$(id -u)" = 0 ] || die "only root can start a daemon; or start Docker Desktop"
	command -v dockerd >/dev/null || die "no dockerd here; on Debian: apt-get install -y --no-install-recommends docker.io iptables"
	mkdir -p "$state"
	setsid dockerd --ip 127.0.0.1 --pidfile "$state/pid" >"$state/log" 2>&1 </dev/null &
	pid=$!
	tries=0
	until answers; do
		kill -0 "$pid" 2>/dev/null || { tail -20 "$state/log" >&2; die "dockerd ended; its log: $state/log"; }
		tries=$((tries + 1))
		[ "$tries" -le 300 ] || die "dockerd does not answer after 60 s; its log: $state/log"
		sleep 0.2
	done
	echo "dockerd answers (process $(cat "$state/pid"), log $state/log)"
}

stop() {
	[ -f "$state/pid" ] || { echo "none of ours runs"; return; }
	pid=$(cat "$state/pid")
	kill "$pid" 2>/dev/null || true
	tries=0
	while kill -0 "$pid" 2>/dev/null; do
		tries=$((tries + 1))
		[ "$tries" -le 150 ] || die "process $pid does not end"
		sleep 0.2
	done
	rm -rf "$state"
	echo "dockerd stopped"
}

case ${1:-} in
start) start ;;
stop) stop ;;
*) die "say start or stop" ;;
esac
