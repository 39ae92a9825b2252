"""Payloads: JSON values as base64 of an Avro frame with one fixed schema, and back.

payload.py BLOB prints the value as JSON, payload.py --encode JSON the blob.
"""

import base64, io, json, struct, sys

FRAME = bytes.fromhex("c301e2a33dff55802237")  # two bytes of magic, and the fingerprint of the schema


def number(n):  # zig-zag, seven bits a byte, the lowest first
    n, out = n << 1 ^ n >> 63, bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def counted(data):
    return number(len(data)) + data


def items(parts):  # one block with its length, and the empty one that ends a list
    return number(len(parts)) + b"".join(parts) + b"\0" if parts else b"\0"


def datum(v):  # which of the eight kinds it is, and the value
    match v:
        case None: return number(0)
        case bool(): return number(1) + bytes([v])
        case int() if -(2**63) <= v < 2**63: return number(2) + number(v)
        case float(): return number(3) + struct.pack("<d", v)
        case bytes(): return number(4) + counted(v)
        case str(): return number(5) + counted(v.encode())
        case list() | tuple(): return number(6) + items([datum(x) for x in v])
        case dict(): return number(7) + items([counted(k.encode()) + datum(x) for k, x in v.items()])
    raise TypeError(f"{v!r:.80} has no place in a payload")


def encode(value):
    return base64.b64encode(FRAME + datum(value)).decode()


def decode(blob):
    if not blob:
        return None
    data = io.BytesIO(base64.b64decode(blob))
    if data.read(10) != FRAME:
        raise ValueError("not a payload of Sojourn")

    def number():
        n = shift = 0
        while True:
            byte = data.read(1)[0]
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n >> 1 ^ -(n & 1)

    def counted():
        return data.read(number())

    def items(one):  # a block whose length is negative says its size in bytes as well
        while count := number():
            if count < 0:
                count, _ = -count, number()
            yield from (one() for _ in range(count))

    def value():
        return [
            lambda: None,
            lambda: data.read(1) == b"\x01",
            number,
            lambda: struct.unpack("<d", data.read(8))[0],
            counted,
            lambda: counted().decode(),
            lambda: list(items(value)),
            lambda: dict(items(lambda: (counted().decode(), value()))),
        ][number()]()

    return value()


if __name__ == "__main__":
    if sys.argv[1] == "--encode":
        print(encode(json.loads(sys.argv[2])))
    else:
        print(json.dumps(decode(sys.argv[1]), default=lambda b: base64.b64encode(b).decode()))
