-- +goose Up

-- Up to when the samples show that the condition of a warned item has held. Items of
-- before have none, and are warned about anew.
ALTER TABLE items ADD COLUMN held_to BIGINT;
