-- +goose Up

-- Whether reserved capacity was used, and the type of the machine, as far as a bill says it.
ALTER TABLE bill_rows ADD COLUMN capacity_status TEXT NOT NULL DEFAULT '';
ALTER TABLE bill_rows ADD COLUMN machine_type TEXT NOT NULL DEFAULT '';
