-- +goose Up

-- A row for each budget and quota, locked by whatever decides about it.
CREATE TABLE budget_locks (
    name TEXT PRIMARY KEY
);

CREATE TABLE holds (
    id          TEXT PRIMARY KEY,
    hold_key    TEXT NOT NULL UNIQUE,
    kind        TEXT NOT NULL,
    name        TEXT NOT NULL,
    spec_hash   TEXT NOT NULL,
    team        TEXT NOT NULL,
    project     TEXT NOT NULL,
    username    TEXT NOT NULL,
    environment TEXT NOT NULL,
    cost_center TEXT NOT NULL,
    purpose     TEXT NOT NULL,
    amount      BIGINT NOT NULL,
    hourly      BIGINT NOT NULL,
    gpus        TEXT NOT NULL,
    machines    BIGINT NOT NULL,
    begins_at   BIGINT NOT NULL,
    ends_at     BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL,
    state       TEXT NOT NULL,
    approval    TEXT NOT NULL,
    run         TEXT NOT NULL,
    asked_by    TEXT NOT NULL,
    actual      BIGINT NOT NULL,
    created_at  BIGINT,
    updated_at  BIGINT,
    version     BIGINT NOT NULL
);

CREATE INDEX holds_expire ON holds (expires_at);

-- What the gate decided.
CREATE TABLE decisions (
    id          TEXT PRIMARY KEY,
    at          BIGINT NOT NULL,
    kind        TEXT NOT NULL,
    name        TEXT NOT NULL,
    plan_hash   TEXT NOT NULL,
    asked_by    TEXT NOT NULL,
    team        TEXT NOT NULL,
    project     TEXT NOT NULL,
    username    TEXT NOT NULL,
    environment TEXT NOT NULL,
    cost_center TEXT NOT NULL,
    purpose     TEXT NOT NULL,
    decision    TEXT NOT NULL,
    amount      BIGINT NOT NULL,
    approval    TEXT NOT NULL,
    hold        TEXT NOT NULL,
    reasons     TEXT NOT NULL
);

CREATE INDEX decisions_at ON decisions (at);
