#!/usr/bin/env bash
# Tests of the thumbnail server: real requests, and the events of each in a real LTTng trace.
# Usage: test.sh [BUILD-FOLDER]
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/setup.sh
. scripts/lttng.sh
lttng_isolate "$PWD/examples/thumbnailer/test.sh" "$@"

build=$(realpath "examples/thumbnailer/${1:-build}")
work=$(mktemp -d -t thumbnailer-test.XXXXXX)
server_pid=
port=
failures=0

finish() {
	local code=$?
	[ -z "$server_pid" ] || end_process "$server_pid" 10 || true
	lttng_stop
	rm -rf "$work"
	exit "$code"
}

# start_server VIDEO: on a port of the system's choice.
start_server() {
	LTTNG_UST_REGISTER_TIMEOUT=20000 "$build/thumbnailer" --listen 127.0.0.1:0 "$1" >"$work/ready" 2>"$work/server.log" &
	server_pid=$!
	wait_for 30 grep -q '^listening on ' "$work/ready" || die "the server does not start: $(cat "$work/server.log")"
	port=$(sed 's/.*://' "$work/ready")
}

# exchange BYTES: sends them as they are on a new connection and prints all of the answer.
exchange() {
	exec 3<>"/dev/tcp/127.0.0.1/$port"
	printf '%b' "$1" >&3
	cat <&3
	exec 3>&-
}

# is_read: whether the server has taken all that was sent to it; the kernel tells how much waits on each connection.
is_read() {
	awk -v port="$(printf ':%04X' "$port")" '
		substr($2, length($2) - 4) == port && $4 == "01" && $5 !~ /:00000000$/ { waiting = 1 }
		END { exit waiting }
	' /proc/net/tcp
}

# check NAME EXPECTED ACTUAL
check() {
	if [ "$2" = "$3" ]; then
		printf 'ok    %s\n' "$1"
	else
		printf 'FAIL  %s: expected %s, got %s\n' "$1" "$2" "$3"
		failures=$((failures + 1))
	fi
}

# check_status EXPECTED REQUEST-LINE [MORE]
check_status() {
	local answer
	answer=$(exchange "$2\r\n${3:-Host: test\r\n}\r\n" | head -n 1 | tr -d '\r')
	check "${2:0:60} is answered with $1" "$1" "$(cut -d ' ' -f 2 <<<"$answer")"
	answered=$((answered + 1))
}

# picture TARGET: what the answer holds, by ffprobe's judgement: codec and size.
picture() {
	exchange "GET $1 HTTP/1.1\r\nHost: test\r\n\r\n" >"$work/answer"
	sed '1,/^\r$/d' "$work/answer" >"$work/picture.jpg"
	ffprobe -v error -show_entries stream=codec_name,width,height -of csv=p=0 "$work/picture.jpg"
}

# The middle grey value of the picture at a time of a video that turns from black to white at 1 s.
brightness() {
	picture "/thumbnail?t=$1" >/dev/null
	ffmpeg -nostdin -v error -i "$work/picture.jpg" -vf scale=1:1 -f rawvideo -pix_fmt gray - | od -An -tu1 | tr -d ' '
}

count() {
	grep -c "thumbnailer:$1:" "$work/events" || true
}

