"""No secret gets into a record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.records.privacy import safe_command, safe_environment, safe_text


def test_only_variables_that_matter_for_speed_are_kept():
    environment = {
        "CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4", "HOME": "/me", "WANDB_API_KEY": "s",
        "TORCH_HUB_TOKEN": "s", "NCCL_AUTH": "s", "SLURM_JWT": "s", "CUDA_PROXY": "http://me:s@host",
    }  # fmt: skip
    assert safe_environment(environment) == {"CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4"}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["t.py", "--api-key", "s3cret"], ("t.py", "--api-key", "***")),
        (["t.py", "--wandb-key=s3cret", "--lr", "1"], ("t.py", "--wandb-key=***", "--lr", "1")),
        (["t.py", "--hf-token", "s3cret", "--lr=1"], ("t.py", "--hf-token", "***", "--lr=1")),
        (["env", "MY_PASSWORD=s3cret", "t.py"], ("env", "MY_PASSWORD=***", "t.py")),
        (["t.py", "--db", "mysql://me:s3cret@host/x"], ("t.py", "--db", "mysql://***@host/x")),
        (["t.py", "--max-tokens", "512", "--tokenizer", "x"], ("t.py", "--max-tokens", "512", "--tokenizer", "x")),
        (["t.py", "--use-auth", "--lr", "1"], ("t.py", "--use-auth", "--lr", "1")),
    ],
)  # fmt: skip
def test_values_of_secret_options_are_removed(command: list[str], expected: tuple[str, ...]):
    assert safe_command(command) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["bash", "-c", "python t.py --api-key sk-123 --lr 1"], "python t.py --api-key *** --lr 1"),
        (["bash", "-c", "LR=1 WANDB_API_KEY=abc python t.py"], "LR=1 WANDB_API_KEY=*** python t.py"),
        (["bash", "-c", "X_TOKEN='abc def' python t.py"], "X_TOKEN=***"),
        (["bash", "-c", "curl -H 'Authorization: Basic abc' u"], "curl -H 'Authorization: ***' u"),
        (["bash", "-c", 't.py --cfg \'{"api_key": "abc"}\''], "t.py --cfg '{\"api_key\": ***}'"),
        (["bash", "-c", "t.py --pw \\\n abc"], "t.py --pw \\\n ***"),
        (["t.py", "--header", "Authorization: Bearer xyz"], "Authorization: ***"),
        (["t.py", "--header=X-Api-Key: xyz"], "--header=X-Api-Key: ***"),
        (["t.py", "--header", "Authorization:", "Bearer", "xyz"], "***"),
        (["t.py", "--token", "-abc"], "***"),
        (["t.py", "--pw", "hunter2"], "***"),
        (["t.py", "--tokenizer-auth-token", "hf_x"], "***"),
        (["t.py", "--wandbApiKey", "abc"], "***"),
        (["t.py", "--hftoken", "abc"], "***"),
        (["t.py", "--password=my secret words"], "--password=***"),
        (["t.py", "+hub.token=abc"], "+hub.token=***"),
        (["t.py", "--url=https://h/?token=abc&x=1"], "--url=https://h/?token=***&x=1"),
        (["t.py", "https://h/?x=1&sig=abc#top"], "https://h/?x=1&sig=***#top"),
        (["t.py", "s3://me:p@ss@host/x"], "s3://***@host/x"),
        (["t.py", "--pass", "abc"], "***"),
        (["t.py", "--db-pass=abc"], "--db-pass=***"),
        (["t.py", "--creds", "abc"], "***"),
        (["t.py", "--user", "me:abc"], "me:***"),
        (["t.py", "--proxy-user=me:abc"], "--proxy-user=me:***"),
        (["curl", "-u", "me:abc"], "me:***"),
        (["bash", "-c", "curl -u me:abc u"], "curl -u me:*** u"),
        (["bash", "-c", "curl --user 'me:abc' u"], "curl --user 'me:***' u"),
        (["wandb", "login", "abc"], "***"),
        (["python", "-m", "wandb", "login", "--relogin", "--host", "https://h", "abc"], "***"),
        (["bash", "-c", "wandb login --relogin abc && t.py"], "wandb login --relogin *** && t.py"),
        (["bash", "-c", "sshpass -p abc ssh host"], "sshpass -p *** ssh host"),
        (["t.py", "--notify", "https://hooks.slack.com/services/T0/B0/abc"], "https://hooks.slack.com/***"),
        (["t.py", "--url=https://discord.com/api/webhooks/1/abc"], "--url=https://discord.com/***"),
        (["t.py", "--notify", "https://api.telegram.org/bot1:abc/sendMessage"], "https://api.telegram.org/bot***"),
        (["t.py", "--slack-webhook", "abc"], "***"),
    ],
)
def test_secrets_are_found_inside_words_and_behind_any_spelling(command: list[str], expected: str):
    assert safe_command(command)[-1] == expected


@pytest.mark.parametrize(
    "command",
    [
        "--session-length 128", "--keyframes 12", "--capital x", "--max-tokens 5", "--max-token 5", "--tokenizer gpt2",
        "--pad-token <pad>", "--num-key-value-heads 8", "--author me", "--monkey 1", "--patience 3", "--path x",
        "--token-file t.txt", "--user me", "--user 1000:1000",
        "--passes 3", "--login-node http://h:80", "wandb login --relogin", "-u http://h:80",
        "hf_trainer.py --lr 1", "python -m sk-learn", "auth.py:12", "lr=0.1 data.tokens=3",
    ],
)  # fmt: skip
def test_harmless_options_are_kept(command: str):
    words = ["t.py", *command.split()]
    assert safe_command(words) == tuple(words)
    assert safe_command(["bash", "-c", command]) == ("bash", "-c", command)


@pytest.mark.parametrize(
    "secret",
    [
        "hf_" + "a" * 34, "hf_abcDEF123", "sk-proj-abc123def456", "ghp_" + "a1" * 18, "github_pat_11ABC_def456",
        "glpat-abc-DEF_123", "AKIAIOSFODNN7EXAMPLE", "xoxb-123-456-abc", "eyJhbGciOiJI.eyJzdWIi.abc",
        "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
    ],
)  # fmt: skip
def test_known_shapes_are_hidden_wherever_they_stand(secret: str):
    assert safe_text(f"loading {secret} failed") == "loading *** failed"
    assert safe_command(["t.py", "--x", secret]) == ("t.py", "--x", "***")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cannot log in with password: hunter2 (401)", "cannot log in with password: *** (401)"),
        ("got {'api_key': 'abc', 'lr': 1}", "got {'api_key': ***, 'lr': 1}"),
        ("GET https://me:pw@h/?access_token=abc&x=1: 403", "GET https://***@h/?access_token=***&x=1: 403"),
        ("bad header Bearer abc.def", "bad header Bearer ***"),
        ("secret='never closed", "secret=***"),
        ("the password: it's, was wrong", "the password: *** was wrong"),
        ("KeyError: 'weight'", "KeyError: 'weight'"),
        ("Unexpected key(s) in state_dict: 'a.b'", "Unexpected key(s) in state_dict: 'a.b'"),
        ("CUDA out of memory. Tried 2.00 GiB", "CUDA out of memory. Tried 2.00 GiB"),
        ("TOKEN= --api-key abc", "TOKEN= *** ***"),
        ("token=x,Authorization:Basic abc", "token=***"),
        pytest.param("key=" * 50_000, "key=***", id="long"),
        ("", ""),
    ],
)
def test_a_sentence_loses_its_secrets_only(text: str, expected: str):
    assert safe_text(text) == expected


def test_a_variable_with_a_secret_in_its_value_is_left_out():
    assert safe_environment({"TORCH_LOGS": "x", "NCCL_X": "https://h/?token=abc"}) == {"TORCH_LOGS": "x"}


NAMES = [
    "--token ", "MY_KEY=", "?a=1&token=", "Bearer ", "--pass ", "--creds=", "-u me:", "--user=me:", "wandb login ",
    "https://hooks.slack.com/services/", "sshpass -p ", "export WANDB_API_KEY=", '"api_key": ',
    "--header X-Auth-Token:",
]  # fmt: skip
PIECES = ["--", "x", "api_key", "Token", "=", ":", " ", "'", '"', "?", "&", "\\", "\n", "Bearer ", "://", "@", "lr=1"]


@given(st.lists(st.sampled_from(PIECES)).map("".join), st.sampled_from(NAMES))
def test_a_secret_is_found_after_any_text(before: str, name: str):
    assert "s3cret" not in safe_text(f"{before} {name}s3cret")
    assert "s3cret" not in " ".join(safe_command(["t.py", f"{before} {name}s3cret"]))


@given(st.text(min_size=8, alphabet=st.characters(categories=["L", "N"])))
def test_no_value_of_a_secret_option_survives(value: str):
    assert value not in safe_command(["t.py", "--secret", value]) or value == "***"
    assert value not in "".join(safe_command(["t.py", f"--my-token={value}"]))[len("t.py--my-token=") :]
