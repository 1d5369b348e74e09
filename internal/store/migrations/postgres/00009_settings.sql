-- +goose Up

-- The key of the run that a request is about, and how those who asked and decided were
-- identified. Requests of before were decided by names that nobody proved.
ALTER TABLE requests ADD COLUMN run TEXT NOT NULL DEFAULT '';
ALTER TABLE requests ADD COLUMN asked_proof TEXT NOT NULL DEFAULT '{}';
ALTER TABLE requests ADD COLUMN proof TEXT NOT NULL DEFAULT '{}';

-- Which configuration a decision of the gate was made by.
ALTER TABLE decisions ADD COLUMN settings TEXT NOT NULL DEFAULT '';

-- What binds every process of this state: all versions that an admin has set, by kind.
CREATE TABLE settings (
    kind    TEXT NOT NULL,
    version BIGINT NOT NULL,
    at      BIGINT NOT NULL,
    who     TEXT NOT NULL,
    reason  TEXT NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (kind, version)
);
