"""Other artifacts that the reference could have published: consistent variants of those it did publish, one file each.

Written from the format's rules alone; every derived number is computed here, with Python's own `statistics` and `json`.

    variants.py OUT ARTIFACT...
"""

import copy
import json
import math
import os
import statistics
import sys
from collections import Counter

FAMILIES = [
    ("time_to_first_output", "time_to_first_output_ms", "_ms"),
    ("ttft", "ttft_ms", "_ms"),
    ("generation", "generation_ms", "_ms"),
    ("e2e", "e2e_ms", "_ms"),
    ("effective_prefill_tok_s", "effective_prefill_tok_s", ""),
    ("decode_tok_s", "decode_tok_s", ""),
    ("mean_inter_token_latency_ms", "mean_inter_token_latency_ms", ""),
    ("mean_time_per_output_token", "mean_time_per_output_token_ms", "_ms"),
    ("tpot", "mean_time_per_output_token_ms", "_ms"),
    ("prompt_tokens", "prompt_tokens", ""),
    ("completion_tokens", "output_tokens", ""),
]
TAILS = ["decode_tok_s", "e2e", "effective_prefill_tok_s", "tpot", "ttft"]


def family(name, values, suffix):
    n = len(values)
    out = {name + "_samples": n}
    stats = dict.fromkeys(
        ["mean", "stddev", "mean_ci95_low", "mean_ci95_high", "min", "max", "p25", "p50", "p75", "p90", "p95", "p99"]
    )
    if n:
        ordered = sorted(v * 1.0 for v in values)
        stats["mean"] = mean = statistics.fmean(values)
        stats["stddev"] = sd = statistics.stdev(values) * 1.0 if n > 1 else 0.0
        half = 1.96 * sd / math.sqrt(n)
        stats["mean_ci95_low"], stats["mean_ci95_high"] = mean - half, mean + half
        stats["min"], stats["max"] = ordered[0], ordered[-1]
        for q in (25, 50, 75, 90, 95, 99):
            stats["p%d" % q] = ordered[(q * n + 99) // 100 - 1]
    out.update({name + "_" + stat + suffix: value for stat, value in stats.items()})
    return out


def derive(row):
    """The derived fields of a row that are there, from those that are measured."""
    first = row.get("time_to_first_output_ms", row["ttft_ms"])
    generation = row["e2e_ms"] - first
    prompt, tokens = row["prompt_tokens"], row["output_tokens"]
    pace = None
    if tokens is not None and tokens > 1 and generation > 0:
        pace = generation / (tokens - 1)
    derived = {
        "generation_ms": generation,
        "visible_generation_ms": row["e2e_ms"] - row["ttft_ms"],
        "effective_prefill_tok_s": prompt / (first / 1000) if prompt is not None and first > 0 else None,
        "decode_tok_s": (tokens - 1) / (generation / 1000) if pace is not None else None,
        "mean_inter_token_latency_ms": pace,
        "mean_time_per_output_token_ms": pace,
        "tpot_ms": pace,
    }
    row.update({key: value for key, value in derived.items() if key in row})


def settle(doc):
    """Counts, population and metrics that are there, from rows, failures and the wall time."""
    rows, failures = doc["request_timings"], doc.get("failures", [])
    newest = "metric_population" in doc
    valid, failed = len(rows), len(failures)
    eligible = failed == 0
    counts = {
        "completed": valid,
        "failed": failed,
        "requests": valid + failed,
        "responses_received": valid + sum(f.get("response_received") is True for f in failures),
        "performance_eligible": eligible,
        "measurement_protocol": "capacity-v4-reasoning"
        if sum(r.get("reasoning_chunks", 0) for r in rows)
        else "capacity-v3",
    }
    planned = [r["planned_context_tokens"] for r in rows] + [f.get("planned_context_tokens") for f in failures]
    if None not in planned:
        counts["context_distribution"] = {str(k): n for k, n in Counter(planned).items()}
    doc.update({key: value for key, value in counts.items() if key in doc})

    metrics = {}
    for name, field, suffix in FAMILIES:
        fallback = "ttft_ms" if field == "time_to_first_output_ms" else None
        values = [r.get(field, r.get(fallback)) for r in rows]
        metrics.update(family(name, [v for v in values if v is not None], suffix))
    sources = [r["output_token_source"] for r in rows]
    exact = all(source == "usage" for source in sources)
    chunks = sum(r.get("content_chunks", 0) for r in rows)
    counted = sum(r["output_tokens"] if r["output_token_source"] == "usage" else r.get("content_chunks", 0) for r in rows)
    wall = doc.get("wall_clock_ms", 0) / 1000
    tokens = counted if exact or not newest else None
    throughput = tokens is not None and wall > 0 and (eligible or not newest)
    prompts = [r["prompt_tokens"] for r in rows if r["prompt_tokens"] is not None]
    canaries = [r["request_canary"] for r in rows if r.get("request_canary")]
    words = [r["controlled_output"] for r in rows if r.get("controlled_output")]
    adherent = sum(w["exact_adherence"] is True for w in words)
    hidden = sum(w["exact_adherence"] is None for w in words)
    metrics.update(
        {
            "prompt_tokens": sum(prompts) if prompts else None,
            "prompt_token_samples": len(prompts),
            "output_tokens": tokens,
            "reasoning_chunks": sum(r.get("reasoning_chunks", 0) for r in rows),
            "request_canary_samples": len(canaries),
            "request_canary_passed": sum(c["passed"] for c in canaries),
            "controlled_output_samples": len(words),
            "controlled_output_exact_adherence": adherent,
            "controlled_output_unobservable": hidden,
            "controlled_output_exact_adherence_rate": adherent / (len(words) - hidden) if len(words) > hidden else None,
            "throughput_performance_eligible": throughput,
            "output_token_sources": dict(Counter(sources)),
        }
    )
    if all("content_chunks" in r for r in rows):
        metrics["content_chunks"] = chunks
    if "wall_clock_ms" in doc:
        metrics["throughput_tok_s"] = tokens / wall if throughput else None
        metrics["content_chunks_s"] = chunks / wall if tokens is None and wall > 0 else None
    doc["metrics"].update({key: value for key, value in metrics.items() if key in doc["metrics"]})
    if newest:
        samples = {name: metrics[name + "_samples"] for name in TAILS}
        tail = lambda n: "tail-estimate" if n >= 100 else "descriptive-nearest-rank-only"
        doc["metric_population"].update(
            aggregate_throughput_eligible=throughput,
            attempted_requests=valid + failed,
            excluded_requests=failed,
            successful_requests=valid,
            performance_eligible_requests=valid,
            p99_interpretation=tail(valid),
            p99_interpretation_by_metric={name: tail(n) for name, n in samples.items()},
            p99_samples_by_metric=samples,
        )
    return doc


def failure(doc, row, received):
    """The row as a failure of its generation."""
    out = {"request_index": row["request_index"], "error_type": "ValueError", "error_message": "caf\u00e9 \U0001f600 \x7f\n"}
    if "metric_population" not in doc:
        return out
    out.update(error_message_truncated=False, performance_eligible=False, response_received=received, elapsed_ms=row["e2e_ms"] + 0.25)
    out.update(planned_context_tokens=row["planned_context_tokens"], failure_class="request_error")
    if received:
        out["failure_class"] = "stream_validation_failed"
        out["response_timing"] = {k: v for k, v in row.items() if k not in ("request_canary", "controlled_output")}
        out["response_metadata"] = {"finish_reasons": ["stop"], "usage": {}}
    return out


UNKNOWN = {"é": [1, 2.5e-7, -0.0, 1e22, 123456789012345678901234567890, -(10**40)], "": {"deep": [[{}], None, "\u2028\ud83d\ude00"]}}


def variants(doc):
    rows = doc["request_timings"]

    def changed(name, change):
        new = copy.deepcopy(doc)
        if change(new) is not False:
            for row in new["request_timings"]:
                derive(row)
            yield name, settle(new)

    def permuted(new):
        new["request_timings"].reverse()
        new["failures"].reverse()

    def fails(received):
        def change(new):
            new["failures"].append(failure(new, new["request_timings"].pop(), received))

        return change

    def nothing_completed(new):
        while new["request_timings"]:
            new["failures"].append(failure(new, new["request_timings"].pop(0), bool(len(new["failures"]) % 2)))

    def nothing(new):
        new["request_timings"], new["failures"] = [], []

    def one_row(new):
        new["request_timings"], new["failures"] = new["request_timings"][:1], []

    def many(new):
        some = new["request_timings"]
        for i in range(101 - len(some)):
            row = copy.deepcopy(some[i % len(rows)])
            row["request_index"] = 1000 + i
            row["e2e_ms"] += i * 0.37 + 0.001
            some.append(row)

    def without_usage(new):
        if "content_chunks" not in new["request_timings"][0]:
            # Before generation 4 what was counted is not in the row.
            return False
        new["request_timings"][0].update(output_token_source="content_chunks", output_tokens=None, prompt_tokens=None)

    def one_token(new):
        new["request_timings"][-1]["output_tokens"] = 1

    def truncated(new):
        for row in new["request_timings"]:
            if not row.get("controlled_output"):
                return False
            row["visible_content_truncated"] = True
            row["request_canary"].update(capture_complete=False, passed=False)
            row["controlled_output"].update(capture_complete=False, exact_adherence=None, passed=False)

    def unknown(new):
        places = [new, new["metrics"], new.get("sampling"), new.get("metric_population")]
        for item in new["request_timings"] + new["failures"]:
            places += [item, item.get("request_canary"), item.get("controlled_output"), item.get("response_timing")]
        for place in places:
            if place is not None:
                place["of tomorrow"] = UNKNOWN
        new["manifest"] = 123456789012345678901234567890

    def without(keys):
        def change(new):
            for key in keys:
                new.pop(key, None)

        return change

    def fewer_metrics(new):
        new["metrics"] = {k: v for i, (k, v) in enumerate(sorted(new["metrics"].items())) if i % 3}

    def fewer_row_keys(new):
        for row in new["request_timings"]:
            for key in ("tpot_ms", "decode_tok_s", "visible_generation_ms"):
                row.pop(key, None)

    yield from changed("permuted", permuted)
    yield from changed("nothing", nothing)
    yield from changed("unknown", unknown)
    yield from changed("no_labels", without(["gpu", "engine", "run_id", "finished_at", "sampling", "completed"]))
    yield from changed("fewer_metrics", fewer_metrics)
    if not doc["failures"]:
        yield from changed("no_failures_key", without(["failures"]))
    if rows:
        yield from changed("fails", fails(False))
        yield from changed("fails_received", fails(True))
        yield from changed("nothing_completed", nothing_completed)
        yield from changed("one_row", one_row)
        yield from changed("many", many)
        yield from changed("without_usage", without_usage)
        yield from changed("one_token", one_token)
        yield from changed("truncated", truncated)
        yield from changed("fewer_row_keys", fewer_row_keys)


def main():
    out, *paths = sys.argv[1:]
    for n, path in enumerate(paths):
        with open(path, encoding="utf-8") as file:
            doc = json.load(file)
        if "request_timings" not in doc:
            continue
        for name, variant in variants(doc):
            with open(os.path.join(out, "%02d-%s.json" % (n, name)), "w", encoding="ascii") as file:
                json.dump(variant, file, indent=2, sort_keys=True, allow_nan=False)
                file.write("\n")


main()
