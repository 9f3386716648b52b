"""The limits of the project; a reader does not have to remember them.

Rules of this file:
- One test per limit; its failure lists every place, as ``file:line``.
- A limit is raised only in this file, with a decision record in ``docs/decisions``.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.sources import ROOT, nodes, tree

PACKAGES = ("control_schemas", "connect", "worker", "coordinator")

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
KERNEL_FUNCTION_LINES_MAX = 40
KERNEL = {"coordinator/kernel/kernel.py"}
CLASS_LINES_MAX = 250
CLASS_ATTRIBUTES_MAX = 12
# path::Class -> why it may be larger; a class that fits again must leave the list.
LARGE_CLASSES = {
    "worker/task/task_metrics.py::BatchMetrics": "one attribute for each metric",
    "connect/node/rest/models.py::OverviewConnector": "one attribute for each key of the answer",
}
BROAD_EXCEPTS_MAX = 9
TYPE_IGNORES_MAX = 10
MOCKS_MAX = 27
FILE_BYTES_MAX = 1_000_000

# Modules that may read clocks and make identities, and why.
CLOCK_READERS = {
    "connect/clock.py": "it is the clock",
    "connect/failpoints.py": "a delay on purpose, off in production",
    "connect/node/rest/auth.py": "salts and tokens, which must not be predictable",
}
# Names that say nothing about the value.
VAGUE_NAMES = {"found", "given", "stuff", "thing", "things", "wanted", "what"}
CLOCK_CALLS = re.compile(
    r"^(time\.(time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns|sleep)"
    r"|(datetime\.)?(datetime|date)\.(now|utcnow|today)"
    r"|uuid\.uuid[1-8]|uuid[14]|random\.\w+|secrets\.\w+|os\.urandom)$"
)
# Written in pieces, so that this file does not name what it forbids.
FORBIDDEN_TEXT = {
    "a path of one machine": re.compile(
        r"(?<![\w.}-])(?:"
        + "|".join(
            ("/wo" + r"rk/(main|shared)\b", "/ro" + r"ot/", "/ho" + r"me/\w", "/Us" + r"ers/\w")
        )
        + ")"
    ),
    "a package registry's host": re.compile(
        "|".join(
            (
                "pypi" + r"\.org",
                "python" + r"hosted\.org",
                r"repo1?\." + r"maven",
                "npmjs" + r"\.(org|com)",
                "crates" + r"\.io",
                "proxy" + r"\.golang\.org",
                "deb" + r"\.debian\.org",
            )
        )
    ),
}


@cache
def files() -> list[Path]:
    """Every file of the project, new ones included, ignored ones not."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted({ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()})


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def sources(*folders: str) -> list[Path]:
    """Python files below these folders."""
    return [p for p in files() if p.suffix == ".py" and name(p).split("/")[0] in folders]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def lines_without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    lines = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None and first.end_lineno is not None:
        lines -= first.end_lineno - first.lineno + 1
    return lines


def dotted(node: ast.expr) -> str:
    """``a.b.c`` of a name or attribute, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (left := dotted(node.value)):
        return f"{left}.{node.attr}"
    return ""


def test_files_are_short() -> None:
    """No Python file is longer than a reader can hold."""
    long = {name(p): n for p in sources(*PACKAGES, "tests") if (n := count(p)) > FILE_LINES_MAX}
    assert not long


def count(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def test_the_formatter_formats_everything() -> None:
    """No place asks the formatter to leave it out."""
    marks = ("# fmt: " + "skip", "# fmt: " + "off")
    places = [
        f"{name(path)}:{number}"
        for path in sources(*PACKAGES, "tests")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if line.rstrip().endswith(marks)
    ]
    assert not places


def test_functions_are_short() -> None:
    """No function is longer than a screen; the kernel's are shorter still."""
    long = []
    for path in sources(*PACKAGES, "tests"):
        limit = KERNEL_FUNCTION_LINES_MAX if name(path) in KERNEL else FUNCTION_LINES_MAX
        long += [
            f"{name(path)}:{node.lineno} {node.name} {lines}"
            for node in functions(path)
            if (lines := lines_without_docstring(node)) > limit
        ]
    assert not long


