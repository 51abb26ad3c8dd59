# What the scripts of the steps are written in: network.sh has `cable`, here is the rest.
. /network.sh
export TOWPATH_VERBS_PAIR=rxe0,rxe1

# How long a part of a step may take, in seconds: minutes of emulation on a busy host. Who hangs
# must leave time for the others.
PART_SECONDS=600

uptime_s() { cut -d. -f1 /proc/uptime; }

# part NAME COMMAND...: runs a command that prints what a test program of Rust prints, into
# /out/NAME.log. /out/parts is the list of them, each with its seconds.
part() {
    part=$1
    shift
    printf '%s %s' "$step" "$part" >>/out/parts
    echo "guest: $part"
    began=$(uptime_s)
    "$@" >"/out/$part.log" 2>&1 || echo "guest: $part failed"
    echo " $(($(uptime_s) - began))" >>/out/parts
}

# tests PART PROGRAM [FILTER...]: the ignored tests of a program that match.
tests() {
    name=$1 program=$2
    shift 2
    part "$name" timeout "$PART_SECONDS" \
        "/tests/$program" "$@" --ignored --test-threads 1 --show-output
}

# checks PART FUNCTION: a part made of `check`s, which a function of the step's script makes.
checks() { part "$1" checks_of "$2"; }
checks_of() {
    failures=0
    "$1"
    echo "test result: $failures failures"
    [ "$failures" = 0 ]
}

# A function cannot be timed; what it calls can.
limited() {
    case $(type "$1") in
    *function*) "$@" ;;
    *) timeout "$PART_SECONDS" "$@" ;;
    esac
}

# check NAME COMMAND...: one test; what the command prints stands before its result.
check() {
    check=$1
    shift
    if limited "$@"; then
        echo "test $check ... ok"
    else
        echo "exit status $? of: $*"
        echo "test $check ... FAILED"
        failures=$((failures + 1))
    fi
}

# capture NAME [WORDS...]: what crosses the cable, whole packets, from here to `capture_end` into
# /out/NAME.pcap; the words go to tcpdump, `-i` among them names another cable. One at a time.
capture() {
    file=/out/$1.pcap
    shift
    tcpdump -Z root -U -i veth0 -w "$file" "$@" udp port 4791 2>/tmp/tcpdump.log &
    tcpdump=$!
    # It says so when it listens.
    for _ in $(seq 600); do
        ! grep -q 'listening on' /tmp/tcpdump.log || break
        usleep 100000
    done
}
capture_end() {
    # What has crossed the cable is with it within its buffer's second.
    sleep 1
    kill "$tcpdump"
    wait "$tcpdump"
}
