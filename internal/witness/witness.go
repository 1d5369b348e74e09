// Package witness notices that a state was put back: it keeps, outside of the state, the newest
// generation of it that was seen. A state that was restored from a copy, replaced or emptied
// has forgotten freezes, keeps, approvals and actions, and must not act as if there were none.
package witness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// The schemas of the documents.
const (
	StateSchema   = "curfew.witness/v1"
	AccountSchema = "curfew.witness-account/v1"
)

// Mark is how far a state has come.
type Mark struct {
	// Identity is random, and made with the state.
	Identity string `json:"identity"`
	// Epoch rises when an operator accepts an older state.
	Epoch int64 `json:"epoch"`
	// Generation rises with every committed change of what actions depend on.
	Generation int64 `json:"generation"`
	// Entry is the number of the newest entry of the audit log, 0 without any, and Hash its
	// hash, which depends on all entries before it.
	Entry int64  `json:"entry"`
	Hash  string `json:"hash"`
}

// Seen is a state as it is mirrored outside of itself.
type Seen struct {
	Mark
	// Freeze is the freeze in force; nil if there is none.
	Freeze *action.Freeze `json:"freeze,omitempty"`
	// Keeps are the exemptions in force.
	Keeps []Keep `json:"keeps,omitempty"`
	// Rounds are the accounts that the state has acted on, each with the number of its newest
	// round: idempotency keys are made of those.
	Rounds map[string]int64 `json:"rounds,omitempty"`
}

// Record is a witness's record of a state.
type Record struct {
	Schema string `json:"schema"`
	// State is the path of the state, or its database without user and password.
	State string `json:"state"`
	Seen
	// SeenAt is when it was written.
	SeenAt time.Time `json:"seen_at"`
}

