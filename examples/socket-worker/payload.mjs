// Payloads: values as base64 of an Avro frame with one fixed schema, and back. Whole numbers are longs, others doubles, Buffers bytes.

const FRAME = Buffer.from("c301e2a33dff55802237", "hex"); // two bytes of magic, and the fingerprint of the schema

function number(n) { // zig-zag, seven bits a byte, the lowest first
  let rest = BigInt.asUintN(64, (BigInt(n) << 1n) ^ (BigInt(n) >> 63n));
  const out = [];
  for (; rest > 127n; rest >>= 7n) out.push(Number(rest & 127n) | 128);
  return Buffer.from([...out, Number(rest)]);
}

const counted = (data) => Buffer.concat([number(data.length), data]);
const items = (parts) => Buffer.concat(parts.length ? [number(parts.length), ...parts, number(0)] : [number(0)]);

function datum(v) { // which of the eight kinds it is, and the value
  if (v === null || v === undefined) return number(0);
  if (typeof v === "boolean") return Buffer.concat([number(1), Buffer.from([v ? 1 : 0])]);
  if (typeof v === "bigint" || Number.isSafeInteger(v)) return Buffer.concat([number(2), number(v)]);
  if (typeof v === "number") {
    const double = Buffer.alloc(8);
    double.writeDoubleLE(v);
    return Buffer.concat([number(3), double]);
  }
  if (v instanceof Uint8Array) return Buffer.concat([number(4), counted(Buffer.from(v))]);
  if (typeof v === "string") return Buffer.concat([number(5), counted(Buffer.from(v))]);
  if (Array.isArray(v)) return Buffer.concat([number(6), items(v.map(datum))]);
  return Buffer.concat([number(7), items(Object.entries(v).map(([k, x]) => Buffer.concat([counted(Buffer.from(k)), datum(x)])))]);
}

// encode gives the envelope of a value.
export const encode = (value) => ({ codec: "avro", blob: Buffer.concat([FRAME, datum(value)]).toString("base64") });

// decode gives the value of an envelope or of a bare blob.
export function decode(payload) {
  const blob = typeof payload === "string" ? payload : payload?.blob;
  if (!blob) return null;
  const data = Buffer.from(blob, "base64");
  if (!data.subarray(0, FRAME.length).equals(FRAME)) throw new Error("not a payload of Sojourn");
  let at = FRAME.length;
  const number = () => {
    let n = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = data[at++];
      n |= BigInt(byte & 127) << shift;
      if (byte < 128) break;
    }
    const value = (n >> 1n) ^ -(n & 1n);
    return Number.isSafeInteger(Number(value)) ? Number(value) : value;
  };
  const bytes = () => {
    const length = number();
    return data.subarray(at, (at += length));
  };
  const list = (one) => {
    const out = [];
    for (let count = number(); count !== 0; count = number()) {
      if (count < 0) { // says its size in bytes as well
        count = -count;
        number();
      }
      for (; count > 0; count--) out.push(one());
    }
    return out;
  };
  const kinds = [
    () => null, () => data[at++] === 1, number, () => data.readDoubleLE((at += 8) - 8), bytes, () => bytes().toString(),
    () => list(value), () => Object.fromEntries(list(() => [bytes().toString(), value()])),
  ];
  const value = () => kinds[number()]();
  return value();
}
