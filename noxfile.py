"""Each session answers a developer's question; bare ``nox`` answers "is it all right?".

nox                  all of the default sessions: what CI runs
nox -s tests         do the tests pass?
nox -s lint          is the code as it should be: ruff, mypy strict, the assembled Lua?
nox -s explore       do the model's large worlds hold, here and in Murphi? (some ten minutes)
nox -s storms        does the reference server weather every storm at full size? (a minute)
nox -s nemesis       does it lose nothing while servers, store and links fail? (some minutes)
nox -s stores        does it conform on Valkey 8.1 and 9.1, Redis 7 and a cluster? (minutes)
nox -s wheel         does the wheel hold the five packages and nothing else?
nox -s mutants       does the harness catch every wrong server, by the right rule? (minutes)
nox -s matrix        which checks and rules find each of them, in a whole run? (hours)
nox -s lua_mutants   is every single-point mutant of the scripts told from them? (minutes)
nox -s harness_mutants does a test of ours fail for every fault of the harness? (a minute)
nox -s chaos         does a run end with a right verdict whatever is done to answers? (ten minutes)
nox -s fuzz          does any of a hundred thousand bad inputs break the server? (some minutes)
nox -s secured       does the harness pass a server with tokens, TLS and all else on? (a minute)
nox -s audit         is anything that is installed known to be vulnerable, and what is installed?
nox -s bench         how near is the server to the store's limit, how far are others, and what
                     does the harness take? (seven minutes)
nox -s soak          does the server's memory stay flat over a million requests?
nox -s bench_judging how long does the judge of histories take, and how much memory?
nox -s proofs        what is proved of the machine, and what is refuted?
nox -s descriptions  write anew what is generated from the registry record
nox -s overhead      what does a call over MCP cost more than over HTTP?
nox -s changelog     is there a changelog fragment, and what would the changelog say?
"""

import json
import os
import zipfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "venv"
nox.options.sessions = ["lint", "tests", "wheel"]
nox.options.reuse_existing_virtualenvs = "CI" not in os.environ
nox.options.error_on_missing_interpreters = True

PROJECT = nox.project.load_toml("pyproject.toml")
EVERYTHING = ".[server,embedded,containers,load,mcp,metrics,otel]"
DEPLOYED = "server,mcp,metrics,otel"
"""The extras of a deployment whose store is its own."""
PACKAGES = {
    Path(path).name for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
}


