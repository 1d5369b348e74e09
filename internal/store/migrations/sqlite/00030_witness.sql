-- +goose Up

-- How far the state has come, for the witness outside of it: a random identity, how often an
-- operator has accepted an older state, and the number of committed changes of what actions
-- depend on.
ALTER TABLE audit_head ADD COLUMN identity TEXT NOT NULL DEFAULT '';
ALTER TABLE audit_head ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;
ALTER TABLE audit_head ADD COLUMN generation BIGINT NOT NULL DEFAULT 0;
UPDATE audit_head SET identity = LOWER(HEX(RANDOMBLOB(16))), generation = entry;

-- Since when, and why, nothing acts by this state until an operator accepts it, and how far it was
-- then: its generation, and the time of the newest entry of its audit log.
ALTER TABLE freezes ADD COLUMN quarantined_at BIGINT;
ALTER TABLE freezes ADD COLUMN quarantine TEXT NOT NULL DEFAULT '';
ALTER TABLE freezes ADD COLUMN quarantine_generation BIGINT NOT NULL DEFAULT 0;
ALTER TABLE freezes ADD COLUMN quarantine_newest_at BIGINT;
