# What a link promises, on rxe alone.
# test: link_contract
tests link-contract link_contract verbs::
