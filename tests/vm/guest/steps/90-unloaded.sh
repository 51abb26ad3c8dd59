# Devices that are taken away under running endpoints; each part joins them anew.
# test: verbs_failures
tests unloaded-link verbs_failures unloaded::a_deleted
tests unloaded-interface verbs_failures unloaded::an_interface
network_up
