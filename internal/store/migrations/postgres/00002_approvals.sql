-- +goose Up

-- What is put in order compares by byte (COLLATE "C"), whatever the locale.

CREATE TABLE requests (
    id         TEXT COLLATE "C" PRIMARY KEY,
    kind       TEXT NOT NULL,
    subject    TEXT NOT NULL,
    plan_hash  TEXT NOT NULL,
    plan       TEXT NOT NULL,
    amount     BIGINT NOT NULL,
    roles      TEXT NOT NULL,
    asked_by   TEXT NOT NULL,
    asked_at   BIGINT,
    expires_at BIGINT,
    state      TEXT NOT NULL,
    decided_by TEXT NOT NULL,
    reason     TEXT NOT NULL,
    decided_at BIGINT,
    used_at    BIGINT,
    version    BIGINT NOT NULL
);

CREATE INDEX requests_plan ON requests (plan_hash, asked_at);