// Keep is an exemption of a resource.
type Keep struct {
	Cloud   string    `json:"cloud"`
	Account string    `json:"account"`
	Region  string    `json:"region"`
	Kind    string    `json:"kind"`
	ID      string    `json:"id"`
	Until   time.Time `json:"until"`
	Reason  string    `json:"reason"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
}

// KeepOf returns an exemption as it is mirrored.
func KeepOf(k action.Keep) Keep {
	return Keep{
		Cloud: k.Ref.Cloud, Account: k.Ref.Account, Region: k.Ref.Region, Kind: string(k.Ref.Kind), ID: k.Ref.ID,
		Until: k.Until.UTC(), Reason: k.Reason, By: k.By, At: k.At.UTC(),
	}
}

// Keep returns the exemption that is mirrored.
func (k Keep) Keep() action.Keep {
	return action.Keep{
		Ref: inventory.Ref{
			Cloud: k.Cloud, Account: k.Account, Region: k.Region, Kind: inventory.Kind(k.Kind), ID: k.ID,
		},
		Until: k.Until, Reason: k.Reason, By: k.By, At: k.At,
	}
}

// Owner is the state that acts on an account.
type Owner struct {
	Schema   string    `json:"schema"`
	Account  string    `json:"account"`
	Identity string    `json:"identity"`
	State    string    `json:"state"`
	SeenAt   time.Time `json:"seen_at"`
}

// Documents keeps small documents by name, outside of the state.
type Documents interface {
	// Read returns a document; nil if there is none of the name.
	Read(ctx context.Context, name string) ([]byte, error)
	// Write replaces a document whole.
	Write(ctx context.Context, name string, data []byte) error
	// Lock keeps other processes from writing until the returned function is called. It waits
	// only for a moment: a process that was stopped must not hold up the others, and a record
	// that a late one sets back is right again with the next change.
	Lock(ctx context.Context) (unlock func())
	// String describes the location of the records.
	String() string
}

// Witness keeps what was seen of states.
type Witness struct {
	Documents Documents
	// Warn, where set, is told why a change could not be mirrored.
	Warn func(error)
}

func stateName(state string) string     { return "state-" + digest(state) + ".json" }
func accountName(account string) string { return "account-" + digest(account) + ".json" }

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// Record returns what is kept of a state; nil if it is unknown.
func (w *Witness) Record(ctx context.Context, state string) (*Record, error) {
	var r Record
	known, err := w.read(ctx, stateName(state), &r)
	if err == nil && known && (r.Schema != StateSchema || r.State != state || r.Identity == "") {
		err = errors.New("it is no record of this state")
	}
	if err != nil {
		return nil, fmt.Errorf("read the witness of the state in %s: %w", w.Documents, err)
	}
	if !known {
		return nil, nil
	}
	return &r, nil
}

// Put writes what was seen of a state.
func (w *Witness) Put(ctx context.Context, r Record) error {
	r.Schema = StateSchema
	return w.write(ctx, stateName(r.State), r)
}

// Owner returns the state that acts on an account; nil if none is known.
func (w *Witness) Owner(ctx context.Context, account string) (*Owner, error) {
	var o Owner
	known, err := w.read(ctx, accountName(account), &o)
	if err == nil && known && (o.Schema != AccountSchema || o.Account != account || o.Identity == "") {
		err = errors.New("it is no record of this account")
	}
	if err != nil {
		return nil, fmt.Errorf("read the witness of %s in %s: %w", account, w.Documents, err)
	}
	if !known {
		return nil, nil
	}
	return &o, nil
}

// PutOwner writes which state acts on an account.
func (w *Witness) PutOwner(ctx context.Context, o Owner) error {
	o.Schema = AccountSchema
	return w.write(ctx, accountName(o.Account), o)
}

func (w *Witness) read(ctx context.Context, name string, to any) (known bool, err error) {
	text, err := w.Documents.Read(ctx, name)
	if err != nil || text == nil {
		return false, err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return false, fmt.Errorf("%s is damaged: %w", name, err)
	}
	return true, nil
}

func (w *Witness) write(ctx context.Context, name string, doc any) error {
	text, err := json.MarshalIndent(doc, "", "  ")
	if err == nil {
		err = w.Documents.Write(ctx, name, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the witness of the state to %s: %w", w.Documents, err)
	}
	return nil
}

// Older says in words that a state at a mark is older than what is kept of it; empty if it is not.
// EntryHash returns the hash that the state has for an entry of its audit log, empty if it has no
// such entry.
func (r *Record) Older(m Mark, entryHash func(entry int64) (string, error)) (string, error) {
	switch {
	case r.Identity != m.Identity:
		return "another state, or an emptied one, is in the place of the one that was here", nil
	case m.Epoch < r.Epoch, m.Epoch == r.Epoch && m.Generation < r.Generation, m.Epoch > r.Epoch &&
		m.Generation <= r.Generation:
		return fmt.Sprintf(
			"it is at generation %d, and generation %d was seen on %s: an older copy was put in its place",
			m.Generation, r.Generation, r.SeenAt.UTC().Format("2006-01-02 at 15:04:05")), nil
	case m.Epoch > r.Epoch || r.Entry == 0:
		return "", nil
	}
	hash, err := m.Hash, error(nil)
	if m.Entry != r.Entry {
		hash, err = entryHash(r.Entry)
	}
	if err != nil || hash == r.Hash {
		return "", err
	}
	return fmt.Sprintf(
		"entry %d of its audit log is another one than on %s: an older copy was put in its place, and used since",
		r.Entry, r.SeenAt.UTC().Format("2006-01-02 at 15:04:05")), nil
}

// Same reports whether a record holds all that was seen.
func (r *Record) Same(s Seen) bool {
	freeze := func(f *action.Freeze) action.Freeze {
		if f == nil {
			return action.Freeze{}
		}
		return action.Freeze{By: f.By, Reason: f.Reason, At: f.At.UTC()}
	}
	if r == nil || r.Mark != s.Mark || freeze(r.Freeze) != freeze(s.Freeze) || !slices.Equal(r.Keeps, s.Keeps) {
		return false
	}
	for account := range s.Rounds { // a newer round of an account alone is not worth a write
		if _, known := r.Rounds[account]; !known {
			return false
		}
	}
	return true
}
