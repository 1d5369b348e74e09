"""Reads everything that the API lists with a generated client, and holds what it parsed against the answer."""

import datetime
import enum
import importlib
import json
import os
import pkgutil
import sys
import typing

import curfew_client.api
from curfew_client import AuthenticatedClient

def normal(value):
    """Times are equal however they are written."""
    if isinstance(value, dict):
        return {key: normal(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [normal(inner) for inner in value]
    if isinstance(value, str):
        try:
            at = datetime.datetime.fromisoformat(value)
        except ValueError:
            return value
        return at.timestamp() if at.tzinfo else value
    return value


def difference(path, got, want):
    """Where two values differ first, or None."""
    if isinstance(got, dict) and isinstance(want, dict):
        for key in sorted(got.keys() | want.keys()):
            if key not in got or key not in want:
                return f"{path}.{key} is only in the {'parsed' if key in got else 'answer'}"
            if found := difference(f"{path}.{key}", got[key], want[key]):
                return found
        return None
    if isinstance(got, list) and isinstance(want, list) and len(got) == len(want):
        return next(filter(None, (difference(f"{path}[{i}]", *pair) for i, pair in enumerate(zip(got, want)))), None)
    return None if got == want else f"{path} is {got!r}, and {want!r} in the answer"


def typed(hint, value):
    """An argument as its operation takes it: as a member where it is one of a few words."""
    kinds = [t for t in typing.get_args(hint) or (hint,) if isinstance(t, type) and issubclass(t, enum.Enum)]
    return kinds[0](value) if kinds else value


def main():
    client = AuthenticatedClient(base_url=os.environ["API_URL"], token=os.environ["API_TOKEN"], timeout=60)
    arguments = json.loads(os.environ["API_ARGUMENTS"])
    read, wrong = [], []
    for module in pkgutil.walk_packages(curfew_client.api.__path__, "curfew_client.api."):
        name = module.name.rsplit(".", 1)[-1]
        operation = importlib.import_module(module.name)
        if module.ispkg or name not in arguments:
            continue
        hints = typing.get_type_hints(operation._get_kwargs)
        given = {key: typed(hints[key], value) for key, value in arguments[name].items()}
        answer = operation.sync_detailed(client=client, **given)
        if answer.status_code != 200 or answer.parsed is None:
            wrong.append(f"{name}: {answer.status_code} {answer.content[:300]!r}")
            continue
        read.append(name)
        if found := difference(name, normal(answer.parsed.to_dict()), normal(json.loads(answer.content))):
            wrong.append(found)
    print(json.dumps({"read": read, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
