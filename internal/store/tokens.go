package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
)

// Token is a token of the service. The token itself is nowhere kept.
type Token struct {
	// ID is the part of the token that is shown, Hash the SHA-256 of the whole in
	// hexadecimal digits.
	ID, Hash string
	// Name is the person, or the program, that it speaks for; Roles are the most that it may do.
	Name                 string
	Roles                []string
	CreatedBy            string
	CreatedAt, ExpiresAt time.Time
	// UsedAt is when it was last used, to the minute; zero is never. RevokedAt is when it was
	// revoked; zero is not.
	UsedAt, RevokedAt time.Time
}

// Valid reports whether the token counts at a time.
func (t Token) Valid(now time.Time) bool { return t.RevokedAt.IsZero() && now.Before(t.ExpiresAt) }

// maxShortTerm is how long short-term tokens count at most.
const maxShortTerm = 7 * 24 * time.Hour

// ShortTerm reports whether the token was made for a week at most, as the sign-ins of people are, so
// that no one has to renew it.
func (t Token) ShortTerm() bool { return t.ExpiresAt.Sub(t.CreatedAt) <= maxShortTerm }

// Errors of tokens, answers and proofs.
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

// Callers holds the callers of the service: their tokens, their answers, and the proofs that they
// used.
type Callers struct{ db *database }

// Callers returns the callers of the service.
func (s *Store) Callers() Callers { return Callers{s.db} }

// Create keeps a new token, and records it.
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

// Tokens returns all tokens, the newest first.
func (c Callers) Tokens(ctx context.Context) ([]Token, error) {
	var rows []tokenRow
	if err := c.db.list(ctx, &rows, tokenTable().query+" ORDER BY created_at DESC, id"); err != nil {
		return nil, fmt.Errorf("read the tokens: %w", err)
	}
	return convert(rows, tokenRow.token), nil
}

// usedWithin is how exactly the last use of a token is kept, so that not each call writes.
const usedWithin = time.Minute

// Token returns the token of a hash and keeps when it was used; ErrNoToken where there is
// none. It returns those that expired or were revoked too.
func (c Callers) Token(ctx context.Context, hash string, now time.Time) (Token, error) {
	var row tokenRow
	err := c.db.get(ctx, &row, tokenTable().query+" WHERE hash = ?", hash)
	if errors.Is(err, sql.ErrNoRows) {
		return Token{}, ErrNoToken
	}
	v := row.token()
	if err == nil && v.Valid(now) && now.Sub(v.UsedAt) >= usedWithin {
		v.UsedAt = utc(now)
		// The caller waits for this, and for nothing that others write first.
		err = c.db.transact(inHurry(ctx), func(t *tx) error {
			return t.exec(ctx, "UPDATE tokens SET used_at = ? WHERE id = ?", at(now), v.ID)
		})
	}
	if err != nil {
		return Token{}, fmt.Errorf("read a token: %w", err)
	}
	return v, nil
}

// Valid returns the hashes of the tokens that count at a time.
func (c Callers) Valid(ctx context.Context, now time.Time) ([]string, error) {
	var rows []tokenRow
	if err := c.db.list(ctx, &rows, tokenTable().query+" WHERE revoked_at IS NULL AND expires_at > ?",
		at(now)); err != nil {
		return nil, fmt.Errorf("read the tokens that count: %w", err)
	}
	return convert(rows, func(r tokenRow) string { return r.Hash }), nil
}

// Revoke ends the token of an id, or the only one whose id begins so, and records it;
// ErrNoToken where there is none. One that was revoked stays so.
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
	// Status is that of HTTP; 0 while the call is carried out.
	Status int
	Body   string
}

type answerRow struct {
	Request string  `db:"request"`
	At      instant `db:"at"`
	Status  int     `db:"status"`
	Body    string  `db:"body"`
}

// Begin takes a key of a caller for a request. It returns the answer that the key has
// already, with ok; of several at once one is told to go on. Answers before since do not
// count and are deleted.
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

// Finish keeps the answer of a key that [Callers.Begin] took; a status of 0 frees the key.
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

// UseProof takes a proof of identity by its hash, once; ErrUsedProof after that. Proofs
// before since are forgotten, because their age alone refuses them.
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

// Items returns the actions of every account, open and done, the newest first: those that
// began before the one with the id before, where that is given, at most limit.
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
