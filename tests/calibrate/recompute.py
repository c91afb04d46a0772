"""Rows of a calibration once more, from the files it leaves: DIR, then the numbers of streams.

The ledger is read from the layout in src/sim/ledger/mod.rs, events.bin by the reader written from docs/EVENTS.md. Prints
one JSON object: what each row of calibration.json must say. Nothing here is shared with the product.
"""

import json
import math
import os
import struct
import subprocess
import sys

READER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "report_command", "read_events.py")
REASONING, CONTENT = 1, 2


def ledger(path):
    """{request id: [(before, bytes) of each output event]}"""
    with open(path, "rb") as f:
        data = f.read()
    magic, version, length = struct.unpack_from("<8sHH", data)
    assert magic == b"HSLEDGER" and version == 2
    at, ids, events, totals = 12 + length, {}, {}, None
    while at < len(data):
        tag, size = struct.unpack_from("<BH", data, at)
        body = data[at + 3 : at + 3 + size]
        at += 3 + size
        if tag == 2:
            number, _connection, _uses, _arrival, _service, _status, flags = struct.unpack_from("<QQIqBHB", body)
            (length,) = struct.unpack_from("<H", body, 32 + 32)
            if flags & 2:
                ids[number] = body[66 : 66 + length].decode()
        elif tag == 4:
            kind, _tokens, _index, request, _planned, before, _after, size = struct.unpack_from("<BIIQqqqI", body)
            if kind in (REASONING, CONTENT):
                events.setdefault(request, []).append((before, size))
        elif tag == 7:
            totals = struct.unpack_from("<QQQ", body)
    assert totals is not None, "the ledger has no end"
    return {ids[number]: found for number, found in events.items()}


def client(run):
    """[(request id, row, chunks)] with stamps on CLOCK_MONOTONIC"""
    with open(os.path.join(run, "run.json"), encoding="utf-8") as f:
        document = json.load(f)
    zero = int(document["started_monotonic_ns"])
    listing = subprocess.run(
        [sys.executable, "-I", READER, os.path.join(run, "events.bin")], check=True, capture_output=True, text=True
    )
    chunks = {}
    for line in listing.stdout.splitlines():
        request, _warmup, _kind, _choice, user, kernel, _not_before, exact, _tokens = line.split()
        chunks.setdefault(int(request), []).append((zero + int(kernel), zero + int(user), exact == "1"))
    with open(os.path.join(run, "requests.jsonl"), encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    return [(row["request_id"], row, chunks.get(row["request_index"], [])) for row in rows], zero, document


def rank(ordered, per_mille):
    return ordered[max(1, math.ceil(len(ordered) * per_mille / 1000)) - 1] / 1e3


def error(values):
    ordered = sorted(abs(value) for value in values)
    if not ordered:
        return {"count": 0, "p50": None, "p99": None, "p99_9": None, "max": None}
    of = {"p50": 500, "p99": 990, "p99_9": 999}
    return {"count": len(ordered), **{k: rank(ordered, q) for k, q in of.items()}, "max": ordered[-1] / 1e3}


def bias(values):
    ordered = sorted(values)
    if not ordered:
        return {"mean": None, "p50": None, "p99": None}
    return {"mean": sum(ordered) / len(ordered) / 1e3, "p50": rank(ordered, 500), "p99": rank(ordered, 990)}


def row(directory, streams):
    run = os.path.join(directory, f"streams-{streams}")
    truth = ledger(run + ".ledger")
    requests, zero, document = client(run)
    kernel, user, first, gaps, lags = [], [], [], [], []
    events, open_ns, open_gaps = 0, 0, 0
    assert sorted(truth) == sorted(name for name, _, _ in requests), "other requests"
    for name, line, chunks in requests:
        sent = [before for before, _ in truth[name]]
        assert len(sent) == len(chunks), name
        events += len(sent)
        open_ns += sent[-1] - sent[0]
        open_gaps += len(sent) - 1
        if chunks[0][2]:
            first.append(zero + line["first_output_ns"] - sent[0])
        for at, (kernel_at, user_at, exact) in zip(sent, chunks):
            if exact:
                kernel.append(kernel_at - at)
                user.append(user_at - at)
        for i in range(1, len(sent)):
            if chunks[i - 1][2] and chunks[i][2]:
                gaps.append((chunks[i][0] - chunks[i - 1][0]) - (sent[i] - sent[i - 1]))
        if line["connection_use"] >= 2:
            lags.append(line["send_start_ns"] - line["due_ns"])
    lag = {key: error(lags)[key] for key in ("p50", "p99", "p99_9")} if lags else None
    return {
        "streams": streams,
        "events": events,
        "event_rate_held": open_gaps * streams / (open_ns / 1e9),
        "kernel_us": error(kernel),
        "user_us": error(user),
        "ttft_bias_us": bias(first),
        "gap_bias_us": bias(gaps),
        "send_lag_us": lag,
        "coalesced_share": sum(line["coalesced_chunks"] for _, line, _ in requests) / events,
        "ring_drops": document["instrument"]["ring_drops"],
        "verdict": document["instrument"]["verdict"],
    }, [size for sent in truth.values() for _, size in sent]


def main():
    rows, sizes = [], []
    for streams in sys.argv[2:]:
        found, lengths = row(sys.argv[1], int(streams))
        rows.append(found)
        sizes += lengths
    print(json.dumps({"rows": rows, "event_bytes": sum(sizes) / len(sizes)}))


main()
