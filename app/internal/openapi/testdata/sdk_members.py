"""Lists the members of the JSON bodies that the published Python SDK sends, by method and path. It reads the SDK's
sources: the literal keys of the variable that a call of _request passes as json, in the same function.

    python3 sdk_members.py SITE_PACKAGES/durable_workflow VERSION
"""
import ast, json, sys


def path_of(node, names):
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else path_of(v.value, names) if isinstance(v.value, ast.Name) else "{}" for v in node.values)
    if isinstance(node, ast.Name):
        return names.get(node.id, "{}")
    return "{}"


def keys(node):
    return [k.value for k in node.keys if isinstance(k, ast.Constant)] if isinstance(node, ast.Dict) else []


found = {}
for name in ("client.py", "worker.py", "_poll_transport.py", "nexus.py"):
    try:
        tree = ast.parse(open(sys.argv[1] + "/" + name).read())
    except FileNotFoundError:
        continue
    for fn in ast.walk(tree):
        if not isinstance(fn, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        bodies, names = {}, {}
        for n in ast.walk(fn):
            if isinstance(n, (ast.Assign, ast.AnnAssign)):
                for t in n.targets if isinstance(n, ast.Assign) else [n.target]:
                    if isinstance(t, ast.Name) and n.value is not None:
                        bodies.setdefault(t.id, set()).update(keys(n.value))
                        if isinstance(n.value, (ast.Constant, ast.JoinedStr)) and isinstance(path_of(n.value, names), str):
                            names[t.id] = path_of(n.value, names)
                    if isinstance(t, ast.Subscript) and isinstance(t.value, ast.Name) and isinstance(t.slice, ast.Constant):
                        bodies.setdefault(t.value.id, set()).add(t.slice.value)
        for n in ast.walk(fn):
            if not isinstance(n, ast.Call) or not getattr(n.func, "attr", "").startswith("_request") or len(n.args) < 2:
                continue
            if not isinstance(n.args[0], ast.Constant):
                continue
            members = set()
            for k in n.keywords:
                if k.arg == "json":
                    members |= set(keys(k.value))
                    if isinstance(k.value, ast.Name):
                        members |= {m for m in bodies.get(k.value.id, ()) if isinstance(m, str)}
            if members:
                found.setdefault(n.args[0].value + " " + path_of(n.args[1], names).split("?")[0], set()).update(members)
print(json.dumps({"sdk": "durable-workflow (Python) " + sys.argv[2], "requests": {k: sorted(v) for k, v in sorted(found.items())}}, indent=1))
