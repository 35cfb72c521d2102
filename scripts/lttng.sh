# Sourced by scripts which trace with LTTng: a session daemon of their own, beside one which the machine may run.
# shellcheck shell=bash

# lttng_isolate SCRIPT ARGUMENT...: to be called first, with the path and the arguments of the calling script.
#
# The session daemon, the applications and the `lttng` command meet in $LTTNG_HOME/.lttng, except those of root: these
# meet in /var/run/lttng, and nothing in LTTng 2.13 moves all three elsewhere. So a root script starts again in a mount
# namespace of its own, in which lttng_start lays a fresh folder over that one. Where namespaces are not allowed, a
# running daemon is shared: its other sessions stay untouched.
lttng_isolate() {
	if [ "$(id -u)" = 0 ] && [ -z "${THROUGHLINE_ISOLATED:-}" ] && unshare --mount true 2>/dev/null; then
		THROUGHLINE_ISOLATED=$$ exec unshare --mount --propagation private -- "$@"
	fi
}

# Waits until the command succeeds: wait_for SECONDS COMMAND...
wait_for() {
	local until=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$until" ] || return 1
		sleep 0.1
	done
}

# is_running PID: false also for one which has ended and only waits to be collected.
is_running() {
	local state
	state=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) || return 1
	[ "${state:0:1}" != Z ]
}

# end_process PID SECONDS: asks a child to end, insists after that time, and returns the child's exit code: 0 only if it
# was there to be asked and ended in order.
end_process() {
	kill -TERM "$1" 2>/dev/null || true
	wait_for "$2" eval "! is_running $1" || kill -KILL "$1" 2>/dev/null || true
	wait "$1" 2>/dev/null
}

# lttng_start LOG: afterwards LTTNG_SESSIOND_PID is the daemon's, or empty when a running one is shared.
lttng_start() {
	LTTNG_SESSIOND_PID=
	# A short path: socket names are limited to 107 bytes.
	LTTNG_PRIVATE_DIR=$(mktemp -d /tmp/throughline-lttng.XXXXXX)
	export LTTNG_HOME=$LTTNG_PRIVATE_DIR
	if [ "$(id -u)" = 0 ] && [ -n "${THROUGHLINE_ISOLATED:-}" ]; then
		mkdir -p /var/run/lttng "$LTTNG_PRIVATE_DIR/run"
		mount --bind "$LTTNG_PRIVATE_DIR/run" /var/run/lttng
	elif lttng --no-sessiond list >/dev/null 2>&1; then
		return 0
	fi
	lttng-sessiond --no-kernel >"$1" 2>&1 &
	LTTNG_SESSIOND_PID=$!
	wait_for 20 lttng --no-sessiond list
}

# The processes which carry LTTng's traces: session and consumer daemons, one a line.
lttng_pids() {
	local comm
	for comm in /proc/[0-9]*/comm; do
		case $(cat "$comm" 2>/dev/null) in
		lttng-sessiond | lttng-consumerd)
			comm=${comm#/proc/}
			printf '%s\n' "${comm%/comm}"
			;;
		esac
	done
}

lttng_stop() {
	if [ -n "${LTTNG_SESSIOND_PID:-}" ]; then
		end_process "$LTTNG_SESSIOND_PID" 20 || true
		LTTNG_SESSIOND_PID=
	fi
	if [ -n "${LTTNG_PRIVATE_DIR:-}" ]; then
		[ -z "${THROUGHLINE_ISOLATED:-}" ] || umount --lazy /var/run/lttng 2>/dev/null || true
		rm -rf "$LTTNG_PRIVATE_DIR"
		LTTNG_PRIVATE_DIR=
	fi
}

# lttng_session NAME OUTPUT-OPTION: a recording session for the thumbnail server, not yet started.
#
# The timer of the metadata channel makes the description of the events arrive with them, and not only at the end:
# else a relay which dies leaves packets nobody can read.
lttng_session() {
	lttng create "$1" "$2"
	lttng enable-channel --userspace --session="$1" --switch-timer=500000 metadata
	lttng enable-channel --userspace --session="$1" --subbuf-size=64K --num-subbuf=16 --switch-timer=500000 requests
	lttng add-context --userspace --session="$1" --channel=requests --type=vpid --type=vtid --type=procname
	lttng enable-event --userspace --session="$1" --channel=requests 'thumbnailer:*'
}
