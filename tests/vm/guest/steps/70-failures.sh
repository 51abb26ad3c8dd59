# What fails ends in a typed error and leaves nothing behind.
# test: verbs_failures
tests killed verbs_failures killed::who
tests exhausted verbs_failures exhausted::a exhausted::memory
tests lacking verbs_failures lacking::
tests released verbs_failures released::
