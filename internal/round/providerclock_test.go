package round

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
)

// datedLister is an account whose provider has a clock.
type datedLister struct {
	*fleet
	at time.Time
}

func (d datedLister) List(ctx context.Context, q Query) (*Observation, error) {
	o, err := d.fleet.List(ctx, q)
	o.ProviderTime = d.at
	return o, err
}

// posts counts what is posted.
type posts int

func (p *posts) Post(context.Context, ledger.Seen) error {
	*p++
	return nil
}

// TestRejectsChargesAheadOfProviderClock checks that the state may have no other clock than the one
// that is wrong, from its first reading on; the provider has one of its own.
func TestRejectsChargesAheadOfProviderClock(t *testing.T) {
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		behind time.Duration
		posted posts
	}{
		{"the provider's is 30 days behind", 30 * days, 0},
		{"just over the bound", ledger.MaxAhead + time.Second, 0},
		{"at the bound", ledger.MaxAhead, 1},
		{"the provider's is ahead", -5 * time.Hour, 1},
	} {
		f := newFleet(2)
		var books posts
		s := f.setting(&policy.Set{}, book)
		s.Lister, s.Books = datedLister{f, f.now().Add(-tc.behind)}, &books
		got, err := New(s).Round(t.Context())
		if err != nil || books != tc.posted {
			t.Errorf("%s: %d posted, want %d; %v", tc.name, books, tc.posted, err)
			continue
		}
		if refused := errors.Is(got.Unposted["aws/1"], ledger.ErrAhead); refused == (tc.posted == 1) {
			t.Errorf("%s: %v", tc.name, got.Unposted)
		}
	}
	f := newFleet(2)
	var books posts
	s := f.setting(&policy.Set{}, book)
	s.Books = &books
	if _, err := New(s).Round(t.Context()); err != nil || books != 1 {
		t.Errorf("a provider without a clock: %d posted, %v", books, err)
	}
}
