"""What can go wrong, by whose fault it is: the exit code of lab/run follows from the class."""


class LabError(Exception):
    """The lab itself failed (a guest did not boot, a command channel broke)."""

    exit_code = 1


class ProductError(LabError):
    """weft misbehaved where the lab did not: a daemon died, did not end, or never became ready."""


class UsageError(LabError):
    """The caller asked for something that cannot be: bad argument, bad scenario."""

    exit_code = 2


class MissingTool(LabError):
    """The builder lacks a program or a package."""

    exit_code = 3


class Interrupted(BaseException):
    """SIGINT, SIGTERM or the overall deadline. Like KeyboardInterrupt: no handler of failures may swallow it."""

    def __init__(self, text: str, exit_code: int):
        super().__init__(text)
        self.exit_code = exit_code
