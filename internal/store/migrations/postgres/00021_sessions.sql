-- +goose Up

-- Sessions. A name is unique among those that are not over. The columns are what is looked
-- for; the whole record is in body.
CREATE TABLE sessions (
    id           TEXT COLLATE "C" PRIMARY KEY,
    name         TEXT NOT NULL,
    state        TEXT NOT NULL,
    over         BIGINT NOT NULL,
    requested_at BIGINT,
    version      BIGINT NOT NULL,
    body         TEXT NOT NULL
);

CREATE UNIQUE INDEX sessions_open ON sessions (name) WHERE over = 0;
CREATE INDEX sessions_name ON sessions (name, requested_at);

-- What the keeper (node -1) and the hosts of sessions wrote down.
CREATE TABLE session_events (
    session TEXT COLLATE "C" NOT NULL,
    node    BIGINT NOT NULL,
    file    BIGINT NOT NULL,
    line    BIGINT NOT NULL,
    at      BIGINT,
    kind    TEXT NOT NULL,
    text    TEXT NOT NULL,
    PRIMARY KEY (session, node, file, line)
);

-- The name under which the machines of this state are tagged: one row.
CREATE TABLE installation (
    id   BIGINT PRIMARY KEY,
    name TEXT NOT NULL
);
