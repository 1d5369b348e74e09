-- +goose Up

-- A digest is that of the row's other columns: equal rows are kept once.

-- A row is locked by whatever writes to the account's ledger.
CREATE TABLE ledger_accounts (
    id            INTEGER PRIMARY KEY,
    cloud         TEXT NOT NULL,
    cloud_account TEXT NOT NULL,
    version       BIGINT NOT NULL,
    entries       BIGINT NOT NULL,
    UNIQUE (cloud, cloud_account)
);

-- What rounds listed whole.
CREATE TABLE ledger_coverages (
    id     INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    parts  TEXT NOT NULL
);

CREATE TABLE ledger_coverage_parts (
    coverage BIGINT NOT NULL REFERENCES ledger_coverages (id),
    region   TEXT NOT NULL,
    kind     TEXT NOT NULL,
    PRIMARY KEY (coverage, region, kind)
);

-- The mark is the account's version at which something was added last, 0 once it is
-- posted.
CREATE TABLE ledger_rounds (
    account  BIGINT NOT NULL REFERENCES ledger_accounts (id),
    at       BIGINT NOT NULL,
    source   TEXT NOT NULL,
    coverage BIGINT NOT NULL REFERENCES ledger_coverages (id),
    mark     BIGINT NOT NULL,
    PRIMARY KEY (account, at)
);

CREATE TABLE ledger_resources (
    id            INTEGER PRIMARY KEY,
    digest        TEXT NOT NULL UNIQUE,
    account       BIGINT NOT NULL REFERENCES ledger_accounts (id),
    cloud         TEXT NOT NULL,
    cloud_account TEXT NOT NULL,
    region        TEXT NOT NULL,
    kind          TEXT NOT NULL,
    resource_id   TEXT NOT NULL,
    ref           TEXT NOT NULL
);

-- What observations say that mostly stays as it is from one to the next.
CREATE TABLE ledger_facts (
    id     INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    facts  TEXT NOT NULL
);

CREATE TABLE ledger_observations (
    resource BIGINT NOT NULL REFERENCES ledger_resources (id),
    at       BIGINT NOT NULL,
    account  BIGINT NOT NULL,
    facts    BIGINT NOT NULL REFERENCES ledger_facts (id),
    duty     TEXT NOT NULL,
    PRIMARY KEY (resource, at)
);

CREATE INDEX ledger_observations_at ON ledger_observations (account, at, resource);

-- Entries of one group differ in their hour, their resource and what no question asks
-- for.
CREATE TABLE ledger_groups (
    id          INTEGER PRIMARY KEY,
    digest      TEXT NOT NULL UNIQUE,
    account     TEXT NOT NULL,
    region      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    type        TEXT NOT NULL,
    team        TEXT NOT NULL,
    project     TEXT NOT NULL,
    username    TEXT NOT NULL,
    environment TEXT NOT NULL,
    cost_center TEXT NOT NULL,
    purpose     TEXT NOT NULL,
    lifetime    TEXT NOT NULL,
    category    TEXT NOT NULL,
    duty        TEXT NOT NULL,
    pricing     TEXT NOT NULL,
    service     TEXT NOT NULL,
    gapped      INTEGER NOT NULL CHECK (gapped IN (0, 1)),
    unpriced    INTEGER NOT NULL CHECK (unpriced IN (0, 1)),
    reconciled  INTEGER NOT NULL CHECK (reconciled IN (0, 1))
);

-- The entries of a group that are of one resource and its other attributes.
CREATE TABLE ledger_series (
    id       INTEGER PRIMARY KEY,
    digest   TEXT NOT NULL UNIQUE,
    grp      BIGINT NOT NULL REFERENCES ledger_groups (id),
    resource BIGINT NOT NULL REFERENCES ledger_resources (id),
    name     TEXT NOT NULL,
    market   TEXT NOT NULL,
    hold     TEXT NOT NULL
);

-- The entries of a series that differ in nothing but their hour.
CREATE TABLE ledger_lines (
    id              INTEGER PRIMARY KEY,
    digest          TEXT NOT NULL UNIQUE,
    series          BIGINT NOT NULL REFERENCES ledger_series (id),
    meter           TEXT NOT NULL,
    charge_category TEXT NOT NULL,
    monthly         BIGINT NOT NULL,
    source          TEXT NOT NULL,
    as_of           BIGINT,
    gap             TEXT NOT NULL,
    why             TEXT NOT NULL
);

-- What budgets ask for.
CREATE TABLE ledger_purses (
    id          INTEGER PRIMARY KEY,
    digest      TEXT NOT NULL UNIQUE,
    account     BIGINT NOT NULL REFERENCES ledger_accounts (id),
    team        TEXT NOT NULL,
    project     TEXT NOT NULL,
    username    TEXT NOT NULL,
    environment TEXT NOT NULL,
    cost_center TEXT NOT NULL,
    purpose     TEXT NOT NULL,
    hold        TEXT NOT NULL
);

