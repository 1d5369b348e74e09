-- +goose Up

-- Billing periods, each imported as a whole.
CREATE TABLE bill_periods (
    id               INTEGER PRIMARY KEY,
    account          TEXT NOT NULL,
    start            BIGINT NOT NULL,
    finish           BIGINT,
    source           TEXT NOT NULL,
    digest           TEXT NOT NULL CHECK (digest <> ''),
    line_count       BIGINT NOT NULL,
    row_count        BIGINT NOT NULL,
    billed           BIGINT NOT NULL,
    effective        BIGINT NOT NULL,
    list             BIGINT NOT NULL,
    contracted       BIGINT NOT NULL,
    exact_billed     TEXT NOT NULL,
    exact_effective  TEXT NOT NULL,
    exact_list       TEXT NOT NULL,
    exact_contracted TEXT NOT NULL,
    no_effective     BIGINT NOT NULL,
    no_list          BIGINT NOT NULL,
    no_contracted    BIGINT NOT NULL,
    imported_at      BIGINT,
    UNIQUE (account, start)
);

-- The sums of a period by resource and day, numbered as they were given.
CREATE TABLE bill_rows (
    period            BIGINT NOT NULL REFERENCES bill_periods (id),
    number            BIGINT NOT NULL,
    day               BIGINT NOT NULL,
    provider          TEXT NOT NULL,
    sub_account       TEXT NOT NULL,
    resource          TEXT NOT NULL,
    service           TEXT NOT NULL,
    region            TEXT NOT NULL,
    category          TEXT NOT NULL,
    transfer          TEXT NOT NULL,
    to_region         TEXT NOT NULL,
    charge_category   TEXT NOT NULL,
    pricing_category  TEXT NOT NULL,
    commitment        TEXT NOT NULL,
    commitment_status TEXT NOT NULL,
    team              TEXT NOT NULL,
    project           TEXT NOT NULL,
    username          TEXT NOT NULL,
    environment       TEXT NOT NULL,
    cost_center       TEXT NOT NULL,
    purpose           TEXT NOT NULL,
    unknown_costs     BIGINT NOT NULL,
    billed            BIGINT NOT NULL,
    effective         BIGINT NOT NULL,
    list              BIGINT NOT NULL,
    contracted        BIGINT NOT NULL,
    bytes             BIGINT NOT NULL,
    line_count        BIGINT NOT NULL,
    PRIMARY KEY (period, number)
);

CREATE INDEX bill_rows_day ON bill_rows (day);
CREATE INDEX bill_rows_resource ON bill_rows (resource, day);
