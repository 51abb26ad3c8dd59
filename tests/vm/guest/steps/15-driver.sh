# What shows beneath the contract, on the driver itself.
# unit: towpath-device-verbs
tests driver towpath_device_verbs device::tests
