#!/usr/bin/env python3
"""Asks a real kube-apiserver what it says of the cases below, and writes cases and answers to resources.json and
definitions.json beside this file; the tests of the schema and of definitions compare against those.

    tools/kubernetes/control-plane run --bare /tmp/truth -- crates/apiserver/src/schema/measured/measure.py
"""
import base64, json, os, re, ssl, sys, tempfile, time, urllib.error, urllib.request

here = os.path.dirname(os.path.abspath(__file__))


def client():
    text = open(os.environ["KUBECONFIG"]).read()
    server = re.search(r'server: "([^"]+)"', text)[1]
    part = lambda key: base64.b64decode(re.search(key + r": ([^\s},]+)", text)[1])
    context = ssl.create_default_context(cadata=part("certificate-authority-data").decode())
    with tempfile.NamedTemporaryFile() as pem:
        pem.write(part("client-certificate-data") + part("client-key-data"))
        pem.flush()
        context.load_cert_chain(pem.name)
    return server, context


server, context = client()


def call(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, context=context) as response:
            warnings = [re.search(r'"(.*)"', w)[1].replace('\\"', '"') for w in response.headers.get_all("Warning") or []]
            return response.status, json.load(response), warnings
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        return error.code, json.loads(text) if text.startswith("{") else {"message": text}, []


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def crd(number, schema, **version):
    plural = f"case{number}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.g.example.com"},
        "spec": {
            "group": "g.example.com",
            "scope": "Cluster",
            "names": {"plural": plural, "kind": f"Case{number}"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}],
        },
    }


def root(spec, **rest):
    return {"type": "object", "properties": {"spec": spec}, **rest}


def causes(status):
    found = status.get("details", {}).get("causes", [])
    return sorted([c.get("reason", ""), c.get("field", ""), c.get("message", "")] for c in found)


