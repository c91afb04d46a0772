"""Recorded answers of real servers, read here with Python's own means and by `hammerscale inspect`: both must agree.

    recordings.py BINARY FOLDER…     prints how many answers of each kind were compared

A recording holds several answers as `curl -i -N --raw` received them. Lines that begin with `##### ` are the
recorder's: what was asked, and how curl ended.
"""

import base64
import concurrent.futures
import json
import pathlib
import subprocess
import sys

NOTE = b"##### "
CUTS = ("0", "1", "7")
FORMS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}


def answers(path):
    """(title, request path, request, bytes) of every answer of a recording."""
    title, asked, request, found = "", "/v1/chat/completions", None, []
    for line in path.read_bytes().splitlines(keepends=True):
        if line.startswith(NOTE):
            note = line[len(NOTE) :].decode().strip()
            if note.startswith("POST "):
                asked = note[5:]
            elif note.startswith("BODY "):
                try:
                    request = json.loads(note[5:])
                except ValueError:
                    request = {"stream": True}
            elif not note.startswith("curl exit"):
                title, request = note, None
                if "GET " in note:
                    asked = note.split("GET ")[1].split(" ")[0]
            current = None
        elif line.startswith(b"HTTP/1.1 "):
            current = [title, asked, request, line]
            found.append(current)
        elif line.startswith(b"curl: ("):
            current = None
        elif current is not None:
            current[3] += line
    return [(f"{path.stem}: {title}", asked, request, raw) for title, asked, request, raw in found]


def parts(raw):
    """Status, fields, body without its chunks, whether the body is complete, and what stands behind it."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = [tuple(part.strip() for part in line.split(":", 1)) for line in lines[1:]]
    named = {name.lower(): value for name, value in fields}
    status = int(lines[0].split(" ")[1])
    if "content-length" in named:
        length = int(named["content-length"])
        return status, fields, rest[:length], len(rest) >= length, rest[length:]
    if named.get("transfer-encoding") != "chunked":
        return status, fields, rest, True, b""
    body = b""
    while True:
        size, line_end, rest = rest.partition(b"\r\n")
        if not line_end:
            return status, fields, body, False, b""
        size = int(size, 16)
        if size == 0:
            done = rest.startswith(b"\r\n")
            return status, fields, body, done, rest[2:] if done else b""
        body += rest[:size]
        if len(rest) < size + 2:
            return status, fields, body, False, b""
        rest = rest[size + 2 :]


def events(body):
    """The data of every event. None of these recordings has a lone CR, a byte order mark or several data lines."""
    for block in body.decode().replace("\r\n", "\n").split("\n\n"):
        for line in block.split("\n"):
            if line.startswith("data:"):
                yield line[5:].removeprefix(" ")


def walk(form, body):
    """What an answer says, from its parsed events."""
    seen = {"events": 0, "content_text": "", "content_chunks": 0, "finish": set(), "done": False, "completion_tokens": None}
    for data in events(body):
        seen["events"] += 1
        if data.strip() == "[DONE]":
            seen["done"] = True
            break
        event = json.loads(data)
        text, usage = "", None
        if form in ("chat", "completions"):
            for choice in event.get("choices") or []:
                text += (choice.get("delta") or {}).get("content") or choice.get("text") or ""
                if choice.get("finish_reason"):
                    seen["finish"].add((str(choice["index"]), choice["finish_reason"]))
            usage = (event.get("usage") or {}).get("completion_tokens")
            if usage is None and event.get("timings"):
                usage = event["timings"]["predicted_n"]
        elif form == "responses":
            text = event["delta"] if event["type"] == "response.output_text.delta" else ""
            if event["type"] in ("response.completed", "response.incomplete", "response.failed"):
                seen["done"] = True
                usage = event["response"]["usage"]["output_tokens"]
        else:
            text = event["delta"].get("text") or "" if event["type"] == "content_block_delta" else ""
            if event["type"] == "message_start":
                usage = event["message"]["usage"]["output_tokens"]
            if event["type"] == "message_delta":
                usage = event["usage"]["output_tokens"]
                seen["finish"].add(("0", event["delta"]["stop_reason"]))
            seen["done"] = event["type"] == "message_stop"
        seen["content_text"] += text
        seen["content_chunks"] += bool(text)
        seen["completion_tokens"] = seen["completion_tokens"] if usage is None else usage
        if seen["done"]:
            break
    return seen


def inspect(binary, raw, *flags):
    """What the binary prints, whatever the cut."""
    printed = set()
    for cut in CUTS:
        run = subprocess.run([binary, "inspect", "-", "--json", "--cut", cut, *flags], input=raw, capture_output=True, check=False)
        assert run.returncode == 0 and not run.stderr, (run.returncode, run.stderr)
        printed.add(run.stdout)
    assert len(printed) == 1, f"{flags}: the cut changes the result"
    return json.loads(printed.pop())


def same(got, want, what):
    assert got == want, f"{what}: {got!r} instead of {want!r}"


def compare(binary, place, asked, request, raw):
    """Judges one answer; which kind it is."""
    status, fields, body, complete, behind = parts(raw)
    http = inspect(binary, raw, "--as", "http")
    same(http["status"], status, "status")
    same([tuple(field) for field in http["headers"]], fields, "headers")
    same(base64.b64decode(http["body_b64"]), body, "body")
    same(base64.b64decode(http["leftover_b64"]), behind, "leftover")
    same(http.get("unfinished", False), not complete, "unfinished")
    form = FORMS.get(asked)
    if form is None:
        return "plain"
    answer = inspect(binary, raw, "--as", form)
    same(answer["http_status"], status, "http_status")
    if status != 200:
        same((answer["outcome"], answer["error"]["category"]), ("failed", "http_error"), "outcome")
        return "failures"
    if request is not None and not request.get("stream"):
        return "whole"
    want = walk(form, body)
    for key in ("events", "content_text", "content_chunks", "done", "completion_tokens"):
        same(answer[key], want[key], key)
    if form != "responses":
        same(set(answer["finish_reason"].items()), want["finish"], "finish_reason")
    same(answer["outcome"], "ok" if complete and want["done"] else "failed", "outcome")
    return "streams"


def main():
    binary, *folders = sys.argv[1:]
    recorded = [answer for folder in folders for path in sorted(pathlib.Path(folder).iterdir()) for answer in answers(path)]
    counts, wrong = {}, []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        judged = [(answer[0], pool.submit(compare, binary, *answer)) for answer in recorded]
    for place, result in judged:
        try:
            kind = result.result()
            counts[kind] = counts.get(kind, 0) + 1
        except AssertionError as error:
            wrong.append(f"{place}: {error}")
    print("\n".join(wrong), file=sys.stderr)
    print(json.dumps(counts, sort_keys=True))
    sys.exit(bool(wrong))


main()
