-- +goose Up

-- Jobs. A name is unique among those that are not over. The columns are what is looked for; the
-- whole record is in body. Events of jobs are in session_events, under the id of the job.
CREATE TABLE jobs (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    state        TEXT NOT NULL,
    over         BIGINT NOT NULL,
    requested_at BIGINT,
    version      BIGINT NOT NULL,
    body         TEXT NOT NULL
);

CREATE UNIQUE INDEX jobs_open ON jobs (name) WHERE over = 0;
CREATE INDEX jobs_name ON jobs (name, requested_at);