def test_classes_are_small() -> None:
    """No class is longer than 250 lines or has more than 12 attributes, but for the listed ones."""
    large = {}
    for path in sources(*PACKAGES):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                # a frozen dataclass is a record: of the wire, or of a configuration
                attributes = [] if is_frozen(node) else sorted(attributes_of(node))
                if size > CLASS_LINES_MAX or len(attributes) > CLASS_ATTRIBUTES_MAX:
                    large[f"{name(path)}::{node.name}"] = (node.lineno, size, attributes)
    found = {place: why for place, why in large.items() if place not in LARGE_CLASSES}
    assert not found
    fitting = sorted(LARGE_CLASSES.keys() - large.keys())
    assert not fitting, "these classes fit: take them off the list"


def is_frozen(node: ast.ClassDef) -> bool:
    """Whether the class is a dataclass whose instances do not change."""
    return any(
        isinstance(decorator, ast.Call)
        and dotted(decorator.func).endswith("dataclass")
        and any(keyword.arg == "frozen" for keyword in decorator.keywords)
        for decorator in node.decorator_list
    )


def attributes_of(node: ast.ClassDef) -> set[str]:
    """Names of a class's annotated fields and of everything that its methods assign to self."""
    found = {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Attribute)
            and isinstance(inner.ctx, ast.Store)
            and dotted(inner.value) == "self"
        ):
            found.add(inner.attr)
    return found


