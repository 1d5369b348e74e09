-- +goose Up

-- The team that a request is for, so that a role in that team decides it.
ALTER TABLE requests ADD COLUMN team TEXT NOT NULL DEFAULT '';

-- Tokens of the service. Of a token only its SHA-256 is kept.
CREATE TABLE tokens (
    id         TEXT PRIMARY KEY,
    hash       TEXT NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    roles      TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at    BIGINT,
    revoked_at BIGINT
);

-- What calls with an idempotency key were answered, so that a repeated call is not carried
-- out again.
CREATE TABLE answers (
    caller  TEXT NOT NULL,
    key     TEXT NOT NULL,
    request TEXT NOT NULL,
    at      BIGINT NOT NULL,
    status  BIGINT NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (caller, key)
);

CREATE INDEX answers_at ON answers (at);

-- Proofs of identity that were taken, each once.
CREATE TABLE proofs (
    hash TEXT PRIMARY KEY,
    at   BIGINT NOT NULL
);

CREATE INDEX proofs_at ON proofs (at);
