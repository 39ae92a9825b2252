"""Lists the members of the JSON bodies that the published Rust SDK sends, by method and path. It reads the text of the
SDK's sources: in each function with a request, the keys of the objects that become its body.

    python3 sdk_members_rust.py CRATE/src VERSION
"""
import glob, json, re, sys

FN = re.compile(r"^( {0,4})(?:pub(?:\([a-z]+\))? )?(?:async )?fn (\w+)", re.M)
POLL = re.compile(r"poll_request_json\w*\(\s*\"([^\"]*)\"")
METHOD = re.compile(r"Method::(POST|PUT|PATCH|DELETE),\s*(&?)(format!\(\s*)?(\"[^\"]*\"|\w+)")


def object_keys(text, start):
    """The keys of the object that opens at start."""
    keys, depth, i = [], 0, start
    while i < len(text):
        c = text[i]
        if c == '"':
            end = i + 1
            while text[end] != '"' or text[end - 1] == "\\":
                end += 1
            if depth == 1 and re.match(r'"\s*:', text[end:end + 20]):
                keys.append(text[i + 1:end])
            i = end
        elif c in "{[(":
            depth += 1
        elif c in "}])":
            depth -= 1
            if depth == 0:
                break
        i += 1
    return keys


def paths(fn, arg):
    """The paths that an argument of a request may be: a literal, or a variable of the function."""
    if arg.startswith('"'):
        return [arg[1:-1]]
    found = []
    for m in re.finditer(r"let (?:mut )?%s(?:: \w+)? =" % arg, fn):
        found += re.findall(r'"(/[^"]*)"', fn[m.end():fn.index(";", m.end())])
    return found


# Names of the variables that become bodies: all requests are made with one of them.
BODY = r"(?:body|request|payload|request_body|object|params)"
found = {}
for name in sorted(glob.glob(sys.argv[1] + "/**/*.rs", recursive=True)):
    if re.search(r"/(tests|testing|bin)/|tests\.rs$", name):
        continue
    text = open(name).read().split("\n#[cfg(test)]\nmod tests {")[0]
    starts = [m.start() for m in FN.finditer(text)] + [len(text)]
    for at, end in zip(starts, starts[1:]):
        fn, members = text[at:end], set()
        for m in METHOD.finditer(fn):
            inline = re.search(r"json!\(\{", fn[m.end():m.end() + 400])
            if inline and "Some(" in fn[m.end():m.end() + inline.start()]:
                members |= set(object_keys(fn, m.end() + inline.end() - 1))
        for m in re.finditer(r"let (?:mut )?%s(?:: [\w<>, ]+)? = (?:self\.with_observability_context\()?json!\(\{" % BODY, fn):
            members |= set(object_keys(fn, m.end() - 1))
        members |= set(re.findall(r"\b%s\[\"(\w+)\"\]\s*=[^=]" % BODY, fn))
        members |= set(re.findall(r"\b%s\s*\.insert\(\s*\"(\w+)\"" % BODY, fn))
        requests = [(m[1], path) for m in METHOD.finditer(fn) for path in paths(fn, m[4])]
        for verb, path in requests + [("POST", m[1]) for m in POLL.finditer(fn)]:
            path = re.sub(r"\{[^}]*\}", "{}", path.split("?")[0])
            if members and path.startswith("/"):
                found.setdefault(verb + " " + path, set()).update(members)
print(json.dumps({"sdk": "durable-workflow (Rust) " + sys.argv[2], "requests": {k: sorted(v) for k, v in sorted(found.items())}}, indent=1))
