# A port that goes down, and what is not there.
# test: device_contract
tests events device_contract unplugged
