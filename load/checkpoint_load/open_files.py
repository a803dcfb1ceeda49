"""Every connection is an open file, and a process may have only so many."""

import resource


class OpenFilesError(Exception):
    """There may not be so many connections; the message says what to do."""


def allow_open_files(number: int) -> None:
    """Raise this process's limit, and that of what it starts, as far as that is allowed.

    Raises:
        OpenFilesError: the system's own limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= number:
        return
    if hard != resource.RLIM_INFINITY and hard < number:
        raise OpenFilesError(
            f"{number} files need to be open at once, one for each connection and some besides; "
            f"the hard limit is {hard}. Raise it (ulimit -Hn), or storm with fewer --contenders."
        )
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    except (ValueError, OSError) as error:
        raise OpenFilesError(
            f"{number} files need to be open at once, and the limit of {soft} cannot be raised: "
            f"{error}. Storm with fewer --contenders."
        ) from None
