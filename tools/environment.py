"""Create the virtual environment and install one set of packages into it: `environment.py base|dev|gpu`.

What enters: the interpreter that runs this file. What leaves: `.venv`, with this project installed in place, and one
stamp file for each set, `.venv/.installed-<set>`. Uses the standard library only, and no syntax newer than
Python 3.7, so that an interpreter that is too old can be told so.
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

# Set -> (extras of pyproject.toml, the other sets that it contains).
SETS = {"base": ("", ()), "dev": ("[dev]", ("base",)), "gpu": ("[dev,cuda]", ("base", "dev"))}


def refuse(message: str) -> None:
    """End with a message for the person at the terminal."""
    sys.exit("setup: " + message)


def check_interpreter() -> None:
    """Refuse an interpreter that cannot make the environment, and say what to do."""
    if sys.version_info < OLDEST:
        refuse(
            "Python %d.%d or newer is needed; %s is %d.%d. Name another one: make PYTHON=python3.12 ..."
            % (OLDEST + (sys.executable,) + sys.version_info[:2])
        )
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        refuse(
            "%s has no %s module, which `python3 -m venv` needs. Install it (Debian and Ubuntu: the package"
            " python%d.%d-venv) or name another interpreter: make PYTHON=python3.12 ..."
            % (sys.executable, " and no ".join(missing), sys.version_info[0], sys.version_info[1])
        )


def ensure_venv() -> None:
    """Create `.venv` unless it is there; refuse one that does not run or is too old."""
    if not os.path.lexists(PYTHON):
        print("setup: creating .venv", flush=True)
        if subprocess.run([sys.executable, "-m", "venv", VENV]).returncode:
            refuse("`%s -m venv .venv` failed; its message is above." % sys.executable)
    probe = "import sys; sys.exit(sys.version_info < (%d, %d))" % OLDEST
    try:
        works = subprocess.run([PYTHON, "-c", probe]).returncode == 0
    except OSError:
        works = False
    if not works:
        refuse("the interpreter in .venv does not run or is too old. Remove .venv and try again.")
    if subprocess.run([PYTHON, "-c", "import pip"], stderr=subprocess.DEVNULL).returncode:
        subprocess.run([PYTHON, "-m", "ensurepip"], check=True)


def fingerprint() -> str:
    """What an install depends on: the project file, where the project lies, and which interpreter."""
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
    print("setup: installing tilewright%s into .venv" % extras, flush=True)
    command = [PYTHON, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "-e", "." + extras]
    if subprocess.run(command, cwd=ROOT).returncode:
        refuse("pip could not install the packages; its message is above.")
    for each in (*contains, name):
        with open(stamp(each), "w") as file:
            file.write(want)


def locked() -> "contextlib.AbstractContextManager[object]":
    """Hold the environment's lock: two `make` at once would install over each other."""
    try:
        import fcntl  # not on Windows
    except ImportError:
        return contextlib.nullcontext()
    file = open(os.path.join(VENV, ".lock"), "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


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
