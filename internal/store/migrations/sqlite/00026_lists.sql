-- +goose Up

-- Whose a resource is, without the case of letters, and the mapping of tags that says so;
-- empty is not known.
ALTER TABLE snapshot_resources ADD COLUMN team TEXT NOT NULL DEFAULT '';
ALTER TABLE snapshot_resources ADD COLUMN team_by TEXT NOT NULL DEFAULT '';

-- Whose resource a finding is about; NULL is not known.
ALTER TABLE snapshot_findings ADD COLUMN team TEXT;

-- What is there, in the order in which it is listed, with what lists are filtered by.
CREATE INDEX snapshot_resources_there ON snapshot_resources (account, region, kind, resource_id, team_by, team) WHERE gone_at IS NULL;
CREATE INDEX snapshot_resources_id ON snapshot_resources (resource_id) WHERE gone_at IS NULL;
CREATE INDEX snapshot_resources_name ON snapshot_resources (name) WHERE gone_at IS NULL;
CREATE INDEX snapshot_findings_hold ON snapshot_findings (id, account, region, kind, team) WHERE ended_at IS NULL;