test_answers() {
	check "a picture of the default width" "mjpeg,320,180" "$(picture '/thumbnail?t=0.5')"
	check "a picture of the asked width" "mjpeg,200,112" "$(picture '/thumbnail?t=1.5&width=200')"
	check "the end of the video is its last picture" "mjpeg,320,180" "$(picture '/thumbnail?t=2')"
	check "black before the change" "black" "$([ "$(brightness 0.9)" -lt 40 ] && echo black || echo bright)"
	check "white after the change" "bright" "$([ "$(brightness 1.1)" -gt 200 ] && echo bright || echo black)"
	answered=5
	for target in '/thumbnail' '/thumbnail?' '/thumbnail?t=' '/thumbnail?t=x' '/thumbnail?t=-1' '/thumbnail?t=nan' \
		'/thumbnail?t=1e0' '/thumbnail?t=0x1' '/thumbnail?t=1.2.3' '/thumbnail?t=2.1' '/thumbnail?t=99999999999' \
		'/thumbnail?t=1&t=1' '/thumbnail?t=1&width=15' '/thumbnail?t=1&width=1921' '/thumbnail?t=1&size=1'; do
		check_status 400 "GET $target HTTP/1.1"
	done
	check_status 400 'nonsense'
	check_status 404 'GET / HTTP/1.1'
	check_status 404 'GET /thumbnails?t=1 HTTP/1.1'
	check_status 405 'POST /thumbnail?t=1 HTTP/1.1'
	check_status 505 'GET /thumbnail?t=1 HTTP/2.0'
	check_status 414 "GET /$(printf '%0300d' 0) HTTP/1.1"
	check_status 431 'GET /thumbnail?t=1 HTTP/1.1' "X: $(printf '%09000d' 0)\r\n"
}

test_events() {
	babeltrace2 "$work/trace" >"$work/events"
	check "a begin for each request" "$answered" "$(count request_begin)"
	check "an end for each request" "$answered" "$(count request_end)"
	check "each answer is sent in a phase" "$answered $answered" "$(count send_begin) $(count send_end)"
	for phase in open seek decode encode; do
		check "phase $phase of each picture" "$pictures $pictures" "$(count ${phase}_begin) $(count ${phase}_end)"
	done
	check "as many request numbers as requests" "$answered" \
		"$(grep 'request_begin' "$work/events" | grep -o 'request_id = [0-9]*' | sort -u | wc -l)"
	check "as many answers with 200 as pictures" "$pictures" "$(grep -c 'request_end.*status = 200' "$work/events")"
}

main() {
	local loaded=60 pictures code
	lttng_start "$work/sessiond.log" || die "lttng-sessiond does not start: $(cat "$work/sessiond.log")"
	ffmpeg -nostdin -v error -f lavfi -i "color=black:size=640x360:rate=25:duration=1" \
		-f lavfi -i "color=white:size=640x360:rate=25:duration=1" \
		-filter_complex '[0][1]concat' -c:v libx264 -g 250 -pix_fmt yuv420p "$work/video.mp4"
	quietly "$work/session.log" lttng_session "test-$$" "--output=$work/trace"
	quietly "$work/session.log" lttng start "test-$$"
	start_server "$work/video.mp4"

	test_answers
	"$build/loader" --port "$port" --requests "$loaded" --concurrency 8 --duration 2 >"$work/load" || true
	check "the loader has its pictures" "$loaded answered, 0 failed" "$(cut -d , -f 1,2 "$work/load")"
	answered=$((answered + loaded))
	pictures=$((5 + loaded))

	# One client which says nothing and one which stops in the middle must not keep the server from ending.
	exec 4<>"/dev/tcp/127.0.0.1/$port" 5<>"/dev/tcp/127.0.0.1/$port"
	printf 'GET /thumb' >&5
	wait_for 10 is_read || die "the server does not read what it is sent"
	kill -TERM "$server_pid"
	wait "$server_pid" && code=0 || code=$?
	check "the server ends cleanly when asked to" 0 "$code"
	check "a client which says nothing gets no answer" "" "$(cat <&4)"
	check "half a request is answered with 408" "HTTP/1.1 408 Request Timeout" "$(head -n 1 <&5 | tr -d '\r')"
	exec 4>&- 5>&-
	answered=$((answered + 1))
	server_pid=

	quietly "$work/session.log" lttng stop "test-$$"
	quietly "$work/session.log" lttng destroy "test-$$"
	test_events

	check "a file which is no video is refused" 2 \
		"$("$build/thumbnailer" --listen 127.0.0.1:0 "$0" >/dev/null 2>&1 && echo 0 || echo $?)"
	[ "$failures" = 0 ] || die "$failures checks failed"
}

trap finish EXIT
main
