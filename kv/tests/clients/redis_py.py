"""redis-py and valkey-py, with their defaults, against the server at PORT."""
# usage: redis_py.py PORT

import sys

import redis
import valkey


def use(module, client):
    assert client.ping()
    assert client.set("k", "v") is True
    assert client.get("k") == b"v"
    assert client.get("none") is None
    assert client.set("k", "w", nx=True) is None
    assert client.set("k", "w", px=60_000, get=True) == b"v"
    assert 59_000 < client.pttl("k") <= 60_000
    assert client.expire("k", 10) is True and 9 <= client.ttl("k") <= 10
    assert client.persist("k") is True and client.ttl("k") == -1

    # By default a pipeline is a transaction.
    pipe = client.pipeline()
    pipe.set("a", 1).incr("a").get("a").expire("a", 100).ttl("a")
    assert pipe.execute() == [True, 2, b"2", True, 100]
    pipe = client.pipeline(transaction=False)
    pipe.set("b", 1).decr("b").mget("a", "b", "none")
    assert pipe.execute() == [True, 0, [b"2", b"0", None]]
    pipe = client.pipeline()
    pipe.set("a", "text").incr("a")
    try:
        pipe.execute()
        raise AssertionError("the number is text")
    except module.ResponseError as error:
        assert "not an integer" in str(error), error
    # Of a command that is none the others are not carried out either.
    pipe = client.pipeline()
    pipe.set("a", "other").hset("h", "f", 1)
    try:
        pipe.execute()
        raise AssertionError("there are no hashes")
    except module.ResponseError as error:
        assert "unknown command" in str(error), error
    assert client.get("a") == b"text"

    # WATCH: the second try is carried out.
    tries = []

    def add(pipe):
        had = int(pipe.get("b"))
        tries.append(had)
        if len(tries) == 1:
            client.set("b", 40)
        pipe.multi()
        pipe.set("b", had + 1)

    assert client.transaction(add, "b") == [True]
    assert tries == [0, 40] and client.get("b") == b"41"

    assert client.mset({"x": 1, "y": 2}) is True and client.exists("x", "y") == 2
    assert client.incr("x", 5) == 6 and client.decr("x", 2) == 4
    assert client.getset("y", 3) == b"2" and client.getdel("y") == b"3"
    assert client.append("s", "ab") == 2 and client.strlen("s") == 2
    assert client.info()["role"] == "master"
    assert client.client_setname("me") and client.client_id() > 0
    # Its lock is taken by SET and given back by a script, which there are none of.
    lock = client.lock("lock", timeout=5)
    assert lock.acquire()
    try:
        lock.release()
        raise AssertionError("there are no scripts")
    except module.ResponseError as error:
        assert "runs no scripts" in str(error), error
    # What is too long is refused in words, and not by a reset.
    try:
        client.set("k", b"x" * (8 << 20))
        raise AssertionError("it is too long")
    except (module.ResponseError, module.ConnectionError) as error:
        assert "invalid bulk length" in str(error), error
    assert client.flushall() is True and client.dbsize() == 0


port = int(sys.argv[1])
use(redis, redis.Redis(port=port))
use(redis, redis.Redis(port=port, protocol=2))
use(valkey, valkey.Valkey(port=port))
