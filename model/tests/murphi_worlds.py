"""The constants that tell ``model/murphi/checkpoint.m`` which world it is in, and running it.

``python model/tests/murphi_worlds.py`` writes the constants of every world anew.
"""

import re
import shutil
import subprocess
from pathlib import Path

from checkpoint_model.exploration import World
from checkpoint_model.vocabulary import EvidenceType
from checkpoint_model.worlds import WORLDS

MURPHI = Path(__file__).parents[1] / "murphi"
MACHINE = MURPHI / "checkpoint.m"
CONSTANTS = MURPHI / "worlds"
CONFIGURATIONS_MAX = 4
TOOLS = ("rumur", "cc")


def expressible(world: World) -> bool:
    """Whether the Murphi text can be put in this world: all but those that forget or skip."""
    return (
        world.remembered_generations is None
        and world.time_advances
        and world.instants_ms == (-1, 0, 1)
        and len(world.configurations) <= CONFIGURATIONS_MAX
    )


def constants(world: World) -> str:
    """The world as Murphi constants."""
    configurations = list(world.configurations)
    lines = [
        f'-- The world "{world.name}" of checkpoint_model.worlds, written by murphi_worlds.py.',
        "const",
        f"  HOLDERS: {len(world.holders)};",
        f"  GENERATIONS: {world.limits.generations};",
        f"  KEYS: {len(world.observation_keys)};",
        f"  FINGERPRINTS: {len(world.fingerprints)};",
        f"  CLOCK_STEPS_BACK: {int(world.clock_steps_back)};",
        f"  LONGEST_MS: {1000 * max(c.state_ttl_seconds for c in configurations)};",
        "",
        f"  CONFIGURATIONS: {len(configurations)};",
    ]
    for number in range(1, CONFIGURATIONS_MAX + 1):
        claim_ms = state_ms = retry = 0
        if number <= len(configurations):
            configuration = configurations[number - 1]
            claim_ms = 1000 * configuration.claim_ttl_seconds
            state_ms = 1000 * configuration.state_ttl_seconds
            retry = int(configuration.retry_failed)
        lines.append(
            f"  CLAIM_TTL_MS_{number}: {claim_ms}; STATE_TTL_MS_{number}: {state_ms}; "
            f"RETRY_FAILED_{number}: {retry};"
        )
    lines.append("")
    lines += [f"  SEND_{kind.upper()}: {int(kind in world.evidence)};" for kind in EvidenceType]
    return "\n".join(lines) + "\n"


def count(world: World, folder: Path) -> tuple[int, int]:
    """Check a world with rumur, in a folder for its files: the states and the rules fired.

    Raises:
        RuntimeError: rumur or the compiler failed, or the machine broke one of its invariants.
    """
    text = constants(world) + MACHINE.read_text()
    source, program = folder / f"{world.name}.c", folder / world.name
    # One thread, so that the count of rules fired is exact whatever else the machine does.
    generate = ["rumur", "--threads", "1", "--value-type", "int32_t", "--output", str(source)]
    compile_ = ["cc", "-O2", "-mcx16", str(source), "-lpthread", "-o", str(program)]
    # `-mcx16` is for x86-64 alone; elsewhere the instruction needs no asking for.
    if not re.search("x86|amd64", subprocess.check_output(["uname", "-m"], text=True)):
        compile_.remove("-mcx16")
    output = ""
    for command, standard_input in ((generate, text), (compile_, ""), ([str(program)], "")):
        done = subprocess.run(
            command, input=standard_input, capture_output=True, text=True, check=False
        )
        output = done.stdout
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed:\n{done.stderr}\n{done.stdout}")
    found = re.search(r"(\d+) states, (\d+) rules fired", output)
    if found is None or "No error found." not in output:
        raise RuntimeError(f"no verdict in what rumur's program said:\n{output}")
    return int(found[1]), int(found[2])


def missing() -> list[str]:
    """The programs that it takes and that are not on the path."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


if __name__ == "__main__":
    for world in WORLDS.values():
        if expressible(world):
            (CONSTANTS / f"{world.name}.m").write_text(constants(world))
