package api

import (
	"maps"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxCallers bounds the callers with remembered rates.
	maxCallers = 10_000
	// forgetInterval is the minimum time between two cleanups.
	forgetInterval = time.Second
)

// limits holds the rate limits of callers.
type limits struct {
	rate  rate.Limit
	burst int

	mu sync.Mutex
	of map[string]*rate.Limiter
	// rest is shared by new callers once maxCallers are remembered.
	rest    *rate.Limiter
	forgets *rate.Limiter
}

// newLimits limits each caller to a rate per second and a burst.
func newLimits(perSecond float64, burst int) *limits {
	l := &limits{rate: rate.Limit(perSecond), burst: max(burst, 1), of: map[string]*rate.Limiter{}}
	l.forgets = rate.NewLimiter(rate.Every(forgetInterval), 1)
	l.rest = rate.NewLimiter(l.rate, l.burst)
	return l
}

// limiter returns the limiter of a caller.
func (l *limits) limiter(key string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one, ok := l.of[key]; ok {
		return one
	}
	if len(l.of) >= maxCallers && l.forgets.Allow() {
		maps.DeleteFunc(l.of, func(_ string, r *rate.Limiter) bool { return r.Tokens() >= float64(l.burst) })
	}
	if len(l.of) >= maxCallers {
		return l.rest
	}
	one := rate.NewLimiter(l.rate, l.burst)
	l.of[key] = one
	return one
}

// allow counts a call of a caller; its problem says when to retry.
func (l *limits) allow(w http.ResponseWriter, key string) *problem {
	one := l.limiter(key)
	// A canceled reservation is not fully returned while others are made: a flood would use up the
	// turns of later callers.
	if one.Allow() {
		return nil
	}
	return tooMany(w, time.Duration(max(0, 1-one.Tokens())/float64(l.rate)*float64(time.Second)))
}

func tooMany(w http.ResponseWriter, wait time.Duration) *problem {
	w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
	return problemOf(http.StatusTooManyRequests, "too_many", "too many calls", "call again after Retry-After seconds")
}

// networkBits is the prefix of an IPv6 address that counts as one caller, the minimum of a
// subscriber.
const networkBits = 64

// network returns the origin of a request: an address, or for IPv6 its network.
func network(r *http.Request) string {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() || ip.IsLoopback() {
		return ip.String()
	}
	prefix, err := ip.Prefix(networkBits)
	if err != nil {
		return ip.String()
	}
	return prefix.String()
}
