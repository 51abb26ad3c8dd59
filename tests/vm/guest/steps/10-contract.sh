# What every device does with UC, UD, RC, its queues and `wait`.
# test: device_contract
tests contract device_contract verbs::
