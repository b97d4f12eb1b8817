"""What users get: the content of the wheel, and that C programs find libdtk in each of the promised ways."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

import dtk

PROJECT = Path(__file__).parent.parent
NATIVE = PROJECT / "dtk" / "_native"
CONSUMER = PROJECT / "tests" / "consumer"
DTK_SMI = Path(sys.executable).with_name("dtk-smi")
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]


def needs(*tools: str) -> pytest.MarkDecorator:
    missing = [tool for tool in tools if not shutil.which(tool)]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


def run(*command: str | Path, **options: object) -> str:
    """Output of a command, which must succeed and say nothing on stderr."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert (result.returncode, result.stderr) == (0, ""), f"{command}: {result.stdout}"
    return result.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that DTK_TEST_WHEEL names (`make test` builds it once), else one built here."""
    if path := os.environ.get("DTK_TEST_WHEEL"):
        return Path(path)
    directory = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "-qq", "wheel", "--no-deps", f"-Cbuild-dir={directory}/build"]
    subprocess.run([*pip, "--wheel-dir", directory, PROJECT], check=True)
    return next(directory.glob("*.whl"))


@pytest.fixture(scope="session")
def content(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the wheel."""
    directory = tmp_path_factory.mktemp("content")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    return directory


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `cmake --install` gives, moved afterwards: nothing in it may know where it was built for."""
    directory = tmp_path_factory.mktemp("cmake")
    run("cmake", "-S", PROJECT, "-B", directory / "build", "--log-level=WARNING", "-DCMAKE_INSTALL_LIBDIR=lib")
    run("cmake", "--build", directory / "build")
    run("cmake", "--install", directory / "build", "--prefix", directory / "first")
    return (directory / "first").rename(directory / "moved")


# ---- the wheel ----


def test_wheel_serves_every_python_since_3_10(wheel: Path) -> None:
    assert re.fullmatch(r"dtk_smi-\d+\.\d+\.\d+-cp310-abi3-\w*linux\w*\.whl", wheel.name)


def test_version_is_the_same_everywhere(wheel: Path, prefix: Path) -> None:
    assert dtk.__version__ == version("dtk-smi") == wheel.name.split("-")[1]
    assert f"\nVersion: {dtk.__version__}\n" in (prefix / "lib/pkgconfig/dtk.pc").read_text()


def test_wheel_has_what_users_need(content: Path) -> None:
    for name in (
        "dtk/__init__.py",
        "dtk/py.typed",
        "dtk/_native/_dtk.abi3.so",
        "dtk/_native/include/dtk.h",
        "dtk/_native/lib/libdtk.so.0",
        "dtk/_native/lib/pkgconfig/dtk.pc",
        "dtk_cli/main.py",
    ):
        assert (content / name).is_file(), name
    assert len(list(content.rglob("*libdtk*"))) == 1


def test_wheel_has_no_sources(content: Path) -> None:
    sources = {".c", ".h", ".def", ".map", ".in", ".cmake", ".txt"}
    found = {str(path.relative_to(content)) for path in content.rglob("*") if path.suffix in sources}
    assert {name for name in found if ".dist-info/" not in name} == {"dtk/_native/include/dtk.h"}


def test_wheel_has_no_module_that_clashes_with_others(content: Path) -> None:
    found = {path.name for path in content.iterdir() if path.suffix not in (".data", ".dist-info")}
    assert found == {"dtk", "dtk_cli", "dtk_exporter"}


def test_wheel_has_the_manual_pages(content: Path) -> None:
    data = content / f"dtk_smi-{dtk.__version__}.data/data"
    assert {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()} == {
        "share/man/man1/dtk-exporter.1",
        "share/man/man1/dtk-smi.1",
        "share/man/man7/dtk-metrics.7",
    }


@needs("readelf")
def test_module_finds_its_own_library_first(content: Path) -> None:
    dynamic = run("readelf", "-dW", content / "dtk/_native/_dtk.abi3.so")
    assert "(RPATH)              Library rpath: [$ORIGIN/lib]" in dynamic
    assert "RUNPATH" not in dynamic


@needs("readelf")
def test_libraries_need_nothing_but_libc(content: Path) -> None:
    own = content / "dtk/_native"
    libc = {"libc.so.6", "libpthread.so.0", "libdl.so.2", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    for path, allowed in ((own / "lib/libdtk.so.0", libc), (own / "_dtk.abi3.so", libc | {"libdtk.so.0"})):
        dynamic = run("readelf", "-dW", path)
        assert set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)) <= allowed
    assert "Library soname: [libdtk.so.0]" in run("readelf", "-dW", own / "lib/libdtk.so.0")


@needs("nm")
def test_library_exports_its_api_and_no_more(content: Path) -> None:
    lines = run("nm", "-D", "--defined-only", content / "dtk/_native/lib/libdtk.so.0").splitlines()
    exported = {line.split()[-1] for line in lines if " A " not in line}
    assert exported == {f"{name}@@DTK_0" for name in functions((NATIVE / "include/dtk.h").read_text())}


# Old functions that a newer glibc, which this wheel may be built on, gave a new version.
RENUMBERED = re.compile(r"pthread_\w+|dl\w+|[fl]?stat(at)?(64)?|__isoc23_\w+")


@needs("nm")
def test_libraries_run_on_glibc_2_17(content: Path) -> None:
    for path in content.rglob("*.so*"):
        used = re.findall(r" U (\w+)@GLIBC_2\.(\d+)", run("nm", "-D", path))
        assert used
        assert [name for name, minor in used if int(minor) > 17 and not RENUMBERED.fullmatch(name)] == []


@pytest.fixture
def other_library(tmp_path: Path) -> Path:
    """A libdtk.so.0 of another major version, as an old installation might have left one."""
    names = functions((NATIVE / "include/dtk.h").read_text())
    code = [f"int {name}(void) {{ return {'0x10000' if name == 'dtk_api_version' else '0'}; }}\n" for name in names]
    (tmp_path / "other.c").write_text("".join(code))
    library = tmp_path / "libdtk.so.0"
    version = f"-Wl,--version-script={NATIVE / 'libdtk.map'}"
    run("cc", "-shared", "-fPIC", "-Wl,-soname,libdtk.so.0", version, tmp_path / "other.c", "-o", library)
    return library


@needs("cc")
def test_library_path_does_not_replace_the_library(other_library: Path, machine: Callable[[str], Path]) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(other_library.parent)}
    code = "import dtk, sys; print(len(dtk.System(sys.argv[1]).devices()))"
    assert run(sys.executable, "-I", "-c", code, machine("mi210"), env=environment) == "8\n"


@needs("cc")
def test_library_of_another_version_is_refused(other_library: Path) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(other_library)}
    code = [sys.executable, "-I", "-c", "import dtk"]
    result = subprocess.run(code, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 1
    assert "dtk.LibraryError: load libdtk: its API version is 0x10000" in result.stderr


# ---- the header and its two copies ----


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def functions(header: str) -> set[str]:
    return set(re.findall(r"^DTK_API .*?\*?(dtk_\w+)\(", without_comments(header), re.MULTILINE))


def declarations(header: str) -> list[str]:
    """The structs and functions of a header, cut at their semicolons, with single blanks."""
    text = re.sub(r"\benum \w+ \{.*?\};", "", without_comments(header), flags=re.DOTALL)
    text = re.sub(r"^#.*$|^extern .*$|^\}$|\bDTK_API\b", "", text, flags=re.MULTILINE)
    return [" ".join(part.split()) for part in text.split(";")]


def test_cffi_declares_what_the_header_declares() -> None:
    assert declarations((NATIVE / "cdef.h").read_text()) == declarations((NATIVE / "include/dtk.h").read_text())


def test_types_of_the_module_are_complete() -> None:
    header, cdef, stub = (NATIVE / name for name in ("include/dtk.h", "cdef.h", "_dtk.pyi"))
    assert set(re.findall(r"def (dtk_\w+)", stub.read_text())) == functions(header.read_text())
    assert re.findall(r"^    (DTK_\w+):", stub.read_text(), re.MULTILINE) == re.findall(
        r"^#define (DTK_\w+)", cdef.read_text(), re.MULTILINE
    )


@needs("g++")
@pytest.mark.parametrize("compiler", [["gcc", "-std=c11"], ["g++", "-std=c++17"]], ids=["C11", "C++17"])
def test_header_compiles_without_a_warning(compiler: list[str], tmp_path: Path) -> None:
    source = tmp_path / ("use.c" if compiler[0] == "gcc" else "use.cc")
    source.write_text("#include <dtk.h>\nint main(void) { dtk_value v; v.u64 = DTK_API_VERSION; return v.u64 == 0; }\n")
    run(*compiler, *WARNINGS, f"-I{NATIVE / 'include'}", source, "-o", tmp_path / "use")


# ---- C programs ----


def check(program: Path, root: Path, library_path: Path | None = None) -> None:
    environment = {**os.environ, **({"LD_LIBRARY_PATH": str(library_path)} if library_path else {})}
    assert re.fullmatch(r"8 \S.*\n", run(program, root, env=environment))


@needs("cc")
def test_consumer_with_the_commands_options(machine: Callable[[str], Path], tmp_path: Path) -> None:
    options = [*run(DTK_SMI, "--cflags").split(), *run(DTK_SMI, "--libs").split()]
    run("cc", *WARNINGS, CONSUMER / "consumer.c", *options, "-o", tmp_path / "consumer")
    check(tmp_path / "consumer", machine("mi210"))


@needs("cc", "pkg-config")
@pytest.mark.parametrize("origin", ["content", "prefix"])
def test_consumer_with_pkg_config(
    origin: str, machine: Callable[[str], Path], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    base: Path = request.getfixturevalue(origin)
    lib = base / "dtk/_native/lib" if origin == "content" else base / "lib"
    environment = {**os.environ, "PKG_CONFIG_PATH": str(lib / "pkgconfig")}
    options = run("pkg-config", "--cflags", "--libs", "dtk", env=environment).split()
    run("cc", *WARNINGS, CONSUMER / "consumer.c", *options, "-o", tmp_path / "consumer")
    check(tmp_path / "consumer", machine("mi210"), library_path=lib if origin == "prefix" else None)


@needs("cc", "cmake")
def test_consumer_with_cmake(prefix: Path, machine: Callable[[str], Path], tmp_path: Path) -> None:
    run("cmake", "-S", CONSUMER, "-B", tmp_path, "--log-level=WARNING", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    check(tmp_path / "consumer", machine("mi210"))


@needs("cmake")
def test_install_has_the_usual_links(prefix: Path) -> None:
    lib = prefix / "lib"
    real = (lib / "libdtk.so").resolve()
    assert (lib / "libdtk.so.0").resolve() == real
    assert re.fullmatch(r"libdtk\.so\.0\.\d+\.\d+", real.name)
    assert (prefix / "include/dtk.h").is_file()
