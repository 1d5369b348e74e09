-- +goose Up

-- SQLite writes a row in its place; only pages of PostgreSQL need room for its new version.
SELECT 1;
