# What rxe's UC does after a lost packet, and what helps.
# test: wedges
cable loss 5%
tests wedges wedges
cable
