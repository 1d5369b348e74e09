-- +goose Up

-- The time of the state where its database has no clock of its own: one reading of the
-- host's clocks, from which time goes on as the host's uptime does.
CREATE TABLE clocks (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    wall   BIGINT NOT NULL,
    boot   TEXT NOT NULL,
    uptime BIGINT NOT NULL
);
