# The suite: each step leaves /out/STEP.log; the list of steps is in /out/steps.
. /network.sh
export TOWPATH_VERBS_PAIR=rxe0,rxe1

# step NAME PROGRAM FILTER: runs the ignored tests of a program that match.
step() {
    echo "$1" >>/out/steps
    echo "guest: $1"
    timeout 120 "/tests/$2" "$3" --ignored --test-threads 1 --show-output >"/out/$1.log" 2>&1 ||
        echo "guest: $1 failed"
}

network_up
step contract device_contract verbs::
step link verbs_link clean_cable
for loss in 0.1 1 5; do
    cable loss "$loss%"
    step "link-loss-$loss" verbs_link bad_cable
done
cable delay 1ms reorder 1% duplicate 1%
step link-disorder verbs_link bad_cable
cable
step events device_contract unplugged
