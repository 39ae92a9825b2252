"""Turns the payload of a task, base64 of an Avro frame with one fixed schema, into JSON: payload.py BLOB."""

import base64, io, json, struct, sys

data = io.BytesIO(base64.b64decode(sys.argv[1]))
assert data.read(10) == bytes.fromhex("c301e2a33dff55802237"), "not a payload of Sojourn"


def number():  # zig-zag, seven bits a byte
    n = shift = 0
    while True:
        byte = data.read(1)[0]
        n |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return n >> 1 ^ -(n & 1)


def text():
    return data.read(number()).decode()


def items(one):  # blocks, each with its length in front; an empty one ends them
    while count := number():
        if count < 0:
            count, _ = -count, number()
        yield from (one() for _ in range(count))


def value():  # a number says which kind follows
    return [
        lambda: None,
        lambda: data.read(1) == b"\x01",
        number,
        lambda: struct.unpack("<d", data.read(8))[0],
        lambda: base64.b64encode(data.read(number())).decode(),
        text,
        lambda: list(items(value)),
        lambda: dict(items(lambda: (text(), value()))),
    ][number()]()


print(json.dumps(value()))