def normal(item):
    meta = {k: v for k, v in item.get("metadata", {}).items() if k not in
            ("name", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")}
    rest = {k: v for k, v in item.items() if k not in ("apiVersion", "kind", "metadata")}
    return {**rest, **({"metadata": meta} if meta else {})}


s, i, n, b = ({"type": t} for t in ("string", "integer", "number", "boolean"))


def obj(properties=None, **rest):
    return {"type": "object", **({"properties": properties} if properties else {}), **rest}


def arr(items, **rest):
    return {"type": "array", "items": items, **rest}


BASIC = root(obj({
    "s": s, "i": i, "n": n, "b": b, "o": obj({"x": i}, required=["x", "y"]), "l": arr(s), "any": {"x-kubernetes-preserve-unknown-fields": True},
    "ios": {"x-kubernetes-int-or-string": True},
    "ios2": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
    "i32": {**i, "format": "int32"}, "i64": {**i, "format": "int64"}, "f": {**n, "format": "float"},
    "nul": {**s, "nullable": True}, "e": {**s, "enum": ["a", "b"]}, "ei": {**i, "enum": [1, 2]},
    "en": {**s, "enum": ["a"], "nullable": True}, "p": {**s, "pattern": "^a+$"},
    "len": {**s, "minLength": 2, "maxLength": 4}, "len1": {**s, "maxLength": 1},
    "range": {**i, "minimum": 1, "maximum": 10}, "open": {**n, "minimum": 0.5, "exclusiveMinimum": True, "maximum": 2, "exclusiveMaximum": True},
    "mult": {**i, "multipleOf": 3}, "multf": {**n, "multipleOf": 0.5}, "items": arr(i, minItems=1, maxItems=2), "one": arr(i, maxItems=1),
    "m": obj(additionalProperties=i), "mp": obj(additionalProperties=s, minProperties=1, maxProperties=2), "free": obj(additionalProperties=True),
    "set": arr(s, **{"x-kubernetes-list-type": "set"}), "seti": arr(i, **{"x-kubernetes-list-type": "set"}),
    "map": arr(obj({"k": s, "v": i}, required=["k"]), **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
    "map2": arr(obj({"k": s, "p": {**i, "default": 1}, "v": i}, required=["k"]), **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "p"]}),
    "anyOf": obj({"a": i, "b": i}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]),
    "oneOf": obj({"a": i, "b": i}, oneOf=[{"required": ["a"]}, {"required": ["b"]}]),
    "allOf": obj({"a": i, "b": i}, allOf=[{"required": ["a"]}, {"properties": {"b": {"minimum": 5}}}]),
    "not": obj({"a": i}, **{"not": {"required": ["a"]}}),
    "best": obj({"a": s, "b": i}, anyOf=[{"properties": {"a": {"enum": ["x"]}, "b": {"minimum": 5}}}, {"properties": {"a": {"enum": ["y"]}}}]),
    "emb": obj({"spec": obj({"q": i})}, **{"x-kubernetes-embedded-resource": True}),
    "embp": obj(**{"x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}),
    "deep": arr(obj({"l": arr(obj({"x": i}))})), "keep": obj({"x": obj({"y": i})}, **{"x-kubernetes-preserve-unknown-fields": True}),
}))

FORMATS = {f: {**s, "format": f} for f in ("date", "date-time", "duration", "ipv4", "ipv6", "cidr", "mac", "hostname", "uri", "email", "uuid", "uuid4",
                                           "byte", "password", "hexcolor", "isbn", "k8s-short-name", "k8s-long-name", "no-such-format", "ssn", "rgbcolor", "creditcard")}

DEFAULTS = root(obj({
    "d": {**s, "default": "x"}, "dn": {**s, "default": "x", "nullable": True}, "nul": {**s, "nullable": True}, "plain": s,
    "c": obj({"d": {**i, "default": 2}}, default={}), "no": obj({"d": {**i, "default": 2}}),
    "l": arr(obj({"d": {**i, "default": 3}, "p": i})), "m": obj(additionalProperties=obj({"d": {**i, "default": 4}})),
    "ls": arr({**s, "default": "z"}), "ms": obj(additionalProperties={**s, "nullable": False}), "any": {"x-kubernetes-preserve-unknown-fields": True},
}, default={}))


def rule(text, **rest):
    return {"rule": text, **rest}


def rules(*found):
    return {"x-kubernetes-validations": list(found)}


CEL = root(obj({
    "a": {**i, **rules(rule("self > 0", message="must be positive"))}, "b": {**i, **rules(rule("self < 100"))},
    "my_field": s, "a__b": s, "x-y": s, "namespace": s, "n": n,
    "obj": obj({"x": i, "y": i}, **rules(rule("self.x < self.y", messageExpression="self.x > 1 ? 'x is big' : 'x is small'", fieldPath=".x"),
                                         rule("!has(self.x) || self.x != 13", reason="FieldValueForbidden", message="no 13"),
                                         rule("!has(self.x) || self.x != 14", reason="FieldValueRequired", message="no 14"),
                                         rule("!has(self.x) || self.x != 15", reason="FieldValueDuplicate", message="no 15"))),
    "imm": {**s, **rules(rule("self == oldSelf", message="immutable"))},
    "opt": {**i, **rules(rule("oldSelf.hasValue() ? self >= oldSelf.value() : self == 1", optionalOldSelf=True, message="must start at 1 and grow"))},
    "list": arr(obj({"k": s, "v": {**i, **rules(rule("self >= oldSelf", message="may only grow"))}}, required=["k"]),
                maxItems=10, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
    "m": obj(additionalProperties={**i, **rules(rule("self < 5", message="too big"))}, maxProperties=10),
    "names": arr({**s, "maxLength": 20}, maxItems=10, **rules(rule("self.all(x, x.startsWith('a'))", message="all must start with a"))),
    "when": {**s, "format": "date-time", **rules(rule("self > timestamp('2024-01-01T00:00:00Z')", message="too early"))},
    "dur": {**s, "format": "duration", **rules(rule("self <= duration('1h')", message="too long"))},
    "bytes": {**s, "format": "byte", "maxLength": 100, **rules(rule("self.size() == 2", message="must be two bytes"))},
    "ios": {"x-kubernetes-int-or-string": True, **rules(rule("type(self) == int ? self < 10 : self == 'auto'", message="small or auto"))},
    "q": {**s, "maxLength": 20, **rules(rule("quantity(self).isLessThan(quantity('1Gi'))", message="too large"))},
    "ip": {**s, "maxLength": 40, **rules(rule("ip(self).family() == 4", message="IPv4 only"))},
    "div": {**i, **rules(rule("10 / self > 1", message="quotient"))},
}, **rules(rule("!has(self.my_field) || self.my_field != 'bad'", message="bad my_field"),
           rule("!has(self.a__underscores__b) || self.a__underscores__b != 'bad'", message="bad a__b"),
           rule("!has(self.x__dash__y) || self.x__dash__y != 'bad'", message="bad x-y"),
           rule("!has(self.__namespace__) || self.__namespace__ != 'bad'", message="bad namespace"),
           rule("!has(self.n) || self.n < 1.5", message="n too big"))),
    **rules(rule("self.metadata.name != 'bad-name'", message="bad name")))

LOOSE = root(obj({"a": i, "l": arr(obj({"k": s, "v": i})), "m": arr(obj({"k": s, "v": i}, required=["k"]), **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}), "s": arr(s), "e": s, "c": i}))
TIGHT = root(obj({"a": {**i, "maximum": 5}, "l": arr(obj({"k": s, "v": {**i, "maximum": 5}})),
                  "m": arr(obj({"k": s, "v": {**i, "maximum": 5}}, required=["k"]), **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
                  "s": arr(s, **{"x-kubernetes-list-type": "set"}), "e": {**s, "enum": ["x"]}, "c": {**i, **rules(rule("self < 5", message="c too big"))}}))

g = lambda **fields: {"spec": fields}
GROUPS = [
    {"schema": BASIC, "objects": [
        g(s=1), g(s=None), g(i="x"), g(i=1.5), g(i=1.0), g(n="x"), g(n=3), g(b="true"), g(o=[]), g(o={}), g(o={"x": "y"}), g(l={}), g(l=[1, "a"]),
        g(ios=True), g(ios=1.5), g(ios="x"), g(ios2=True), g(i32=3000000000), g(i32="x"), g(i32=1.5), g(i32=True), g(i64=1.5), g(f=1e300), g(i=1e20),
        g(nul=None), g(e="z"), g(ei=3), g(en=None), g(p="b"), g(len="a"), g(len="aaaaa"), g(len1="aa"), g(range=0), g(range=11), g(range="x"),
        g(open=0.5), g(open=2), g(open=2.5), g(open=1.5), g(mult=4), g(multf=0.75), g(multf=1.5), g(items=[]), g(items=[1, 2, 3]), g(one=[1, 2]), g(m={"k": "v"}), g(mp={}),
        g(mp={"a": "1", "b": "2", "c": "3"}), g(set=["a", "b", "a", "a"]), g(seti=[1, 1]), g(map=[{"k": "a"}, {"k": "a"}]), g(map=[{"k": "a"}, {"v": 1}]), g(map2=[{"k": "a"}, {"k": "a", "p": 1}]),
        g(map2=[{"k": "a"}, {"k": "a", "p": 2}]), g(anyOf={}), g(anyOf={"a": 1}), g(oneOf={}), g(oneOf={"a": 1, "b": 1}), g(allOf={}), g(allOf={"b": 1}), {"spec": {"not": {"a": 1}}},
        g(best={"a": "z", "b": 1}), g(best={"a": "z", "b": 7}), g(emb={}), g(emb={"apiVersion": "v1", "kind": "1x", "metadata": {"name": "a/b", "bogus": 1}, "spec": {"q": 1, "z": 1}}),
        g(embp={"apiVersion": "a/b/c", "kind": "X", "metadata": {"name": "x", "namespace": "Y"}, "z": {"q": 1}}),
        g(bogus=1, deep=[{"l": [{"x": 1, "y": 2}], "z": 1}], free={"a": {"b": 1}, "c": 2}, keep={"x": {"y": 1, "z": 1}, "w": {"v": 1}}),
        {"bogus": {"a": 1}, "spec": {"zz": 1, "aa": 1}, "metadata": {"bogus": 1, "ownerReferences": []}}, {"spec": "x"}, {"spec": [1]}, g(any={"a": [1, {"b": None}]}), g(s=1, e="z", len="aaaaa", range=0),
        g(p="1"), g(n=True), g(l=[None]), g(m={"k": None}),
    ]},
    {"schema": root(obj(FORMATS)), "objects": [{"spec": {f: v}} for f, v in [
        ("date", "2023-02-29"), ("date-time", "yesterday"), ("duration", "soon"), ("duration", "3 days"), ("ipv4", "10.0.0.256"), ("ipv4", "010.0.0.1"), ("ipv6", "1.2.3.4"), ("cidr", "10.0.0.0/33"),
        ("mac", "02:00"), ("hostname", "-a"), ("hostname", "a_b"), ("uri", "a b"), ("uri", "/x"), ("email", "a.b"), ("uuid", "x"), ("uuid4", "123e4567-e89b-12d3-a456-426614174000"), ("byte", "a"), ("byte", ""),
        ("password", "x"), ("hexcolor", "#ff"), ("isbn", "1"), ("k8s-short-name", "A"), ("k8s-long-name", "a..b"), ("no-such-format", "x"), ("date", ["a"]), ("date", 1), ("ssn", "111-11-1111"), ("rgbcolor", "rgb(1,2,256)"), ("creditcard", "4111111111111112")]]},
    {"schema": DEFAULTS, "objects": [{}, {"spec": None}, g(d=None), g(dn=None), g(nul=None), g(plain=None), g(c=None), g(c={"d": None}), g(no={}), g(no=None), g(l=[{}, {"p": None}, {"d": 9}]), g(m={"a": {}, "b": {"d": None}}),
                                     g(ls=[None, "a"]), g(ms={"a": None, "b": "c"}), g(any={"x": None}), g(d="given")]},
    {"schema": CEL, "objects": [
        g(a=0), g(b=100), g(a=0, b=100), g(a="x", b=100), g(my_field="bad"), g(a__b="bad"), {"spec": {"x-y": "bad"}}, g(namespace="bad"), g(n=2), g(obj={"x": 2, "y": 1}), g(obj={"x": 13, "y": 99}), g(obj={"x": 14, "y": 99}), g(obj={"x": 15, "y": 99}), g(obj={"y": 1}),
        g(imm="a"), g(opt=2), g(opt=1), g(list=[{"k": "a", "v": 1}]), g(m={"k": 7}), g(names=["a", "b"]), g(when="2023-01-01T00:00:00Z"), g(when="2025-01-01T00:00:00Z"), g(dur="2h"), g(bytes="aGk="), g(bytes="aGlo"), g(ios=11), g(ios="auto"), g(ios="x"), g(q="2Gi"), g(q="1Mi"),
        g(q="bogus"), g(ip="::1"), g(div=0), {"metadata": {"name": "bad-name"}},
        {"old": g(imm="a"), "new": g(imm="b")}, {"old": g(imm="a"), "new": g(imm="a", a=1)}, {"old": g(opt=1), "new": g(opt=5)}, {"old": g(opt=1), "new": g(opt=0)},
        {"old": g(list=[{"k": "a", "v": 1}, {"k": "b", "v": 5}]), "new": g(list=[{"k": "b", "v": 5}, {"k": "a", "v": 1}])},
        {"old": g(list=[{"k": "a", "v": 1}, {"k": "b", "v": 5}]), "new": g(list=[{"k": "b", "v": 4}, {"k": "c", "v": 0}])},
    ]},
    {"before": LOOSE, "schema": TIGHT, "objects": [
        {"old": g(a=9, c=1), "new": g(a=9, c=2)}, {"old": g(a=9), "new": g(a=10)}, {"old": g(l=[{"k": "a", "v": 9}]), "new": g(l=[{"k": "a", "v": 9}, {"k": "b"}])}, {"old": g(l=[{"v": 9}], a=1), "new": g(l=[{"v": 9}], a=2)},
        {"old": g(m=[{"k": "a", "v": 9}]), "new": g(m=[{"k": "b", "v": 1}, {"k": "a", "v": 9}])}, {"old": g(m=[{"k": "a", "v": 9}]), "new": g(m=[{"k": "a", "v": 8}])},
        {"old": g(s=["a", "a"]), "new": g(s=["a", "a", "b", "b"])}, {"old": g(s=["a"]), "new": g(s=["a", "a"])}, {"old": g(e="z"), "new": g(e="z", a=1)}, {"old": g(e="z"), "new": g(e="y")},
        {"old": g(c=9), "new": g(c=9, a=1)}, {"old": g(c=9), "new": g(c=8)},
    ]},
]


def establish(definition):
    name = definition["metadata"]["name"]
    code, answer, _ = call("POST", CRDS, definition)
    assert code == 201, answer
    path = f"/apis/g.example.com/v1/{definition['spec']['names']['plural']}"
    for _ in range(200):
        if call("GET", path)[0] == 200:
            return path
        time.sleep(0.1)
    sys.exit(f"{name} was not established")


def resources():
    out = []
    for number, group in enumerate(GROUPS):
        start = group.get("before", group["schema"])
        definition = crd(number, start)
        path = establish(definition)
        kind = definition["spec"]["names"]["kind"]
        cases = [case if "new" in case else {"new": case} for case in group["objects"]]

        def whole(item, index):
            return {**item, "apiVersion": "g.example.com/v1", "kind": kind, "metadata": {"name": f"x{index}", **item.get("metadata", {})}}

        for index, case in enumerate(cases):
            if "old" in case:
                code, answer, _ = call("POST", path, whole(case["old"], index))
                assert code == 201, answer
        if "before" in group:
            current = call("GET", f"{CRDS}/{definition['metadata']['name']}")[1]
            current["spec"]["versions"] = crd(number, group["schema"])["spec"]["versions"]
            code, answer, _ = call("PUT", f"{CRDS}/{definition['metadata']['name']}", current)
            assert code == 200, answer
            time.sleep(3)
        for index, case in enumerate(cases):
            body = whole(case["new"], index)
            if "old" in case:
                before = call("GET", f"{path}/x{index}")[1]
                body["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
                code, answer, warnings = call("PUT", f"{path}/x{index}?fieldValidation=Warn", body)
            else:
                code, answer, warnings = call("POST", f"{path}?fieldValidation=Warn", body)
            case["code"] = code
            if code in (200, 201):
                case["stored"] = normal(answer)
                # A body of YAML-ish order does not matter: the server names unknown fields in its own order.
                case["warnings"] = warnings
            elif code == 422:
                case["causes"] = causes(answer)
            else:
                case["message"] = answer["message"]
        call("DELETE", f"{CRDS}/{definition['metadata']['name']}")
        out.append({"schema": group["schema"], "cases": cases})
    return out


def change(*path, to):
    def apply(definition):
        at = definition
        for step in path[:-1]:
            at = at[step]
        if to is None:
            at.pop(path[-1], None)
        else:
            at[path[-1]] = to
    return apply


V = ("spec", "versions", 0)
EXTRA = {"name": "v2", "served": True, "storage": False, "schema": {"openAPIV3Schema": root(obj())}}


def version(**fields):
    return lambda d: d["spec"]["versions"][0].update(fields)


def versions(*list_):
    return lambda d: d["spec"].update(versions=[{**d["spec"]["versions"][0], **v} for v in list_])


OK = root(obj())
SCHEMAS = [
    {}, {"type": "array", "items": s}, {"type": "string"}, root({}), root({"type": "array"}), root(arr({})), root(obj({"a": {}})), root(obj({"a": {"type": "nope"}})), root(obj({"a": {"type": "null"}})), root(obj(additionalProperties={})),
    root(obj({"a": s}, additionalProperties=s)), root(obj({"a": s}, additionalProperties=False)), root(obj(additionalProperties=False)), root(obj({"a": s}, additionalProperties=True)), {**OK, "additionalProperties": s},
    root(obj({"a": {"$ref": "#/x"}})), root(obj({"a": {**s, "id": "x"}})), root(obj({"a": obj(patternProperties={"x": s})})), root(obj({"a": obj(definitions={"x": s})})), root(obj({"a": obj(dependencies={"x": ["y"]})})), root(obj({"a": arr(s, uniqueItems=True)})),
    root(obj({"a": arr(s, additionalItems=True)})), root(obj({"a": {"type": "array", "items": [s]}})), root({**s, "pattern": "a("}), root(obj({"a": s}, anyOf=[{"type": "object"}])), root(obj({"a": s}, allOf=[{"properties": {"a": {"default": "x", "description": "x", "nullable": True}}}])),
    {**OK, "anyOf": [{"properties": {"nope": {"minLength": 1}}}]}, root(obj({"a": s}, anyOf=[{"properties": {"nope": {"minLength": 1}}}])), {**OK, "not": {"properties": {"metadata": {}}}}, root(obj({"a": s}, oneOf=[{"additionalProperties": s}])), root(obj({"a": s}, **{"not": {"x-kubernetes-validations": [rule("true")]}})),
    {"type": "object", "properties": {"metadata": obj({"labels": obj()})}}, {"type": "object", "properties": {"metadata": obj({"name": {**s, "pattern": "^a"}})}}, {"type": "object", "properties": {"metadata": s}}, {"type": "object", "properties": {"kind": i, "apiVersion": i}}, {"type": "object", "properties": {"metadata": obj(description="x")}},
    root({**s, "x-kubernetes-embedded-resource": True}), root({"x-kubernetes-embedded-resource": True}), root(obj(**{"x-kubernetes-embedded-resource": True})), root(obj(additionalProperties=s, **{"x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True})),
    root({"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True}), root({"x-kubernetes-int-or-string": True, "x-kubernetes-embedded-resource": True}), root(obj(**{"x-kubernetes-preserve-unknown-fields": False})),
    root({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}), root({"x-kubernetes-int-or-string": True, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "a"}]}), root({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "string"}, {"type": "integer"}]}),
    {**OK, "nullable": True}, root({**s, "x-kubernetes-list-type": "set"}), root(arr(s, **{"x-kubernetes-list-type": "bag"})), root(arr(obj(), **{"x-kubernetes-list-type": "set"})), root(arr(arr(s, **{"x-kubernetes-list-type": "set"}), **{"x-kubernetes-list-type": "set"})),
    root(arr({**s, "nullable": True}, **{"x-kubernetes-list-type": "set"})), root(arr(obj({"k": s}), **{"x-kubernetes-list-type": "map"})), root(arr(obj({"k": s}), **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]})), root(arr(obj({"k": s}, required=["k"]), **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "z", "k"]})),
    root(arr(obj({"k": obj()}, required=["k"]), **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]})), root(arr(obj({"k": {**s, "nullable": True}}, required=["k"]), **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]})), root(arr(s, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]})), root(arr(obj({"k": s}), **{"x-kubernetes-list-map-keys": ["k"]})),
    root(arr(obj({"k": s}), **{"x-kubernetes-list-map-keys": ["k"], "x-kubernetes-list-type": "set"})), root({**s, "x-kubernetes-map-type": "atomic"}), root(obj(**{"x-kubernetes-map-type": "nope"})),
    root(obj({"a": {**i, "default": "x"}})), root(obj({"a": obj({"b": s}, default={"c": 1})})), root(obj({"a": {**i, "maximum": 3, "default": 4}})), root(obj({"a": {**s, "enum": ["x"], "default": "y"}})), root(obj({"a": obj({"b": i}, required=["b"], default={})})), root(obj({"a": {**i, "default": 1, **rules(rule("self > 1", message="m"))}})),
    {"type": "object", "properties": {"kind": {**s, "default": "x"}}}, root(obj({"a": arr({**i, "default": "x"})})), root(obj({"a": {**s, "default": None}})),
    root(obj(**rules(rule("")))), root(obj(**rules(rule("self.")))), root(obj({"a": s}, **rules(rule("self.b == 'x'")))), root(obj({"a": s}, **rules(rule("self.a")))), root(obj({"a": s}, **rules(rule("nope(self.a)")))), root(obj({"a": s}, **rules(rule("self.a == 1")))),
    root(obj({"a": s}, **rules(rule("other.a == 'x'")))), root(obj({"a": s}, **rules(rule("true", message=" ")))), root(obj({"a": s}, **rules(rule("true", message="a\nb")))), root(obj({"a": s}, **rules(rule("true\n")))), root(obj({"a": s}, **rules(rule("true ||\ntrue")))), root(obj({"a": s}, **rules(rule("true", messageExpression=" ")))),
    root(obj({"a": s}, **rules(rule("true", messageExpression="self.")))), root(obj({"a": s}, **rules(rule("true", messageExpression="1")))), root(obj({"a": s}, **rules(rule("true", reason="Nope")))), root(obj({"a": s}, **rules(rule("true", fieldPath=".b")))), root(obj({"a": s}, **rules(rule("true", fieldPath="a")))), root(obj({"a": s}, **rules(rule("true", fieldPath=".a")))),
    root(obj({"a": s}, **rules(rule("true", optionalOldSelf=True)))), root(arr({**s, **rules(rule("self == oldSelf"))}, maxItems=5)), root(obj({"a": arr(s)}, **rules(rule("self.a.all(x, x.size() > self.a.size())")))), root(obj({"a": arr(obj({"b": s}, required=["b"]), maxItems=3)}, **rules(rule("self.a.all(x, x.c == 'y')")))),
]

