"""Fixtures that many tests share: machines of the project's own, recorded machines, golden files."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import standin
from certificates import Authority
from machines import CORPUS, MACHINES, SEED, materialise, needs_fuse

if TYPE_CHECKING:
    from dtk.sim import Mounted

GOLDEN = Path(__file__).parent / "golden"

# The same examples in every run, and no failure because something else keeps the machine busy.
hypothesis.settings.register_profile(
    "dtk",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("dtk")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/ instead of comparing with it")


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Root of a machine of MACHINES, or of such cards as "mi210:2"; written once a session.

    Read only: copy_machine is for breaking things.
    """
    written: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in written:
            from dtk import sim

            root = tmp_path_factory.mktemp("machine") / name
            sim.write(root, cards=MACHINES.get(name, [name]), seed=SEED)
            written[name] = root
        return written[name]

    return get


@pytest.fixture
def copy_machine(machine: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A private copy of a machine, to break things in."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(machine(name), tmp_path / name, symlinks=True))

    return copy


@pytest.fixture
def mounted(copy_machine: Callable[[str], Path], tmp_path: Path) -> Iterator[Callable[[str], Mounted]]:
    """A private copy of a machine behind a FUSE mount, where reads hang and fail and writes are refused.

    It ends with the test, and releases what hangs; a test that waits for such a process clears the faults first.
    """
    needs_fuse()
    from dtk import sim

    with contextlib.ExitStack() as stack:
        yield lambda name: stack.enter_context(sim.mount(copy_machine(name), tmp_path / f"{name}-mount"))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Root of a machine that was recorded elsewhere, its expect.json beside sys/."""
    if not CORPUS.is_dir():
        pytest.skip("no corpus beside the project")
    made: dict[str, Path] = {}

    def get(case: str) -> Path:
        if case not in made:
            root = tmp_path_factory.mktemp("corpus") / case
            materialise(CORPUS / "machines" / case, root)
            made[case] = root
        return made[case]

    return get


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with tests/golden/<name>, or write it there with --update-golden."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.is_file(), f"{path} is missing: look at the output, then run pytest --update-golden"
        assert text == path.read_text(encoding="utf-8"), f"{name}: if the change is meant, run pytest --update-golden"

    return check


@pytest.fixture
def stand_in(machine: Callable[[str], Path], tmp_path: Path) -> Callable[..., standin.Standin]:
    """A stand-in that lists the cards of the machine of eight K100_AI."""

    def build(generation: str, *lines: str, **options: Any) -> standin.Standin:
        return standin.for_machine(tmp_path, generation, machine("k100_ai-2s"), *lines, **options)

    return build


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs certificates of servers and clients."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another, which nobody trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"), "another authority")
