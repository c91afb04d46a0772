"""What vLLM's `bench serve`, AIPerf and GuideLLM would have reported of a run: a second implementation, in plain Python.

    python3 peers.py requests.jsonl events.jsonl

`events.jsonl` is what `hammerscale report RUN --format events` prints: the stamps of the output chunks of each request.
Written from the tools' own definitions (vllm 0.33.0, aiperf 0.13.0, guidellm 0.8.1), tool by tool, as loops over
requests, and not from the tables of the program under test. Prints one JSON object per tool: metric name to number,
statistics, or null.
"""
import json
import math
import sys

MS, S = 1e6, 1e9


def load(requests, events):
    with open(events) as f:
        at = {e["request_index"]: e["at_ns"] for e in map(json.loads, f)}
    with open(requests) as f:
        rows = [r for r in map(json.loads, f) if r["phase"] != "warmup"]
    for r in rows:
        r["at"] = at[r["request_index"]]
        r["connected_start"] = r["send_start_ns"] if r["connect_start_ns"] is None else r["connect_start_ns"]
        # Of the whole prompt: some servers count the tokens of their cache beside the others.
        if r["prompt_tokens"] is not None and r["cache_counted_apart"]:
            r["prompt_tokens"] += (r["cached_tokens"] or 0) + (r["cache_creation_tokens"] or 0)
        r["over"] = r["end_ns"] if r["terminal_ns"] is None else r["terminal_ns"]
    return rows


# ---- numpy's statistics

def mean(x):
    return math.fsum(x) / len(x)


def std(x):
    m = mean(x)
    return math.sqrt(mean([(v - m) ** 2 for v in x]))


def percentile(x, p):
    x = sorted(x)
    i, f = divmod(p * (len(x) - 1), 100)
    i = int(i)
    return x[i] if f == 0 else x[i] + (x[i + 1] - x[i]) * f / 100


# ---- vLLM

