"""Files that take the place of others, also where links lead to these."""

from __future__ import annotations

import pytest

from hlo2graph.atomic import replacing


def test_a_file_takes_the_place_of_what_a_link_leads_to(tmp_path):
    (tmp_path / "there").write_bytes(b"old")
    (tmp_path / "link").symlink_to("there")
    with replacing(tmp_path / "link") as whole:
        whole.write(b"new")
    assert (tmp_path / "there").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()


def test_links_in_a_circle_are_an_error_of_the_system_or_none(tmp_path):
    circle = tmp_path / "circle"
    circle.symlink_to("circle")
    with pytest.raises(OSError, match="symbolic links"), replacing(circle / "x"):
        pass
    with replacing(circle) as whole:
        whole.write(b"new")
    assert circle.read_bytes() == b"new"