CREATE TABLE ledger_entries (
    account     BIGINT NOT NULL REFERENCES ledger_accounts (id),
    number      BIGINT NOT NULL,
    entry       TEXT NOT NULL,
    hour        BIGINT NOT NULL,
    resource    BIGINT NOT NULL,
    line        BIGINT NOT NULL REFERENCES ledger_lines (id),
    seconds     BIGINT NOT NULL,
    amount      BIGINT NOT NULL,
    at_most     BIGINT NOT NULL,
    unbounded   BIGINT NOT NULL,
    round       BIGINT,
    bill_period BIGINT,
    PRIMARY KEY (account, number)
);

CREATE INDEX ledger_entries_resource ON ledger_entries (resource, hour);
CREATE INDEX ledger_entries_hour ON ledger_entries (hour);

-- The sums of entries: of each hour (grain 0), day (1) and month (2) in UTC, those of
-- groups and purses, and of each day and month those of series. The newest is the
-- number of the entry that was added last. What does not fit 64 bits would become a
-- floating-point number.
CREATE TABLE ledger_group_sums (
    grain     INTEGER NOT NULL,
    start     BIGINT NOT NULL,
    about     BIGINT NOT NULL REFERENCES ledger_groups (id),
    seconds   BIGINT NOT NULL,
    amount    BIGINT NOT NULL,
    at_most   BIGINT NOT NULL,
    unbounded BIGINT NOT NULL,
    newest    BIGINT NOT NULL,
    PRIMARY KEY (grain, start, about),
    CONSTRAINT in_range CHECK (TYPEOF(seconds) = 'integer' AND TYPEOF(amount) = 'integer' AND TYPEOF(at_most) = 'integer' AND TYPEOF(unbounded) = 'integer')
) WITHOUT ROWID;

CREATE TABLE ledger_series_sums (
    grain     INTEGER NOT NULL,
    start     BIGINT NOT NULL,
    about     BIGINT NOT NULL REFERENCES ledger_series (id),
    seconds   BIGINT NOT NULL,
    amount    BIGINT NOT NULL,
    at_most   BIGINT NOT NULL,
    unbounded BIGINT NOT NULL,
    newest    BIGINT NOT NULL,
    PRIMARY KEY (grain, start, about),
    CONSTRAINT in_range CHECK (TYPEOF(seconds) = 'integer' AND TYPEOF(amount) = 'integer' AND TYPEOF(at_most) = 'integer' AND TYPEOF(unbounded) = 'integer')
) WITHOUT ROWID;

CREATE TABLE ledger_purse_sums (
    grain     INTEGER NOT NULL,
    start     BIGINT NOT NULL,
    about     BIGINT NOT NULL REFERENCES ledger_purses (id),
    seconds   BIGINT NOT NULL,
    amount    BIGINT NOT NULL,
    at_most   BIGINT NOT NULL,
    unbounded BIGINT NOT NULL,
    newest    BIGINT NOT NULL,
    PRIMARY KEY (grain, start, about),
    CONSTRAINT in_range CHECK (TYPEOF(seconds) = 'integer' AND TYPEOF(amount) = 'integer' AND TYPEOF(at_most) = 'integer' AND TYPEOF(unbounded) = 'integer')
) WITHOUT ROWID;

-- +goose StatementBegin
CREATE TRIGGER ledger_keeps_updated BEFORE UPDATE ON ledger_entries
BEGIN
    SELECT RAISE(ABORT, 'the ledger is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER ledger_keeps_deleted BEFORE DELETE ON ledger_entries
BEGIN
    SELECT RAISE(ABORT, 'the ledger is append-only');
END;
-- +goose StatementEnd

-- REPLACE removes rows without asking the trigger of deletions.
-- +goose StatementBegin
CREATE TRIGGER ledger_keeps_replaced BEFORE INSERT ON ledger_entries
WHEN EXISTS (SELECT 1 FROM ledger_entries WHERE account = NEW.account AND number = NEW.number)
BEGIN
    SELECT RAISE(ABORT, 'the ledger is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER ledger_keeps_updated_lines BEFORE UPDATE ON ledger_lines
BEGIN
    SELECT RAISE(ABORT, 'the ledger is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER ledger_keeps_deleted_lines BEFORE DELETE ON ledger_lines
BEGIN
    SELECT RAISE(ABORT, 'the ledger is append-only');
END;
-- +goose StatementEnd

-- REPLACE removes rows without asking the trigger of deletions.
-- +goose StatementBegin
CREATE TRIGGER ledger_keeps_replaced_lines BEFORE INSERT ON ledger_lines
WHEN EXISTS (SELECT 1 FROM ledger_lines WHERE id = NEW.id OR digest = NEW.digest)
BEGIN
    SELECT RAISE(ABORT, 'the ledger is append-only');
END;
-- +goose StatementEnd