def vllm(rows):
    clean = ("ok", "no_output", "truncated_stream", "server_error_in_stream", "canary_failed", "controlled_output_failed")
    outputs, failed = [], 0
    for r in rows:
        if r["outcome"] in ("incomplete", "cancelled"):
            continue
        chunks = list(r["at"])
        for k in ("first_textless_ns", "last_textless_ns")[: r["textless_chunks"]]:
            chunks.append(r[k])
        chunks.sort()
        good = r["outcome"] in clean and r["http_status"] == 200 and chunks
        if not good or r["malformed_events"] or r["cut_after_terminal"]:
            failed += 1
            continue
        st = r["connected_start"]
        outputs.append({
            "start": st, "ttft": chunks[0] - st, "latency": chunks[-1] - st, "times": chunks,
            "itl": [b - a for a, b in zip(chunks, chunks[1:])], "prompt": r["prompt_tokens"],
            "tokens": r["completion_tokens"] or None, "seen_all": r["textless_chunks"] <= 2,
        })
    dur = (max(r["end_ns"] for r in rows) - min(r["due_ns"] for r in rows)) / S
    known = all(o["tokens"] for o in outputs)
    prompts = all(o["prompt"] is not None for o in outputs)
    seen = all(o["seen_all"] for o in outputs)
    n_in = sum(o["prompt"] for o in outputs) if prompts else None
    n_out = sum(o["tokens"] for o in outputs) if known else None
    zero = min(o["start"] for o in outputs)
    buckets, busy = {}, {}
    for o in outputs:
        for t in o["times"]:
            second = int((t - zero) // S)
            buckets[second] = buckets.get(second, 0) + 1
        for second in range(int((o["start"] - zero) // S), int((o["start"] + o["latency"] - zero) // S) + 1):
            busy[second] = busy.get(second, 0) + 1
    result = {
        "duration": dur, "completed": len(outputs), "failed": failed, "total_input_tokens": n_in,
        "total_output_tokens": n_out, "request_throughput": len(outputs) / dur,
        "output_throughput": n_out / dur if known else None,
        "total_token_throughput": (n_in + n_out) / dur if known and prompts else None,
        "max_output_tokens_per_s": float(max(buckets.values())) if seen else None,
        "max_concurrent_requests": max(busy.values()),
    }
    tpots = [(o["latency"] - o["ttft"]) / (o["tokens"] - 1) for o in outputs if o["tokens"] and o["tokens"] > 1]
    for name, values in (
        ("ttft", [o["ttft"] for o in outputs]),
        ("tpot", tpots if known else []),
        ("itl", [gap for o in outputs for gap in o["itl"]] if seen else []),
        ("e2el", [o["latency"] for o in outputs]),
    ):
        values = [v / MS for v in values]
        for stat, rule in (("mean", mean), ("median", lambda x: percentile(x, 50)), ("std", std)):
            result["%s_%s_ms" % (stat, name)] = rule(values) if values else None
        for p in (90, 95, 99):
            result["p%d_%s_ms" % (p, name)] = percentile(values, p) if values else None
    return result


# ---- AIPerf

def aiperf(rows):
    clean = ("ok", "truncated_stream", "server_error_in_stream", "malformed_event", "canary_failed", "controlled_output_failed")
    columns = {}
    starts, finals, valid = [], [], 0

    def put(tag, *values):
        columns.setdefault(tag, []).extend(values)

    for r in rows:
        content = r["at"]
        if r["outcome"] not in clean or not 200 <= (r["http_status"] or 0) < 300 or not content or r["cut_after_terminal"]:
            continue
        valid += 1
        start = r["connected_start"]
        ttft, latency = content[0] - start, content[-1] - start
        starts.append(start)
        finals.append(start + latency)
        put("time_to_first_token", ttft / MS)
        put("request_latency", latency / MS)
        put("decode_duration", (latency - ttft) / MS)
        if len(content) > 1:
            put("time_to_second_token", (content[1] - content[0]) / MS)
            put("inter_chunk_latency", *[(b - a) / MS for a, b in zip(content, content[1:])])
        visible = [r[k] for k in ("first_content_ns", "first_tool_call_ns") if r[k] is not None]
        if visible:
            put("time_to_first_output_token", (min(visible) - start) / MS)
        isl, osl = r["prompt_tokens"], r["completion_tokens"]
        if isl is not None:
            put("input_sequence_length", isl)
            if ttft:
                put("prefill_throughput_per_user", isl / (ttft / S))
        if osl is None:
            continue
        put("output_sequence_length", osl)
        if latency:
            put("e2e_output_token_throughput", osl / (latency / S))
        if osl < 2:
            continue
        first = r["first_chunk_tokens"]
        decode = osl - 1 if first is None else osl - first
        if first is not None and (first <= 0 or decode < 1):
            decode = osl - 1
        itl = (latency - ttft) / decode
        put("inter_token_latency", itl / MS)
        if itl:
            put("output_token_throughput_per_user", 1 / (itl / S))
    duration = (max(finals) - min(starts)) / S
    result = {}
    for tag, x in columns.items():
        stats = {"avg": mean(x), "min": min(x), "max": max(x), "std": std(x), "count": len(x)}
        for p in (1, 5, 10, 25, 50, 75, 90, 95, 99):
            stats["p%d" % p] = percentile(x, p)
        result[tag] = stats
    total_isl, total_osl = sum(columns["input_sequence_length"]), sum(columns["output_sequence_length"])
    result.update({
        "benchmark_duration": duration, "request_count": valid, "request_throughput": valid / duration,
        "output_token_throughput": total_osl / duration, "total_token_throughput": (total_isl + total_osl) / duration,
    })
    return result


# ---- GuideLLM

def summary(values):
    """`values` are (value, weight)."""
    weights = {}
    for v, w in values:
        weights[v] = weights.get(v, 0.0) + w
    pdf = sorted((v, w) for v, w in weights.items() if w > 0)
    total = math.fsum(w for _, w in pdf)
    pdf = [(v, w / total) for v, w in pdf]
    m = math.fsum(v * p for v, p in pdf)
    count = round(total)
    result = {
        "mean": m, "std_dev": math.sqrt(math.fsum((v - m) ** 2 * p for v, p in pdf)), "min": pdf[0][0], "max": pdf[-1][0],
        "count": count, "total_sum": m * count,
    }
    quantiles = {"p001": 0.001, "p01": 0.01, "p05": 0.05, "p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9,
                 "p95": 0.95, "p99": 0.99, "p999": 0.999}
    cdf, so_far = [], 0.0
    for _, p in pdf:
        so_far += p
        cdf.append(so_far)
    for name, q in quantiles.items():
        result[name] = next((v for (v, _), c in zip(pdf, cdf) if c >= q), pdf[-1][0])
    result["median"] = result["p50"]
    return result


def guidellm(rows):
    clean = ("ok", "no_output", "truncated_stream", "canary_failed", "controlled_output_failed")
    successful = []
    for r in rows:
        usable = r["content_chunks"] or r["tool_call_chunks"] or (r["completion_tokens"] or 0) > 0
        if r["outcome"] in clean and 200 <= (r["http_status"] or 0) < 300 and usable and not r["malformed_events"]:
            successful.append(r)
    cols = {k: [] for k in ("latency", "ttft", "ttfot", "tpot", "itl", "prompt", "output")}
    for r in successful:
        start, tokens = r["send_start_ns"], r["completion_tokens"]
        tokens = len(r["at"]) if tokens is None else tokens
        cols["latency"].append(((r["over"] - start) / S, 1.0))
        cols["prompt"].append(r["prompt_tokens"])
        cols["output"].append(tokens)
        visible = [r[k] for k in ("first_content_ns", "first_tool_call_ns") if r[k] is not None]
        if visible:
            cols["ttfot"].append(((min(visible) - start) / MS, 1.0))
        last = r["at"][-1] if r["at"] else r["over"]
        if tokens:
            cols["tpot"].append(((last - start) / MS / tokens, float(tokens)))
        if r["at"]:
            cols["ttft"].append(((r["at"][0] - start) / MS, 1.0))
            if tokens > 1:
                cols["itl"].append(((last - r["at"][0]) / MS / (tokens - 1), tokens - 1.0))
    begin = min(r["send_start_ns"] for r in rows if r["send_start_ns"] is not None)
    span = (max(r["over"] for r in rows) - begin) / S
    known = all(p is not None for p in cols["prompt"])
    ones = lambda counts: summary([(float(n), 1.0) for n in counts])
    total = [p + o for p, o in zip(cols["prompt"], cols["output"])] if known else None
    return {
        "request_latency": summary(cols["latency"]), "time_to_first_token_ms": summary(cols["ttft"]),
        "time_to_first_output_token_ms": summary(cols["ttfot"]), "time_per_output_token_ms": summary(cols["tpot"]),
        "inter_token_latency_ms": summary(cols["itl"]),
        "prompt_token_count": ones(cols["prompt"]) if known else None, "output_token_count": ones(cols["output"]),
        "total_token_count": ones(total) if known else None,
        "requests_per_second": len(successful) / span, "output_tokens_per_second": sum(cols["output"]) / span,
        "prompt_tokens_per_second": sum(cols["prompt"]) / span if known else None,
        "tokens_per_second": sum(total) / span if known else None,
    }


if __name__ == "__main__":
    found = load(sys.argv[1], sys.argv[2])
    print(json.dumps({"vllm": vllm(found), "aiperf": aiperf(found), "guideLLM": guidellm(found)}, allow_nan=False))
