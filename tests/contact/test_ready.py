"""A node from its box is ready after one command, and a second one changes nothing."""

from __future__ import annotations

from tests.contact.conftest import Rack


def test_a_node_from_its_box_is_ready_after_one_command(rack: Rack) -> None:
    operator = rack()
    node = operator.nodes["spark1"]
    done = operator.run()
    assert done.code == 0, done
    assert done.lines("spark1: ")[-1] == "spark1: ready"
    assert (
        operator.by_key("spark1", "sudo -n id -u; hostname; getent hosts spark1")
        == "0\nspark1\n127.0.1.1       spark1\n"
    )
    assert node.ask(
        "stat -c '%a %U:%G %n' /etc/sudoers.d/zz-sparkrack /home/ops/.ssh /home/ops/.ssh/authorized_keys"
    ) == (
        "440 root:root /etc/sudoers.d/zz-sparkrack\n"
        "700 ops:ops /home/ops/.ssh\n"
        "600 ops:ops /home/ops/.ssh/authorized_keys\n"
    )
    assert node.ask("getent shadow ops").split(":")[1] == "*"
    before, pins = node.state(), operator.known_hosts.read_bytes()
    again = operator.run(secret=False, vouched=False)
    assert again.code == 0, again
    assert "password" not in again.output
    assert "done:" not in again.output
    assert (node.state(), operator.known_hosts.read_bytes()) == (before, pins)


def test_what_others_have_put_there_stays(rack: Rack) -> None:
    operator = rack()
    node = operator.nodes["spark1"]
    node.ask(
        "groupadd ops; useradd -m -g ops ops; mkdir -m 700 /home/ops/.ssh; cd /home/ops/.ssh; groupadd docker; "
        "printf '# mine\\nssh-rsa AAAA other' > authorized_keys; chown -R ops: .; mkdir -p /etc/cloud/cloud.cfg.d"
    )
    done = operator.run("--dry")
    assert done.code == 0, done
    assert [line.removeprefix("spark1: would ") for line in done.lines("spark1: would ")] == [
        "put ops into docker,sudo",
        "let the operator's key in as ops",
        "let ops use sudo without a password",
        "configure cloud-init to keep the host name",
        "let spark1 stand for itself in /etc/hosts",
        "call it spark1 instead of spark-1a2b",
        f"pin its host keys in {operator.known_hosts}",
    ]
    assert not operator.known_hosts.exists()
    operator.known_hosts.write_text("10.0.0.1 ssh-ed25519 AAAA another rack's\n")
    done = operator.run()
    assert done.code == 0, done
    keys = node.ask("cat /home/ops/.ssh/authorized_keys").splitlines()
    assert keys == ["# mine", "ssh-rsa AAAA other", operator.key.with_suffix(".pub").read_text().strip()]
    assert node.ask("id -nG ops").split() == ["ops", "sudo", "docker"]
    assert node.ask("cat /etc/hosts").splitlines()[1] == "127.0.1.1 spark1\t# the wizard's"
    assert "preserve_hostname: true" in node.ask("cat /etc/cloud/cloud.cfg.d/*")
    assert operator.known_hosts.read_text().startswith("10.0.0.1 ssh-ed25519 AAAA another rack's\n")
