package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
)

// Token is a token of the service. Its secret is not stored.
type Token struct {
	// ID is the public part of the token, Hash the hexadecimal SHA-256 of the whole.
	ID, Hash string
	// Name is the person or program that owns it; Roles are its maximum roles.
	Name                 string
	Roles                []string
	CreatedBy            string
	CreatedAt, ExpiresAt time.Time
	// UsedAt is the time of last use, to the minute; zero if never used. RevokedAt is zero unless
	// it was revoked.
	UsedAt, RevokedAt time.Time
}

// Valid reports whether the token is valid at a time.
func (t Token) Valid(now time.Time) bool { return t.RevokedAt.IsZero() && now.Before(t.ExpiresAt) }

// maxShortTerm is the maximum lifetime of short-term tokens.
const maxShortTerm = 7 * 24 * time.Hour

// ShortTerm reports whether the token is valid for at most a week, like those of people's sign-ins,
// so that it needs no renewal.
func (t Token) ShortTerm() bool { return t.ExpiresAt.Sub(t.CreatedAt) <= maxShortTerm }

// Errors of tokens, responses and proofs.
var (
	ErrNoToken   = errors.New("no such token")
	ErrUsedProof = errors.New("the proof was used before")
)

type tokenRow struct {
	ID        string             `db:"id"`
	Hash      string             `db:"hash"`
	Name      string             `db:"name"`
	Roles     document[[]string] `db:"roles"`
	CreatedBy string             `db:"created_by"`
	CreatedAt instant            `db:"created_at"`
	ExpiresAt instant            `db:"expires_at"`
	UsedAt    instant            `db:"used_at"`
	RevokedAt instant            `db:"revoked_at"`
}

var tokenTable = describe("tokens", tokenRow{})

func (r tokenRow) token() Token {
	return Token{ID: r.ID, Hash: r.Hash, Name: r.Name, Roles: r.Roles.of, CreatedBy: r.CreatedBy,
		CreatedAt: r.CreatedAt.Time, ExpiresAt: r.ExpiresAt.Time, UsedAt: r.UsedAt.Time, RevokedAt: r.RevokedAt.Time}
}

// Callers stores the tokens of the service's callers, responses to their calls, and used proofs.
type Callers struct{ db *database }

// Callers returns the store of callers.
func (s *Store) Callers() Callers { return Callers{s.db} }

// Create stores a new token, and records it.
func (c Callers) Create(ctx context.Context, v Token, e action.Entry) error {
	row := tokenRow{
		v.ID, v.Hash, prose(v.Name), document[[]string]{v.Roles}, prose(v.CreatedBy), at(v.CreatedAt), at(v.ExpiresAt),
		instant{}, instant{},
	}
	err := exact(v.ID, v.Hash)
	if err == nil && (v.ID == "" || len(v.Hash) != 64 || v.Name == "" || v.CreatedAt.IsZero() ||
		!v.CreatedAt.Before(v.ExpiresAt)) {
		err = errors.New("it needs an id, a hash, a name, and an expiry after its creation")
	}
	if err == nil {
		err = c.db.transact(ctx, func(t *tx) error {
			if err := t.insert(ctx, tokenTable(), row); err != nil {
				return err
			}
			return t.record(e)
		})
	}
	return attempted(err, "keep token %s", v.ID)
}

// Tokens returns all tokens, newest first.
func (c Callers) Tokens(ctx context.Context) ([]Token, error) {
	var rows []tokenRow
	if err := c.db.list(ctx, &rows, tokenTable().query+" ORDER BY created_at DESC, id"); err != nil {
		return nil, fmt.Errorf("read the tokens: %w", err)
	}
	return convert(rows, tokenRow.token), nil
}

// lastUseResolution is the resolution of the last use of a token, so that not every call writes.
const lastUseResolution = time.Minute

// Token returns the token with a hash, including expired and revoked ones, and stores the time of
// use; ErrNoToken if there is none.
func (c Callers) Token(ctx context.Context, hash string, now time.Time) (Token, error) {
	var row tokenRow
	err := c.db.get(ctx, &row, tokenTable().query+" WHERE hash = ?", hash)
	if errors.Is(err, sql.ErrNoRows) {
		return Token{}, ErrNoToken
	}
	v := row.token()
	if err == nil && v.Valid(now) && now.Sub(v.UsedAt) >= lastUseResolution {
		v.UsedAt = utc(now)
		// The caller waits, so this must not wait for other writers.
		err = c.db.transact(inHurry(ctx), func(t *tx) error {
			return t.exec(ctx, "UPDATE tokens SET used_at = ? WHERE id = ?", at(now), v.ID)
		})
	}
	if err != nil {
		return Token{}, fmt.Errorf("read a token: %w", err)
	}
	return v, nil
}

