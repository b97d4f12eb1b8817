"""Basic authentication, at a price that those who guess passwords cannot choose."""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping

import bcrypt

LONGEST = 72  # bytes of a password that bcrypt looks at; bcrypt 5 refuses longer ones
GOOD, BAD = 64, 1024  # verdicts that are remembered


class BasicAuth:
    """Says whether an Authorization header is a user's.

    A bcrypt comparison takes 50 ms of a core and more, so a verdict is remembered, as a keyed hash of the stored hash,
    the user and the password: a changed password is a new question, and no memory holds a clear one. Comparisons are
    made one at a time; at most `waiting` wait for their turn and others are told to come back, so that a flood of
    guesses takes one core and few workers. An unknown user costs what a known one does.
    """

    def __init__(self, waiting: int = 2) -> None:
        self._secret = secrets.token_bytes(32)
        self._good: OrderedDict[bytes, None] = OrderedDict()
        self._bad: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()
        self._comparing = threading.Lock()
        self._places = threading.Semaphore(1 + waiting)

    def check(self, users: Mapping[bytes, bytes], header: str) -> bool | None:
        """Whether the header is one of the users'; None when too many others are being checked."""
        credentials = _decode(header)
        if credentials is None:
            return False
        user, password = credentials
        stored = users.get(user) or next(iter(users.values()))
        key = hashlib.blake2b(stored + user + b":" + password, key=self._secret, digest_size=16).digest()
        verdict = self._remembered(key)
        if verdict is not None:
            return verdict
        if not self._places.acquire(blocking=False):
            return None
        try:
            with self._comparing:
                verdict = self._remembered(key)  # several may have come with the same header
                return self._remember(key, _matches(password, stored) and user in users) if verdict is None else verdict
        finally:
            self._places.release()

    def _remembered(self, key: bytes) -> bool | None:
        with self._lock:
            if key in self._good:
                self._good.move_to_end(key)
                return True
            return False if key in self._bad else None

    def _remember(self, key: bytes, verdict: bool) -> bool:
        verdicts, most = (self._good, GOOD) if verdict else (self._bad, BAD)
        with self._lock:
            verdicts[key] = None
            if len(verdicts) > most:
                verdicts.popitem(last=False)
        return verdict


def _decode(header: str) -> tuple[bytes, bytes] | None:
    """User and password of an Authorization header."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except ValueError:
        return None
    return (user, password) if colon else None


def _matches(password: bytes, stored: bytes) -> bool:
    try:
        return bcrypt.checkpw(password[:LONGEST], stored)
    except ValueError:
        return False