def test_every_test_says_what_it_holds() -> None:
    """Every test has a docstring that begins with one line."""
    silent = [
        f"{name(path)}:{node.lineno} {node.name}"
        for path in sources("tests")
        for node in functions(path)
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert not silent


def test_args_sections_name_real_parameters() -> None:
    """A docstring's ``Args:`` lists only what the function, or the class's init, takes."""
    wrong = []
    for path in sources(*PACKAGES):
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                documented = args_section(ast.get_docstring(node) or "")
                if documented and (extra := documented - parameters(node)):
                    wrong.append(f"{name(path)}:{node.lineno} {node.name} {sorted(extra)}")
    assert not wrong


def args_section(docstring: str) -> set[str]:
    match = re.search(r"^Args:\n((?:[ ]{4}.*\n?|\n)+)", docstring, re.MULTILINE)
    if match is None:
        return set()
    entries = re.findall(r"^ {4}([\w*, ]+?)(?: \(.*?\))?:", match[1], re.MULTILINE)
    return {part.strip().lstrip("*") for entry in entries for part in entry.split(",")}


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    """Parameters, or for a class those of ``__init__`` and its annotated fields."""
    if isinstance(node, ast.ClassDef):
        found = {
            item.target.id
            for item in node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        }
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                found |= parameters(item)
        return found
    a = node.args
    every = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
    return {argument.arg for argument in every if argument is not None}


def test_broad_excepts_are_few_and_explained() -> None:
    """``except Exception`` is at process and thread boundaries only, with its reason."""
    found, silent = [], []
    for path in sources(*PACKAGES):
        text = path.read_text("utf-8").splitlines()
        for node in nodes(path):
            if isinstance(node, ast.ExceptHandler) and is_broad(node):
                place = f"{name(path)}:{node.lineno}"
                found.append(place)
                around = text[max(0, node.lineno - 2) : node.lineno + 1]
                if not any("#" in line for line in around):
                    silent.append(place)
    assert len(found) <= BROAD_EXCEPTS_MAX, found
    assert not silent


def is_broad(node: ast.ExceptHandler) -> bool:
    """Catches everything and does not raise it again."""
    caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    names = {"" if kind is None else dotted(kind) for kind in caught}
    last = node.body[-1]
    raises_again = isinstance(last, ast.Raise) and last.exc is None
    return bool(names & {"", "Exception", "BaseException"}) and not raises_again


def test_type_ignores_are_few_and_explained() -> None:
    """Every ``type: ignore`` names its code and its reason."""
    found, bare = [], []
    pattern = re.compile(r"# type: " + r"ignore(\[[\w-]+(, ?[\w-]+)*\])?(.*)")
    for path in sources(*PACKAGES):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if match := pattern.search(line):
                place = f"{name(path)}:{number}"
                found.append(place)
                if not match[1] or len(match[3].strip(" #-")) < 5:
                    bare.append(place)
    assert len(found) <= TYPE_IGNORES_MAX, found
    assert not bare


def test_mocks_are_few() -> None:
    """Tests run real parts or contract-tested fakes; patched attributes are counted."""
    found = [
        f"{name(path)}:{node.lineno}"
        for path in sources("tests")
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and re.search(
            r"(^|\.)(Magic|Async)?Mock$|monkeypatch\.setattr$|^(mock\.)?patch$", dotted(node.func)
        )
    ]
    assert len(found) <= MOCKS_MAX, found


def test_time_and_chance_come_from_the_clock() -> None:
    """Only the clock, mains and the listed modules read time or make identities."""
    found = [
        f"{name(path)}:{node.lineno} {dotted(node.func)}"
        for path in sources(*PACKAGES)
        if name(path) not in CLOCK_READERS and path.name != "__main__.py"
        for node in nodes(path)
        if isinstance(node, ast.Call) and CLOCK_CALLS.match(dotted(node.func))
    ]
    assert not found


def test_no_test_imports_another() -> None:
    """What tests share is in tests/support, so each test file can be changed by itself."""
    found = [
        f"{name(path)}: {target}"
        for path in sources("tests")
        for node in nodes(path)
        for target in imported(node)
        if target.startswith("tests.") and ".test_" in target
    ]
    assert not found


def test_no_import_cycles() -> None:
    """Modules import each other in one direction, inside packages too."""
    modules = {
        name(p).removesuffix(".py").removesuffix("/__init__").replace("/", "."): p
        for p in sources(*PACKAGES)
    }
    graph: dict[str, set[str]] = defaultdict(set)
    for module, path in modules.items():
        for node in tree(path).body:
            graph[module] |= {
                target for target in imported(node) if target in modules and target != module
            }
    assert not cycle(graph)


def imported(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module:
        # a name may be a module of the package or something in its __init__
        return {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return set()


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """One cycle, or nothing."""
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for target in sorted(graph.get(module, ())):
            if found := walk(target, [*path, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := walk(module, []))), [])


def test_no_file_names_a_machine_or_a_registry() -> None:
    """Files work on any machine: no home folders, no registry addresses."""
    found = []
    for path in files():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        for what, pattern in FORBIDDEN_TEXT.items():
            found += [
                f"{name(path)}:{text.count(chr(10), 0, match.start()) + 1} {what}"
                for match in pattern.finditer(text)
            ]
    assert not found


def test_files_are_small() -> None:
    """Only recordings may be large."""
    large = [
        name(path)
        for path in files()
        if path.stat().st_size > FILE_BYTES_MAX and not name(path).startswith("tests/golden/")
    ]
    assert not large


def test_no_vague_variables() -> None:
    """A variable, argument or attribute says what its value is."""
    found = [
        f"{name(path)}:{node.lineno} {identifier}"
        for path in sources(*PACKAGES)
        for node in nodes(path)
        if (identifier := assigned(node)) is not None and identifier.strip("_") in VAGUE_NAMES
    ]
    assert not found


def assigned(node: ast.AST) -> str | None:
    """The name that a node gives to a value; None for other nodes."""
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.id if isinstance(node, ast.Name) else node.attr
    return None


def test_no_vague_module_names() -> None:
    """A module is named after what it holds."""
    vague = {"utils", "util", "helpers", "helper", "misc", "common", "manager"}
    assert not [name(p) for p in sources(*PACKAGES, "tests") if p.stem in vague]


def test_public_classes_have_names_of_their_own() -> None:
    """A reader who searches for a class finds one place."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sources(*PACKAGES):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{name(path)}:{node.lineno}")
    assert not {each: found for each, found in places.items() if len(found) > 1}
