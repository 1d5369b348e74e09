-- +goose Up

-- How far the ledger of an account is folded, from started on. No round before rounds_from is recorded any more;
-- before hours_done each hour of a resource has one charge, before days_from one for a day.
-- Folding is not 0 only within a transaction that folds: charges before it may be replaced.
CREATE TABLE ledger_folds (
    account     BIGINT PRIMARY KEY REFERENCES ledger_accounts (id),
    started     BIGINT NOT NULL,
    rounds_from BIGINT NOT NULL,
    hours_done  BIGINT NOT NULL,
    days_from   BIGINT NOT NULL,
    days_done   BIGINT NOT NULL,
    folding     BIGINT NOT NULL
);

-- +goose StatementBegin
CREATE FUNCTION ledger_keeps_charges() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (SELECT 1 FROM ledger_folds f WHERE f.account = OLD.account AND OLD.hour < f.folding)
    THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the ledger is append-only';
END
$$;
-- +goose StatementEnd

DROP TRIGGER ledger_keeps_rows ON ledger_entries;

CREATE TRIGGER ledger_keeps_rows BEFORE UPDATE OR DELETE ON ledger_entries
    FOR EACH ROW EXECUTE FUNCTION ledger_keeps_charges();
