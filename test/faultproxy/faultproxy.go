// Package faultproxy stands between a program under test and a server, and injects network faults.
// A seed determines them: equal calls under the same seed have the same faults, in any order.
package faultproxy

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// Kind is a kind of fault.
type Kind int

// Kinds of faults. Empty, LoginPage, Repeat and Stale are for HTTP only.
const (
	// Delay delays the correct response by some milliseconds.
	Delay Kind = iota
	// Drop closes the connection; the request is lost.
	Drop
	// HalfOpen closes the connection; the request is carried out.
	HalfOpen
	// Truncate closes the connection in the middle of the response.
	Truncate
	// Empty responds 200 without a body; the request is lost.
	Empty
	// LoginPage responds 200 with an HTML page; the request is lost.
	LoginPage
	// Repeat sends the request twice and returns the second response.
	Repeat
	// Stale returns an earlier response to the same request.
	Stale
	kinds
)

// lag is the maximum delay of Delay, and the time that HalfOpen waits.
const lag = 5 * time.Millisecond

// storm draws faults. The zero value draws none.
type storm struct {
	mu     sync.Mutex
	seed   uint64
	chance float64
	seen   map[uint64]uint64
}

// Storm starts injecting faults into calls with a probability from 0 to 1.
func (s *storm) Storm(seed uint64, chance float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seed, s.chance, s.seen = seed, chance, map[uint64]uint64{}
}

// Calm stops injecting faults.
func (s *storm) Calm() { s.Storm(0, 0) }

// draw returns the fault and the delay for a call described by some texts.
func (s *storm) draw(looks ...string) (kind Kind, late time.Duration, hit bool) {
	h := fnv.New64a()
	for _, l := range looks {
		h.Write([]byte(l)) // a hash accepts everything
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
