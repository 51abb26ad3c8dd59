# Reliable links over UC, over a good cable and bad ones.
# test: link_contract
# test: verbs_link
tests link verbs_link clean_cable
for loss in 0.1 1 5; do
    cable loss "$loss%"
    tests "link-loss-$loss" verbs_link bad_cable
done
# Path 2 is on flow label 2, which is port 0xc002.
cable
swallow 49154
tests reroute verbs_link swallowed_port
swallow
cable loss 1%
tests lane-loss-1 link_contract verbs::additions verbs::what_is_written verbs::words
cable delay 1ms reorder 1% duplicate 1%
tests link-disorder verbs_link bad_cable
cable