@nox.session
def tests(session: nox.Session) -> None:
    """Install everything and run every test, several at once."""
    session.install(
        "-e", ".[server,embedded,containers,load,mcp,metrics,otel]", *dependencies("test")
    )
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff, mypy strict over code and tests."""
    session.install(
        "-e",
        EVERYTHING,
        *dependencies("test"),
        *dependencies("lint"),
        "nox",
    )
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")


@nox.session(default=False)
def explore(session: nox.Session) -> None:
    """Explore the worlds that take minutes, count them by Murphi, and try them on the scripts."""
    session.install("-e", ".[server,embedded]", *dependencies("test"))
    paths = (
        "model/tests/test_exploration.py",
        "model/tests/test_murphi.py",
        "lua/tests/test_differential.py",
    )
    session.run("pytest", "-n", "auto", "-m", "large", *paths, *session.posargs)


@nox.session(default=False)
def storms(session: nox.Session) -> None:
    """Storm the reference server, or whatever the arguments after ``--`` say."""
    session.install("-e", ".[server,embedded,load]")
    session.run("workflow-checkpoint", "storm", *session.posargs)


@nox.session(default=False)
def nemesis(session: nox.Session) -> None:
    """Storm two reference servers over one store under every fault, once for each seed given."""
    session.install("-e", ".[server,embedded,load]")
    for seed in session.posargs or ("1", "2", "3", "4", "5"):
        report = str(Path(session.create_tmp()) / f"seed-{seed}")
        told = ("--nemesis", "all", "--seed", seed, "--report", report)
        session.run("workflow-checkpoint", "storm", "mixed", *told)


@nox.session(default=False)
def mutants(session: nox.Session) -> None:
    """Run the right server, then every mutant against the checks assigned to it."""
    session.install("-e", ".[server,embedded,mcp]")
    session.run("workflow-checkpoint", "mutants", "run", "--seeds", "20", *session.posargs)


@nox.session(default=False)
def matrix(session: nox.Session) -> None:
    """Run the right server and every mutant through all checks of the default profile.

    Hours, but for what is in docs/mutants.jsonl already: remove that file, or the lines of what
    has changed, to have it run again. Writes docs/mutants.md anew.
    """
    session.install("-e", ".[server,embedded,mcp]")
    session.run(
        *("workflow-checkpoint", "mutants", "run", "--profile", "default", "--whole"),
        *("--every-check", "--seeds", "20", "--jobs", "2", "--results", "docs/mutants.jsonl"),
        *("--matrix", "docs/mutants.md", *session.posargs),
    )


@nox.session(default=False)
def lua_mutants(session: nox.Session) -> None:
    """Run every mutant of the scripts, 400 of them through a whole check, and write the page."""
    session.install("-e", ".[server,embedded,mcp]", *dependencies("test"))
    session.env["PYTHONPATH"] = os.pathsep.join(("lua/tests", "model/tests"))
    session.run(
        *("python", "lua/tests/mutant_runs.py", "--check", "400", "--world", "configurations"),
        *("--page", "docs/lua-mutants.md", *session.posargs),
    )


@nox.session(default=False)
def harness_mutants(session: nox.Session) -> None:
    """Play every fault of the harness, and write docs/harness-mutants.md anew; or those named."""
    session.install("-e", ".[server,embedded,load,mcp]", *dependencies("test"))
    session.run("python", "conformance/tests/changed_packages.py", *session.posargs)


@nox.session(default=False)
def stores(session: nox.Session) -> None:
    """Check the reference server on every store that it runs on; Redis has to be on PATH."""
    session.install("-e", ".[server,embedded,mcp]", *dependencies("test"))
    path = "reference_server/tests/test_store_versions.py"
    session.run("pytest", "-m", "large", path, *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the wheel, look inside, and import the harness from it with no extras installed."""
    session.install("build")
    out = Path(session.create_tmp()) / "dist"
    session.run("python", "-m", "build", "--wheel", "--outdir", str(out), ".", silent=True)
    (built,) = sorted(out.glob("*.whl"), key=lambda path: path.stat().st_mtime)[-1:]
    roots = {name.split("/")[0] for name in zipfile.ZipFile(built).namelist()}
    unexpected = {root for root in roots - PACKAGES if not root.endswith(".dist-info")}
    if unexpected or not roots >= PACKAGES:
        session.error(f"{built.name} holds {sorted(roots)}, expected {sorted(PACKAGES)}")
    session.install("--force-reinstall", str(built))
    session.chdir(session.create_tmp())
    session.run("workflow-checkpoint", "--version")
    for command in ("check", "storm"):
        session.run("workflow-checkpoint", command, "--help", silent=True)
    session.run("python", "-c", "import checkpoint_conformance.testing")


@nox.session(default=False)
def proofs(session: nox.Session) -> None:
    """Print what z3 proves of the machine, and how it refutes each seeded fault."""
    session.install("-e", ".", "z3-solver")
    session.run("python", "model/proofs/induction.py")


@nox.session(default=False)
def descriptions(session: nox.Session) -> None:
    """Write the examples anew, then the committed copies of every published description."""
    session.install("-e", ".", "jsonschema")
    session.run("python", "reference_server/tests/registry_examples.py")
    published = "reference_server/checkpoint_reference_server/registry/published"
    session.run("workflow-checkpoint", "registry", "emit", "all", "--output", published)


@nox.session(default=False)
def chaos(session: nox.Session) -> None:
    """Check the right server many times while its answers are lost, refused and corrupted."""
    session.install("-e", ".[server,embedded,mcp]", *dependencies("test"))
    session.run("pytest", "-n", "auto", "-m", "large", "conformance/tests/test_chaos.py")


@nox.session(default=False)
def fuzz(session: nox.Session) -> None:
    """Send a hundred thousand bad inputs, or as many as `-- --inputs N --seed N` says."""
    session.install("-e", ".[server,embedded,mcp,metrics,otel]", *dependencies("test"))
    session.env["PYTHONPATH"] = os.pathsep.join(["model/tests", "reference_server/tests"])
    session.run("python", "reference_server/tests/fuzzing.py", *session.posargs)