// Valid returns the hashes of the tokens valid at a time.
func (c Callers) Valid(ctx context.Context, now time.Time) ([]string, error) {
	var rows []tokenRow
	if err := c.db.list(ctx, &rows, tokenTable().query+" WHERE revoked_at IS NULL AND expires_at > ?",
		at(now)); err != nil {
		return nil, fmt.Errorf("read the tokens that count: %w", err)
	}
	return convert(rows, func(r tokenRow) string { return r.Hash }), nil
}

// Revoke revokes the token with an ID or a unique prefix of one, and records it; ErrNoToken if
// there is none. A revoked token stays revoked.
func (c Callers) Revoke(ctx context.Context, id string, now time.Time, entry func(Token) action.Entry) (Token, error) {
	row, err := prefixed(ctx, c.db, tokenTable(), id, func(r tokenRow) string { return r.ID }, ErrNoToken)
	if err != nil {
		return Token{}, fmt.Errorf("revoke token %q: %w", id, err)
	}
	v := row.token()
	if !v.RevokedAt.IsZero() {
		return v, nil
	}
	v.RevokedAt = utc(now)
	err = c.db.transact(ctx, func(t *tx) error {
		if err := t.exec(ctx, "UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", at(now),
			v.ID); err != nil {
			return err
		}
		return t.record(entry(v))
	})
	if err != nil {
		return Token{}, fmt.Errorf("revoke token %s: %w", v.ID, err)
	}
	return v, nil
}

// Answer is the response to a call with an idempotency key.
type Answer struct {
	// Request is the hash of the call and its body.
	Request string
	At      time.Time
	// Status is the HTTP status; 0 while the call is in progress.
	Status int
	Body   string
}

type answerRow struct {
	Request string  `db:"request"`
	At      instant `db:"at"`
	Status  int     `db:"status"`
	Body    string  `db:"body"`
}

// Begin claims a caller's idempotency key for a request. If the key has a response already it is
// returned with ok; of concurrent calls one proceeds. Responses before since are expired and
// deleted.
func (c Callers) Begin(ctx context.Context, caller, key, request string, now, since time.Time) (a Answer, ok bool,
	err error) {
	if err = exact(caller, key, request); err == nil {
		err = c.db.transact(ctx, func(t *tx) error {
			if err := t.exec(ctx, "DELETE FROM answers WHERE at < ?", at(since)); err != nil {
				return err
			}
			added, err := t.run(ctx,
				"INSERT INTO answers (caller, key, request, at, status, body) VALUES (?, ?, ?, ?, 0, "+
					"'') ON CONFLICT (caller, key) DO NOTHING", caller, key, request, at(now))
			if ok = err == nil && added == 0; !ok {
				return err
			}
			var row answerRow
			err = t.get(ctx, &row, "SELECT request, at, status, body FROM answers WHERE caller = ? AND key = ?",
				caller, key)
			a = Answer{row.Request, row.At.Time, row.Status, row.Body}
			return err
		})
	}
	if err != nil {
		return Answer{}, false, fmt.Errorf("take an idempotency key: %w", err)
	}
	return a, ok, nil
}

// Finish stores the response for a key claimed by [Callers.Begin]; a status of 0 releases the key.
func (c Callers) Finish(ctx context.Context, caller, key string, status int, body string) error {
	err := c.db.transact(ctx, func(t *tx) error {
		if status == 0 {
			return t.exec(ctx, "DELETE FROM answers WHERE caller = ? AND key = ? AND status = 0", caller, key)
		}
		return t.exec(ctx, "UPDATE answers SET status = ?, body = ? WHERE caller = ? AND key = ?", status, prose(body),
			caller, key)
	})
	return attempted(err, "keep the answer to an idempotency key")
}

// UseProof uses a proof of identity once, by its hash; ErrUsedProof afterwards. Proofs before since
// are deleted, because they are refused for their age.
func (c Callers) UseProof(ctx context.Context, hash string, now, since time.Time) error {
	err := c.db.transact(ctx, func(t *tx) error {
		if err := t.exec(ctx, "DELETE FROM proofs WHERE at < ?", at(since)); err != nil {
			return err
		}
		added, err := t.run(ctx, "INSERT INTO proofs (hash, at) VALUES (?, ?) ON CONFLICT (hash) DO NOTHING", hash,
			at(now))
		if err == nil && added == 0 {
			err = ErrUsedProof
		}
		return err
	})
	return attempted(err, "take a proof of identity")
}

// Items returns up to limit actions of all accounts, open and done, newest first, starting after
// the one with the ID before if given.
func (s *Store) Items(ctx context.Context, before string, limit int) ([]action.Item, error) {
	query, args := items().query, []any{}
	if before != "" {
		query += " WHERE (COALESCE(first_at, 0), id) < (SELECT COALESCE(first_at, 0), id FROM items WHERE id = ?)"
		args = append(args, before)
	}
	var rows []itemRow
	if err := s.db.list(ctx, &rows, query+" ORDER BY COALESCE(first_at, 0) DESC, id DESC LIMIT ?",
		append(args, limit)...); err != nil {
		return nil, fmt.Errorf("list the actions: %w", err)
	}
	return convert(rows, itemRow.item), nil
}
