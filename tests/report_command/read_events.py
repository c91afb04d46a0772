"""A reader of events.bin, written from docs/EVENTS.md and nothing else.

    read_events.py RUN      one line per request that is no warm-up, as `hammerscale report RUN --format events`
    read_events.py FILE     every chunk of an events.bin, one line each

Stamps are those of the request's own clock, which requests.jsonl names.
"""

import json
import os
import struct
import sys
import zlib


class Payload:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def byte(self):
        value = self.data[self.at]
        self.at += 1
        return value

    def uint(self):
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                assert value < 1 << 64
                return value

    def sint(self):
        value = self.uint()
        return (value >> 1) ^ -(value & 1)


def wrapped(value):
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def chunks_of(payload):
    chunks = []
    choice = before = 0
    for _ in range(payload.uint()):
        flags = payload.byte()
        assert flags & 0xE0 == 0, "unknown flags"
        if flags & 16:
            choice = payload.uint()
        user = wrapped(before + payload.sint())
        kernel = wrapped(user - payload.sint()) if flags & 8 else None
        not_before = wrapped(before + payload.sint())
        kind = ("reasoning", "content", "tool_call", "refusal")[flags & 3]
        chunks.append({"kind": kind, "choice": choice, "user": user, "kernel": kernel, "not_before": not_before, "exact": bool(flags & 4), "tokens": None})
        before = user
    assert payload.at == len(payload.data), "bytes behind the chunks"
    return chunks


def tokens_of(payload):
    counts = [payload.uint() for _ in range(payload.uint())]
    assert payload.at == len(payload.data), "bytes behind the tokens"
    return [count - 1 if count else None for count in counts]


def read(path):
    """{(request_index, warmup): chunks}"""
    with open(path, "rb") as f:
        magic, major, _minor, reserved = struct.unpack("<8sHHI", f.read(16))
        assert magic == b"HSEVENTS" and major == 1 and reserved == 0
        found, blocks, total, tokens = {}, 0, 0, None
        while True:
            length, checksum = struct.unpack("<II", f.read(8))
            assert 1 <= length <= 1048576
            payload = f.read(length)
            assert len(payload) == length and zlib.crc32(payload) == checksum
            payload = Payload(payload)
            kind = payload.byte()
            if kind == 1:
                key = (payload.uint(), payload.byte() == 1)
                chunks = chunks_of(payload)
                if tokens is not None:
                    assert len(tokens) == len(chunks), "tokens of other chunks"
                    for chunk, count in zip(chunks, tokens):
                        chunk["tokens"] = count
                tokens = None
                found.setdefault(key, []).extend(chunks)
                blocks += 1
                total += len(chunks)
            elif kind == 3:
                assert tokens is None, "tokens of no chunks"
                tokens = tokens_of(payload)
            elif kind == 2:
                assert tokens is None, "tokens of no chunks"
                assert (payload.uint(), payload.uint()) == (blocks, total), "the totals do not agree"
                assert not f.read(1), "bytes behind the end"
                return found


def main():
    run = sys.argv[1]
    if not os.path.isdir(run):
        for (request, warmup), chunks in read(run).items():
            for c in chunks:
                print(request, int(warmup), c["kind"], c["choice"], c["user"], c["kernel"], c["not_before"], int(c["exact"]), c["tokens"])
        return
    found = read(os.path.join(run, "events.bin"))
    with open(os.path.join(run, "requests.jsonl"), encoding="utf-8") as f:
        for line in f:
            row = json.loads(line)
            if row["phase"] == "warmup":
                continue
            chunks = found.pop((row["request_index"], False), [])
            assert len(chunks) == row["output_chunks"]
            for c in chunks:
                assert c["not_before"] <= c[row["stamp_source"]] <= c["user"], c
            at = [c[row["stamp_source"]] for c in chunks]
            if at:
                assert (at[0], at[-1]) == (row["first_output_ns"], row["last_output_ns"])
                assert chunks[0]["kind"] == row["first_output_kind"]
            for kind in ("reasoning", "content", "tool_call", "refusal"):
                assert sum(c["kind"] == kind for c in chunks) <= row[kind + "_chunks"]
            line = {"request_index": row["request_index"], "at_ns": at, "exact": [c["exact"] for c in chunks]}
            if any(c["tokens"] is not None for c in chunks):
                line["tokens"] = [c["tokens"] for c in chunks]
            print(json.dumps(line))
    assert not [key for key in found if not key[1]], "chunks of requests without a line"


main()
