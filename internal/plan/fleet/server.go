package fleet

import (
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/plan/capacity"
)

// Law names how a replica works on several requests.
type Law string

// The laws. Both are linear: n requests take PerItem·n + Base.
const (
	// Batch serves up to Limit requests together, and the next ones after them.
	Batch Law = "batch"
	// Concurrency serves up to Limit requests side by side, each slower the more there are, as
	// servers with continuous batching do: vLLM, SGLang, TGI, llama.cpp.
	Concurrency Law = "concurrency"
)

// maxRequests bounds the requests that one replica works on.
const maxRequests = 100_000

// Server is one replica of a fleet.
type Server struct {
	Law Law
	// Profile is the time of n requests; measured up to Limit of them, and never extrapolated.
	Profile capacity.Profile
	// Limit is the most requests in one batch, or side by side; 1 to 100,000.
	Limit int
	// Objective is the latency, service included, that a request should keep.
	Objective time.Duration
}

// Check returns an error for a server that cannot serve within its objective.
func (s Server) Check() error {
	switch {
	case s.Law != Batch && s.Law != Concurrency:
		return fmt.Errorf("law %q: expected %s or %s", s.Law, Batch, Concurrency)
	case s.Profile.PerItem < 0 || s.Profile.Base < 0 || s.Profile == (capacity.Profile{}):
		return errors.New("the time of a request must be over 0")
	case s.Limit < 1 || s.Limit > maxRequests:
		return fmt.Errorf("limit %d: expected 1 to %d requests", s.Limit, maxRequests)
	case s.Objective <= 0:
		return errors.New("the latency objective must be over 0")
	case s.latency(1) > s.Objective.Seconds():
		return fmt.Errorf("a lone request takes %s, longer than the latency objective %s",
			seconds(s.latency(1)), s.Objective)
	}
	return nil
}

// latency returns the latency in seconds with n requests at a time and no queue. A request of a
// batch may arrive just after another batch began, and waits for all of it.
func (s Server) latency(n int) float64 {
	if s.Law == Batch && n > 1 {
		return 2 * s.Profile.Batch(n)
	}
	return s.Profile.Batch(n)
}

// Slots returns the most requests that a replica works on within its objective, 1 to Limit.
func (s Server) Slots() int {
	low, high := 1, s.Limit
	for low < high {
		if middle := (low + high + 1) / 2; s.latency(middle) <= s.Objective.Seconds() {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

// Rate returns the requests a second that a replica serves within its objective.
func (s Server) Rate() float64 {
	n := s.Slots()
	return float64(n) / s.Profile.Batch(n)
}

// time returns how long a mean number of requests takes, in seconds; fewer than one take no less
// than one.
func (s Server) time(n float64) float64 {
	return s.Profile.PerItem.Seconds()*max(1, n) + s.Profile.Base.Seconds()
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
}
