-- +goose Up

-- The last round of an account.
CREATE TABLE accounts (
    account TEXT PRIMARY KEY,
    round   BIGINT NOT NULL,
    wall    BIGINT,
    boot    TEXT NOT NULL,
    uptime  BIGINT NOT NULL
);

CREATE TABLE items (
    id            TEXT PRIMARY KEY,
    account       TEXT NOT NULL,
    cloud         TEXT NOT NULL,
    cloud_account TEXT NOT NULL,
    region        TEXT NOT NULL,
    kind          TEXT NOT NULL,
    resource_id   TEXT NOT NULL,
    identity      TEXT NOT NULL,
    source        TEXT NOT NULL,
    action        TEXT NOT NULL,
    gang          TEXT NOT NULL,
    phase         TEXT NOT NULL,
    is_open       INTEGER NOT NULL CHECK (is_open IN (0, 1)),
    because       TEXT NOT NULL,
    class         TEXT NOT NULL,
    first_round   BIGINT NOT NULL,
    first_at      BIGINT,
    warned_round  BIGINT NOT NULL,
    warned_at     BIGINT,
    grace_from    BIGINT,
    grace         BIGINT NOT NULL,
    recipients    TEXT NOT NULL,
    steps         TEXT NOT NULL,
    step          BIGINT NOT NULL,
    approved_at   BIGINT,
    alarm         TEXT NOT NULL,
    updated_at    BIGINT,
    boot          TEXT NOT NULL,
    uptime        BIGINT NOT NULL,
    version       BIGINT NOT NULL
);

-- One open item of a resource and source.
CREATE UNIQUE INDEX items_open
    ON items (account, source, cloud, cloud_account, region, kind, resource_id) WHERE is_open = 1;

-- What the caps count.
CREATE TABLE admissions (
    item    TEXT NOT NULL REFERENCES items (id),
    version BIGINT NOT NULL,
    account TEXT NOT NULL,
    source  TEXT NOT NULL,
    at      BIGINT NOT NULL,
    hourly  BIGINT NOT NULL,
    PRIMARY KEY (item, version)
);

CREATE INDEX admissions_at ON admissions (account, source, at);

-- One row, locked by whatever acts; at is empty while nothing is frozen.
CREATE TABLE freezes (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    at     BIGINT,
    who    TEXT NOT NULL,
    reason TEXT NOT NULL
);

INSERT INTO freezes (id, who, reason) VALUES (1, '', '');

CREATE TABLE keeps (
    cloud         TEXT NOT NULL,
    cloud_account TEXT NOT NULL,
    region        TEXT NOT NULL,
    kind          TEXT NOT NULL,
    resource_id   TEXT NOT NULL,
    until         BIGINT NOT NULL,
    reason        TEXT NOT NULL,
    who           TEXT NOT NULL,
    at            BIGINT,
    PRIMARY KEY (cloud, cloud_account, region, kind, resource_id)
);

CREATE TABLE audit (
    id       INTEGER PRIMARY KEY,
    at       BIGINT NOT NULL,
    account  TEXT NOT NULL,
    round    BIGINT NOT NULL,
    actor    TEXT NOT NULL,
    what     TEXT NOT NULL,
    resource TEXT NOT NULL,
    item     TEXT NOT NULL,
    verb     TEXT NOT NULL,
    because  TEXT NOT NULL,
    outcome  TEXT NOT NULL,
    evidence TEXT NOT NULL,
    hash     TEXT NOT NULL
);

CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_item ON audit (item);

-- The end of the log: one row, locked by whatever appends.
CREATE TABLE audit_head (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    entry BIGINT NOT NULL,
    hash  TEXT NOT NULL
);

INSERT INTO audit_head (id, entry, hash) VALUES (1, 0, '');

-- +goose StatementBegin
CREATE TRIGGER audit_keeps_updated BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_keeps_deleted BEFORE DELETE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
-- +goose StatementEnd

-- REPLACE removes rows without asking the trigger of deletions.
-- +goose StatementBegin
CREATE TRIGGER audit_keeps_replaced BEFORE INSERT ON audit
WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
-- +goose StatementEnd
