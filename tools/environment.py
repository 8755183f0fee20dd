"""Create the virtual environment and install one set of packages: `environment.py base|dev|gpu`.

What enters: the interpreter that runs this file. What leaves: `.venv`, with this project installed
in place, and one stamp file for each set, `.venv/.installed-<set>`. It uses the standard library
only, and no syntax newer than Python 3.6, so that an interpreter that is too old can be told so.
"""

import contextlib
import hashlib
import importlib.util
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
OLDEST = (3, 11)
RUNS = f"import sys; sys.exit(sys.version_info < {OLDEST})"

# Set -> (extras of pyproject.toml, the other sets that it contains).
SETS = {"base": ("", ()), "dev": ("[dev]", ("base",)), "gpu": ("[dev,cuda]", ("base", "dev"))}


def refuse(message: str) -> None:
    """End with a message for the person at the terminal."""
    sys.exit("setup: " + message)


def run(*command: str) -> bool:
    """Whether a command, run in the project's root, succeeds."""
    try:
        return subprocess.call(command, cwd=ROOT) == 0
    except OSError:
        return False


def check_interpreter() -> None:
    """Refuse an interpreter that cannot make the environment, and say what to do."""
    version = "{}.{}".format(*sys.version_info)
    other = "name another interpreter: make PYTHON=python3.12 ..."
    if sys.version_info < OLDEST:
        needed = "{}.{}".format(*OLDEST)
        refuse(f"Python {needed} or newer is needed; {sys.executable} is {version}: {other}")
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        refuse(
            f"{sys.executable} has no module {' and no '.join(missing)}, which making a virtual"
            f" environment needs. Install it (Debian, Ubuntu: python{version}-venv) or {other}"
        )


def ensure_venv() -> None:
    """Create `.venv` unless it is there; refuse one that does not run or is too old."""
    if not os.path.lexists(PYTHON):
        print("setup: creating .venv", flush=True)
        if not run(sys.executable, "-m", "venv", VENV):
            refuse(f"`{sys.executable} -m venv .venv` failed; its message is above.")
    if not run(PYTHON, "-c", RUNS):
        refuse("the interpreter in .venv does not run or is too old. Remove .venv and try again.")
    has_pip = run(PYTHON, "-c", "import sys, importlib.util as u; sys.exit(not u.find_spec('pip'))")
    if not has_pip and not run(PYTHON, "-m", "ensurepip"):
        refuse("there is no pip in .venv, and it could not be put there; the message is above.")


def fingerprint() -> str:
    """What an install depends on: the project file, where the project lies, the interpreter."""
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        parts = [file.read(), os.fsencode(ROOT), os.fsencode(os.path.realpath(PYTHON))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def stamp(name: str) -> str:
    """The path of the stamp file of one set."""
    return os.path.join(VENV, ".installed-" + name)


def install(name: str) -> None:
    """Install one set, unless its stamp says that just this is installed already."""
    extras, contains = SETS[name]
    want = fingerprint()
    with contextlib.suppress(OSError), open(stamp(name)) as file:
        if file.read() == want:
            os.utime(stamp(name))
            return
    print(f"setup: installing tilewright{extras} into .venv", flush=True)
    quiet = ("-qq", "--disable-pip-version-check")
    if not run(PYTHON, "-m", "pip", "install", *quiet, "-e", "." + extras):
        refuse("pip could not install the packages; its message is above.")
    for each in (*contains, name):
        with open(stamp(each), "w") as file:
            file.write(want)


@contextlib.contextmanager
def locked():  # noqa: ANN201 - the annotation needs a newer Python than this file does
    """Hold the environment's lock: two `make` at once would install over each other."""
    try:
        import fcntl
    except ImportError:  # Windows has none
        yield
        return
    with open(os.path.join(VENV, ".lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Entry point."""
    if len(sys.argv) != 2 or sys.argv[1] not in SETS:
        refuse("say which set of packages: " + ", ".join(SETS))
    if not os.path.lexists(PYTHON):
        check_interpreter()
    os.makedirs(VENV, exist_ok=True)
    with locked():
        ensure_venv()
        install(sys.argv[1])


if __name__ == "__main__":
    main()
