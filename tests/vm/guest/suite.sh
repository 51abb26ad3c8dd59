# The suite: the scripts below /steps that /out/plan names, in its order. Each finds a clean cable
# between rxe0 and rxe1, and leaves one behind.
. /lib.sh
network_up
while read -r step; do
    . "/steps/$step"
done </out/plan
