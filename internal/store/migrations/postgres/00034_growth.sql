-- +goose Up

-- Every round that is posted adds to the sums of its hour, day and month. In pages that are half
-- empty the new version of a row finds room next to the old one, so that no index grows and the
-- old one is reused by the next round, also before a vacuum.
ALTER TABLE ledger_group_sums SET (fillfactor = 50);
ALTER TABLE ledger_series_sums SET (fillfactor = 50);
ALTER TABLE ledger_purse_sums SET (fillfactor = 50);
