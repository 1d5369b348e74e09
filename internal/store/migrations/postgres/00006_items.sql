-- +goose Up

-- Rounds about a few resources look for what is open about these, for what is under
-- way, and for what no round has vouched for lately.
CREATE INDEX items_resource ON items (account, resource_id) WHERE is_open = 1;
CREATE INDEX items_under_way ON items (account) WHERE phase IN ('acting', 'confirming');
CREATE INDEX items_unvouched ON items (account, updated_at) WHERE phase = 'warned';
