# What steps are written in that run perftest and Towpath's tools in turn. Each run adds a line to
# $FIGURES: $round, percent lost ($loss), measure, bytes, queue pair, program, figure.

# How long a run may take, in seconds.
RUN_SECONDS=45
# A socket that listens on perftest's port, 18515, as the kernel lists it.
LISTENS=':4853 [0-9A-F]*:0000 0A '

# both PROGRAM ARGUMENTS...: a server on one device and its client on the other. Their set-up
# connection keeps off the cable, which loses packets.
both() {
    program=$1
    shift
    "$program" -d rxe1 "$@" >/tmp/server.log 2>&1 &
    server=$!
    # perftest's client does not ask twice.
    for _ in $(seq 100); do
        ! grep -q "$LISTENS" /proc/net/tcp /proc/net/tcp6 || break
        usleep 100000
    done
    status=0
    timeout "$RUN_SECONDS" "$program" -d rxe0 "$@" 127.0.0.1 >/tmp/client.log 2>&1 || status=$?
    [ "$status" = 0 ] || kill "$server" 2>/dev/null
    wait "$server" 2>/dev/null
    return "$status"
}

# measure BY MEASURE BYTES TYPE COMMAND...: one run; its figure is in the column that perftest has
# it in, with our tools too. BY is perftest, raw, reliable, or unchecked, which is reliable without
# a checksum of the payload.
measure() {
    by=$1 measure=$2 bytes=$3 type=$4
    shift 4
    case $measure in
    *_bw) column=4 ;;
    *_lat) column=5 ;;
    esac
    figure=
    if "$@" -s "$bytes" -c "$type"; then
        figure=$(awk -v s="$bytes" -v at=$column '$1 == s { print $at; exit }' /tmp/client.log)
    fi
    what="$measure of $bytes bytes, $type, $by, $loss % lost, round $round"
    if [ -n "$figure" ]; then
        echo "test $what ... ok"
    else
        cat /tmp/server.log /tmp/client.log
        echo "test $what ... FAILED"
        failures=$((failures + 1))
    fi
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$round" "$loss" "$measure" "$bytes" "$type" "$by" \
        "${figure:--}" >>"$FIGURES"
}

# compare MEASURE BYTES TYPE COUNT: perftest, ours with --raw, ours as it is. An rxe device has the
# IPv4 address that perftest shall use at index 1.
compare() {
    measure perftest "$1" "$2" "$3" both "ib_$1" -F -x 1 -n "$4"
    measure raw "$1" "$2" "$3" both "tow_$1" --raw -n "$4"
    measure reliable "$1" "$2" "$3" both "tow_$1" -n "$4"
}
