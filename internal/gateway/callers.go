package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// The periods of budgets.
const (
	periodDay   = "day"
	periodMonth = "month"
)

// caller is who sends a request.
type caller struct {
	key   string // the name of the API key; empty where none is needed
	owner string // empty is unallocated
	admin bool
	limit *limit
	// models are those that the caller may use; empty is all.
	models []string
}

// may reports whether the caller may use a model.
func (c caller) may(model string) bool { return len(c.models) == 0 || slices.Contains(c.models, model) }

// limit is the budget of one key, and what the key used of it.
type limit struct {
	mu     sync.Mutex
	usd    money.Amount // 0 is no bound
	tokens int64        // 0 is no bound
	period string

	start      time.Time
	spent      money.Amount
	usedTokens int64
}

// roll begins another period where the last one is over.
func (l *limit) roll(now time.Time) {
	now = now.UTC()
	start := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	if l.period == periodMonth {
		start = time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	}
	// A clock that was set back begins no period: that would clear what was used.
	if start.After(l.start) {
		l.start, l.spent, l.usedTokens = start, 0, 0
	}
}

// end returns when the period ends.
func (l *limit) end() time.Time {
	if l.period == periodMonth {
		return l.start.AddDate(0, 1, 0)
	}
	return l.start.AddDate(0, 0, 1)
}

// charge adds what a request used.
func (l *limit) charge(now time.Time, usd money.Amount, tokens int64) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roll(now)
	if sum, err := l.spent.Add(usd); err == nil {
		l.spent = sum
	}
	l.usedTokens += tokens
}

// warnShare is the share of a budget from which answers carry a warning.
const warnShare = 0.8

// check returns why a request is refused, or a warning; both empty where the budget suffices.
func (l *limit) check(now time.Time) (refusal, warning string, retry time.Duration) {
	if l == nil {
		return "", "", 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roll(now)
	for _, b := range []struct {
		bound       bool
		over        bool
		share       float64
		used, limit string
	}{
		{l.usd > 0, l.spent >= l.usd, money.Ratio(l.spent, l.usd), l.spent.Dollars(), l.usd.Dollars()},
		{
			l.tokens > 0, l.usedTokens >= l.tokens, float64(l.usedTokens) / float64(max(1, l.tokens)),
			money.Thousands(l.usedTokens), money.Thousands(l.tokens) + " tokens",
		},
	} {
		switch text := fmt.Sprintf("%s of %s used in this %s", b.used, b.limit, l.period); {
		case !b.bound:
		case b.over:
			return "the budget of the API key is exceeded: " + text, "", l.end().Sub(now)
		case b.share >= warnShare:
			warning = text
		}
	}
	return "", warning, 0
}

// callers are the API keys of a configuration.
type callers struct {
	header string
	byHash map[[32]byte]caller
}

// newCallers reads the keys. Keys that were there before keep what they used.
func newCallers(c Config, before *callers, kept map[string]KeyUsage) *callers {
	out := &callers{header: c.OwnerHeader, byHash: map[[32]byte]caller{}}
	for _, k := range c.Keys {
		hash, _ := parseHash(k.Hash) // Validate has read it
		one := caller{key: k.Name, owner: k.Owner, admin: k.Admin, models: k.Models}
		if one.owner == "" {
			one.owner = k.Name
		}
		usd, _ := money.ParseAmount(strings.TrimPrefix(k.BudgetUSD, "$")) // the same
		if usd > 0 || k.BudgetTokens > 0 {
			old := kept[k.Hash]
			one.limit = &limit{start: old.PeriodStart, spent: old.Spent, usedTokens: old.Tokens}
			if before != nil && before.byHash[hash].limit != nil {
				one.limit = before.byHash[hash].limit
			}
			one.limit.mu.Lock()
			one.limit.usd, one.limit.tokens, one.limit.period = usd, k.BudgetTokens, k.Period
			if k.Period == "" {
				one.limit.period = periodDay
			}
			one.limit.mu.Unlock()
		}
		out.byHash[hash] = one
	}
	return out
}

// usage returns what the keys with a budget used, by their hash.
func (c *callers) usage() map[string]KeyUsage {
	out := map[string]KeyUsage{}
	for hash, one := range c.byHash {
		if l := one.limit; l != nil {
			l.mu.Lock()
			out["sha256:"+hex.EncodeToString(hash[:])] = KeyUsage{l.start, l.spent, l.usedTokens}
			l.mu.Unlock()
		}
	}
	return out
}

// keepUsage stores what keys used, where that changed.
func (g *Gateway) keepUsage() {
	if g.o.Keep == nil {
		return
	}
	now := g.state.Load().callers.usage()
	if maps.Equal(now, g.kept) {
		return
	}
	if err := g.o.Keep(now); err != nil {
		g.o.Log.Error("what API keys used is not kept", "error", err.Error())
		return
	}
	g.kept = now
}

// identify returns who sends a request; false where a key is needed and missing or not known.
// Keys are found by the hash of what is presented, so that the time of the search shows nothing.
func (c *callers) identify(r *http.Request) (caller, bool) {
	if len(c.byHash) == 0 {
		return caller{owner: r.Header.Get(c.header), admin: true}, true
	}
	key, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		key = r.Header.Get("X-Api-Key")
	}
	one, known := c.byHash[sha256.Sum256([]byte(key))]
	return one, known && key != ""
}
