-- +goose Up

-- Which process reads and acts on what, until when. The fence rises with each holder: a write
-- that was decided under an earlier one is refused.
CREATE TABLE leases (
    name   TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    holder TEXT NOT NULL,
    fence  BIGINT NOT NULL,
    until  BIGINT NOT NULL
);
