"""Which values of a line are hidden."""

from __future__ import annotations

import pytest

from core.ops.announce import file_diff
from core.util.event import Action
from core.util.scrub import mask_settings


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("-//nas/x /x cifs username=svc,vers=3.0 0 0", "-//nas/x /x cifs username=***,vers=3.0 0 0"),
        ("-//nas/x /x cifs rw,user=svc,pass=a,b 0 0", "-//nas/x /x cifs rw,user=***,pass=*** 0 0"),
        ("-//nas/x /x cifs credentials=/root/c,rw 0 0", "-//nas/x /x cifs credentials=*** 0 0"),
        ("-//nas/x /x cifs password2=x 0 0", "-//nas/x /x cifs password2=*** 0 0"),
        ('-          password: "two words"', "-          password: ***"),
        ('+  "registry-token":"abc"', '+  "registry-token":***'),
        ("-client-key-password: x", "-client-key-password: ***"),
        ("-psk = x y", "-psk = ***"),
        ('-Acquire::http::Proxy "http://me:pw@10.0.0.1:3128";', '-Acquire::http::Proxy "http://me:***@10.0.0.1:3128";'),
        ("+PasswordAuthentication no", "+PasswordAuthentication no"),
        ("-/dev/sdb1 /media auto noauto,user 0 0", "-/dev/sdb1 /media auto noauto,user 0 0"),
        ("+User=root", "+User=root"),
        ("@@ -1 +1 @@", "@@ -1 +1 @@"),
    ],
)
def test_a_line(line: str, shown: str) -> None:
    assert mask_settings(line) == shown


@pytest.mark.parametrize(
    ("before", "after", "action", "lines"),
    [
        (b"a\nb\nc\n", b"a\nx\nc\n", Action.MODIFY, ("@@ -2 +2 @@", "-b", "+x")),
        (None, b"psk = secret\n", Action.CREATE, ("@@ -0,0 +1 @@", "+psk = ***")),
        (b"psk = secret\nb\n", None, Action.REMOVE, ("@@ -1,2 +0,0 @@", "-psk = ***", "-b")),
        (b"a\xff\n", b"a\n", Action.MODIFY, ("@@ -1 +1 @@", "-a\\xff", "+a")),
    ],
)
def test_only_the_lines_that_change_are_shown(
    before: bytes | None, after: bytes | None, action: Action, lines: tuple[str, ...]
) -> None:
    event = file_diff("/etc/x", before, after)
    assert (event.path, event.action, event.diff) == ("/etc/x", action, lines)
