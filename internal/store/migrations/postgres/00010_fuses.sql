-- +goose Up

-- The newest fuse of each policy in each account: too much of what it selects was due at
-- once. Nothing of the policy is carried out until a person has confirmed it.
CREATE TABLE fuses (
    account      TEXT COLLATE "C" NOT NULL,
    source       TEXT COLLATE "C" NOT NULL,
    at           BIGINT NOT NULL,
    due          BIGINT NOT NULL,
    selected     BIGINT NOT NULL,
    items        TEXT NOT NULL,
    confirmed_at BIGINT,
    who          TEXT NOT NULL,
    reason       TEXT NOT NULL,
    until        BIGINT,
    PRIMARY KEY (account, source)
);