@nox.session(default=False)
def secured(session: nox.Session) -> None:
    """Check a server that has everything on: tokens, limits, TLS, metrics, both bindings."""
    session.install("-e", EVERYTHING, *dependencies("test"))
    session.run("pytest", "-m", "large", "reference_server/tests/test_security.py")


@nox.session(default=False)
def audit(session: nox.Session) -> None:
    """Ask the vulnerability service of every installed package, and write an SBOM.

    Into `sbom.cdx.json` (CycloneDX), of what a deployment installs and nothing of what tests do.
    """
    session.install("cyclonedx-bom>=5", "pip-audit>=2.7")
    deployed = Path(session.create_tmp()) / "deployed"
    session.run("python", "-m", "venv", "--clear", str(deployed))
    python = str(deployed / "bin" / "python")
    session.run(python, "-m", "pip", "install", "-q", f".[{DEPLOYED}]", external=True)
    session.run(
        *("cyclonedx-py", "environment", python, "--pyproject", "pyproject.toml"),
        *("--output-reproducible", "--of", "JSON", "--output-file", "sbom.cdx.json"),
    )
    (packages,) = deployed.glob("lib/python*/site-packages")
    report = deployed.with_name("audit.json")
    session.run(
        *("pip-audit", "--path", str(packages), "--progress-spinner", "off"),
        *("--format", "json", "--output", str(report)),
        success_codes=[0, 1],  # 1: something is vulnerable, which is told below
    )
    audited = json.loads(report.read_text())["dependencies"]
    known = [package for package in audited if "skip_reason" not in package]
    vulnerable = [
        f"{package['name']} {package['version']}" for package in known if package["vulns"]
    ]
    ours = PROJECT["project"]["name"]
    unknown = [p["name"] for p in audited if p not in known and p["name"] != ours]
    session.log(f"{len(known)} packages audited, {len(vulnerable)} vulnerable")
    if unknown:
        session.error(
            f"the vulnerability service could not be asked of {len(unknown)} packages, so NOTHING "
            f"is known of them: {', '.join(unknown)}"
        )
    if vulnerable:
        session.error(f"vulnerable: {', '.join(vulnerable)} (see {report})")


@nox.session(default=False)
def overhead(session: nox.Session) -> None:
    """Measure the same call by both bindings of one server."""
    session.install("-e", ".[server,embedded,mcp]")
    session.run("python", "reference_server/benchmarks/mcp_overhead.py")


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Measure server, store's limit, peers and harness, into docs/performance.md (6 to 8 minutes).

    With `-- --quick` less of everything (a minute and a half); `-- --rounds N` for more of it.
    """
    session.install("-e", ".[server,embedded,load,mcp]", "pytest", *dependencies("bench"))
    session.env["PYTHONPATH"] = os.pathsep.join(
        ["reference_server/tests", "model/tests", "conformance/benchmarks"]
    )
    session.run("python", "reference_server/benchmarks/bench.py", *session.posargs)


@nox.session(default=False)
def soak(session: nox.Session) -> None:
    """Send a million requests of every kind, and watch the server's memory."""
    session.install("-e", ".[server,embedded,mcp]")
    session.run("python", "reference_server/benchmarks/soak.py", *session.posargs)


@nox.session(default=False)
def bench_judging(session: nox.Session) -> None:
    """Measure 10^3 to 10^6 operations, into docs/linearizability.md (some ten minutes)."""
    session.install("-e", ".")
    session.env["PYTHONPATH"] = "model/tests"
    session.run("python", "conformance/benchmarks/judging.py", *session.posargs)


@nox.session(default=False)
def changelog(session: nox.Session) -> None:
    """Show what the changelog fragments add up to."""
    session.install("towncrier")
    session.run("towncrier", "build", "--draft", "--version", PROJECT["project"]["version"])


def dependencies(group: str) -> list[str]:
    """The requirements of one dependency group of ``pyproject.toml``."""
    return list(nox.project.dependency_groups(PROJECT, group))
