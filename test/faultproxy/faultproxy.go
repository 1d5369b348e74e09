// Package faultproxy stands between a program under test and what it talks to, and lets
// go wrong what goes wrong in networks. A seed decides what: the same calls under the same
// seed meet the same faults, in whatever order they come.
package faultproxy

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// Kind is a way to fail.
type Kind int

// The ways to fail. Empty, LoginPage, Repeat and Stale are for HTTP only.
const (
	// Delay answers some milliseconds late, and rightly.
	Delay Kind = iota
	// Drop closes the connection; what was asked never arrives.
	Drop
	// HalfOpen closes the connection; what was asked arrives and is carried out.
	HalfOpen
	// Truncate closes the connection in the middle of the answer.
	Truncate
	// Empty answers 200 without a body; what was asked never arrives.
	Empty
	// LoginPage answers 200 with a page in HTML; what was asked never arrives.
	LoginPage
	// Repeat lets the request arrive twice and gives the second answer.
	Repeat
	// Stale gives the answer that the same question got before.
	Stale
	kinds
)

// lag is the longest that Delay takes, and for how long HalfOpen keeps silent.
const lag = 5 * time.Millisecond

// storm draws faults. The zero value draws none.
type storm struct {
	mu     sync.Mutex
	seed   uint64
	chance float64
	seen   map[uint64]uint64
}

// Storm begins to let calls fail, each with a chance from 0 to 1.
func (s *storm) Storm(seed uint64, chance float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seed, s.chance, s.seen = seed, chance, map[uint64]uint64{}
}

// Calm lets everything pass.
func (s *storm) Calm() { s.Storm(0, 0) }

// draw returns what becomes of something that looks like this, and how late it is.
func (s *storm) draw(looks ...string) (kind Kind, late time.Duration, hit bool) {
	h := fnv.New64a()
	for _, l := range looks {
		h.Write([]byte(l)) // a hash takes everything
		h.Write([]byte{0})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.chance <= 0 {
		return 0, 0, false
	}
	sum := h.Sum64()
	s.seen[sum]++
	r := rand.New(rand.NewPCG(s.seed^sum, s.seen[sum]))
	if r.Float64() >= s.chance {
		return 0, 0, false
	}
	return Kind(r.IntN(int(kinds))), time.Duration(r.Int64N(int64(lag))), true
}