BREACHES = [("good", lambda d: None)] + [(f"schema {k}", version(schema={"openAPIV3Schema": schema})) for k, schema in enumerate(SCHEMAS)] + [
    ("name", change("metadata", "name", to="x.g.example.com")), ("group", change("spec", "group", to="nodots")), ("group syntax", change("spec", "group", to="G_.example.com")), ("no group", change("spec", "group", to="")),
    ("scope", change("spec", "scope", to="Nope")), ("no scope", change("spec", "scope", to="")), ("kind", change("spec", "names", "kind", to="1Kind")), ("no kind", change("spec", "names", "kind", to="")), ("plural", change("spec", "names", "plural", to="Cases_")),
    ("singular", change("spec", "names", "singular", to="A_")), ("list kind", change("spec", "names", "listKind", to="Case0")), ("short", change("spec", "names", "shortNames", to=["A_", "ok"])), ("categories", change("spec", "names", "categories", to=["A_"])),
    ("no schema", change(*V, "schema", to=None)), ("no versions", change("spec", "versions", to=[])), ("version name", change(*V, "name", to="V1")), ("no storage", change(*V, "storage", to=False)),
    ("twice", versions({}, {})), ("two storage", versions({}, {"name": "v2"})), ("none served", change(*V, "served", to=False)), ("two", versions({}, {"name": "v2", "storage": False})),
    ("preserve", change("spec", "preserveUnknownFields", to=True)), ("preserve false", change("spec", "preserveUnknownFields", to=False)), ("conversion", change("spec", "conversion", to={"strategy": "Nope"})), ("conversion none", change("spec", "conversion", to={"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}})),
    ("deprecation", version(deprecationWarning="x")), ("deprecation empty", version(deprecated=True, deprecationWarning="")), ("deprecation ok", version(deprecated=True, deprecationWarning="old")),
    ("column", version(additionalPrinterColumns=[{"name": "", "type": "nope", "format": "nope", "jsonPath": ""}, {"name": "a", "type": "string", "jsonPath": "spec"}])),
    ("scale", version(subresources={"scale": {"specReplicasPath": ".status.x", "statusReplicasPath": "x", "labelSelectorPath": ".metadata.x"}})), ("scale empty", version(subresources={"scale": {"specReplicasPath": "", "statusReplicasPath": ""}})),
    ("status", version(subresources={"status": {}}, schema={"openAPIV3Schema": {**OK, "anyOf": [{"required": ["spec"]}]}})),
    ("selectable", version(schema={"openAPIV3Schema": root(obj({"a": s, "o": obj({"x": s}), "n": n}))}, selectableFields=[{"jsonPath": p} for p in (".spec.a", ".spec.b", ".spec.o", "spec.a", ".metadata.name", ".spec.a", ".spec['a']", "", ".spec.n")])),
    ("selectable many", version(schema={"openAPIV3Schema": root(obj({c: s for c in "abcdefghi"}))}, selectableFields=[{"jsonPath": f".spec.{c}"} for c in "abcdefghi"])),
    ("protected", lambda d: (d["spec"].update(group="x.k8s.io"), d["metadata"].update(name="case0s.x.k8s.io"))), ("protected ok", lambda d: (d["spec"].update(group="x.k8s.io"), d["metadata"].update(name="case0s.x.k8s.io", annotations={"api-approved.kubernetes.io": "unapproved, test"}))),
]

UPDATES = [
    ("scope", change("spec", "scope", to="Namespaced")), ("kind", change("spec", "names", "kind", to="Other")), ("plural", change("spec", "names", "plural", to="others")), ("group", change("spec", "group", to="h.example.com")),
    ("preserve", change("spec", "preserveUnknownFields", to=True)), ("rename version", change(*V, "name", to="v2")), ("short", change("spec", "names", "shortNames", to=["c0"])),
]


def definitions():
    out = []
    for name, breach in BREACHES:
        definition = crd(0, OK)
        breach(definition)
        code, answer, _ = call("POST", CRDS, definition)
        out.append({"name": name, "new": definition, "code": code, **({"causes": causes(answer), "message": answer["message"]} if code != 201 else {})})
        if code == 201:
            path = f"{CRDS}/{definition['metadata']['name']}"
            if name == "good":
                time.sleep(1)
                out[-1]["established"] = {k: call("GET", path)[1][k] for k in ("spec", "status")}
            call("DELETE", path)
            while call("GET", path)[0] != 404:
                time.sleep(0.05)
    for name, breach in UPDATES:
        definition = crd(0, OK)
        establish(definition)
        path = f"{CRDS}/{definition['metadata']['name']}"
        time.sleep(0.3)
        old = call("GET", path)[1]
        new = json.loads(json.dumps(old))
        breach(new)
        code, answer, _ = call("PUT", path, new)
        del old["metadata"]["managedFields"], new["metadata"]["managedFields"]
        out.append({"name": f"update {name}", "old": old, "new": new, "code": code, **({"causes": causes(answer), "message": answer["message"]} if code != 200 else {})})
        call("DELETE", path)
        while call("GET", path)[0] != 404:
            time.sleep(0.05)
    first, second = crd(0, OK), crd(1, OK)
    second["spec"]["names"].update(kind="Case0", singular="case0", shortNames=["case0s"])
    establish(first)
    call("POST", CRDS, second)
    time.sleep(1)
    answer = call("GET", f"{CRDS}/{second['metadata']['name']}")[1]
    out.append({"name": "conflict", "other": call("GET", f"{CRDS}/{first['metadata']['name']}")[1], "new": second, "code": 201, "conflicting": answer["status"]})
    for one in (first, second):
        call("DELETE", f"{CRDS}/{one['metadata']['name']}")
    return out


def write(name, data):
    with open(os.path.join(here, name), "w") as file:
        json.dump(data, file, indent=1, sort_keys=True)
        file.write("\n")


call("DELETE", CRDS)
time.sleep(1)
if len(sys.argv) < 2 or sys.argv[1] == "resources":
    write("resources.json", resources())
if len(sys.argv) < 2 or sys.argv[1] == "definitions":
    write("definitions.json", definitions())
