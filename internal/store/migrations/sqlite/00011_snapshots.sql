-- +goose Up

-- Accounts that were observed, and how they were reached.
CREATE TABLE snapshot_accounts (
    id            INTEGER PRIMARY KEY,
    cloud         TEXT NOT NULL,
    cloud_account TEXT NOT NULL,
    at            BIGINT NOT NULL,
    profile       TEXT NOT NULL,
    role          TEXT NOT NULL,
    regions       TEXT NOT NULL,
    UNIQUE (cloud, cloud_account)
);

-- When the resources of a kind in a region were last listed whole.
CREATE TABLE snapshot_parts (
    account BIGINT NOT NULL REFERENCES snapshot_accounts (id),
    region  TEXT NOT NULL,
    kind    TEXT NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (account, region, kind)
);

-- Resources as they were seen last: at seen_at, or when their part was listed whole last.
CREATE TABLE snapshot_resources (
    account     BIGINT NOT NULL REFERENCES snapshot_accounts (id),
    region      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    name        TEXT NOT NULL,
    state       TEXT NOT NULL,
    duty        TEXT NOT NULL,
    duty_since  BIGINT,
    body        TEXT NOT NULL,
    digest      TEXT NOT NULL,
    first_at    BIGINT NOT NULL,
    seen_at     BIGINT NOT NULL,
    gone_at     BIGINT,
    PRIMARY KEY (account, region, kind, resource_id)
);

-- What began to hold of a resource: its state, and what it did.
CREATE TABLE snapshot_changes (
    account     BIGINT NOT NULL REFERENCES snapshot_accounts (id),
    region      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    at          BIGINT NOT NULL,
    what        TEXT NOT NULL,
    since       BIGINT,
    value       TEXT NOT NULL,
    PRIMARY KEY (account, region, kind, resource_id, at, what)
);

CREATE TABLE snapshot_findings (
    id          TEXT NOT NULL,
    account     BIGINT NOT NULL REFERENCES snapshot_accounts (id),
    region      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    rule        TEXT NOT NULL,
    body        TEXT NOT NULL,
    digest      TEXT NOT NULL,
    first_at    BIGINT NOT NULL,
    last_at     BIGINT NOT NULL,
    ended_at    BIGINT,
    PRIMARY KEY (account, id)
);

-- The newest audit of every set of accounts, whole.
CREATE TABLE snapshot_audits (
    cloud    TEXT NOT NULL,
    accounts TEXT NOT NULL,
    at       BIGINT NOT NULL,
    body     TEXT NOT NULL,
    PRIMARY KEY (cloud, accounts)
);
