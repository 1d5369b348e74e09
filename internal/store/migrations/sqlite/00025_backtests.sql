-- +goose Up

-- What about a finding is worth telling when it changes; empty is not known.
ALTER TABLE snapshot_findings ADD COLUMN gist TEXT NOT NULL DEFAULT '';

-- When the resources of a kind in a region were last judged for findings.
ALTER TABLE snapshot_parts ADD COLUMN judged_at BIGINT;

-- When the newest audit of a source of the service ended well.
CREATE TABLE audited (
    source TEXT PRIMARY KEY,
    at     BIGINT NOT NULL
);

-- Replays that callers of the service asked for, with their results.
CREATE TABLE backtests (
    id         TEXT PRIMARY KEY,
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    spec       TEXT NOT NULL,
    state      TEXT NOT NULL,
    attempts   BIGINT NOT NULL,
    fence      BIGINT NOT NULL,
    progress   BIGINT NOT NULL,
    note       TEXT NOT NULL,
    started_at BIGINT,
    ended_at   BIGINT,
    result     TEXT NOT NULL
);

CREATE INDEX backtests_created_at ON backtests (created_at);
