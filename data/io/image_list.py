"""Lines of image lists (.lst files): number<TAB>label<TAB>...<TAB>path."""

from __future__ import annotations


def parse_line(line: str) -> tuple[int, list[float], str]:
    """(number, labels, path) of a line. Raises ValueError that says what is wrong with it.

    >>> parse_line("3\\t0\\tcats/1.jpg")
    (3, [0.0], 'cats/1.jpg')
    """
    fields = [field.strip() for field in line.strip().split("\t")]
    if len(fields) < 2:
        raise ValueError("expected index<TAB>label<TAB>path")
    return int(fields[0]), [float(field) for field in fields[1:-1]], fields[-1]
