"""Where a run was made: versions and the commit, so that it can be made again."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("workbench-distributed", "torch", "distributed", "numpy")


def about_here(folder: Path | None = None) -> dict[str, str]:
    """Return what this process runs on: Python, packages, folder, git commit.

    Imports none of the packages and starts no process.

    Args:
        folder: Whose commit is looked up; the working folder by default.
    """
    folder = (folder or Path.cwd()).absolute()
    about = {"python": platform.python_version(), "system": platform.platform()}
    about |= {name: found for name in _PACKAGES if (found := _version(name))}
    about["folder"] = str(folder)
    if commit := git_commit(folder):
        about["commit"] = commit
    return about


def git_commit(folder: Path) -> str:
    """Return the commit that a folder's repository has checked out; "" without one."""
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        if git.is_dir():
            return _head(git)
    return ""


def _head(git: Path) -> str:
    try:
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        loose = git / name
        if loose.is_file():
            return loose.read_text().strip()
        packed = (git / "packed-refs").read_text().splitlines()
    except OSError:
        return ""
    named = (line.split(" ", 1) for line in packed if line.endswith(f" {name}"))
    return next((commit for commit, _ in named), "")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
