-- +goose Up

-- What people are told once an action is confirmed or fails; null before its first intent.
ALTER TABLE items ADD COLUMN briefing TEXT NOT NULL DEFAULT 'null';

-- Messages that people are owed. They are written with the change that they are about, and
-- delivered by whichever process comes first.
CREATE TABLE notices (
    id            TEXT PRIMARY KEY,
    account       TEXT NOT NULL,
    item          TEXT NOT NULL,
    cloud         TEXT NOT NULL,
    cloud_account TEXT NOT NULL,
    region        TEXT NOT NULL,
    kind          TEXT NOT NULL,
    resource_id   TEXT NOT NULL,
    verb          TEXT NOT NULL,
    message       TEXT NOT NULL,
    recipient     TEXT NOT NULL,
    alarm         TEXT NOT NULL,
    briefing      TEXT NOT NULL,
    created_at    BIGINT NOT NULL,
    attempts      BIGINT NOT NULL,
    due_at        BIGINT NOT NULL,
    closed_at     BIGINT,
    accepted_by   TEXT NOT NULL,
    error         TEXT NOT NULL
);

CREATE INDEX notices_owed ON notices (account, due_at) WHERE closed_at IS NULL;
CREATE INDEX notices_closed ON notices (closed_at) WHERE closed_at IS NOT NULL;
