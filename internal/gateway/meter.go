package gateway

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
	"github.com/curfew-dev/curfew/internal/money"
)

// usage is what one owner used of one model.
type usage struct {
	requests, predictions     int64
	inputTokens, outputTokens int64
	// unknownTokens are requests to an OpenAI-compatible path whose tokens are not known.
	unknownTokens int64
	// used is the time of servers that worked for the owner's requests.
	used time.Duration
	tokenTime
}

// tokenTime divides used time between the tokens that are read and those that are written: up to the
// first token of an answer, and from then on. Requests that do not show their first token are in
// neither.
type tokenTime struct{ input, output time.Duration }

func (t *tokenTime) add(o tokenTime) { t.input, t.output = t.input+o.input, t.output+o.output }

// known reports whether an answer has shown its first token.
func (t tokenTime) known() bool { return t.input+t.output > 0 }

// account names who uses what.
type account struct{ pool, model, owner string }

// work is a batch or a request that a server works on.
type work struct {
	parts []part
	rows  int64
	used  time.Duration
	// first is the used time up to the first token of the answer, where firstSeen.
	first     time.Duration
	firstSeen bool
}

// part is one owner's share of a batch.
type part struct {
	account account
	rows    int64
	limit   *limit
}

// machine is the running meter of one model server.
type machine struct {
	pool      string
	hourly    money.Amount // 0 is not known
	noPrice   string       // why it is not known
	since     time.Time
	allocated time.Duration
	busy      time.Duration
	active    map[*work]struct{}
}

// meter measures the time of model servers and what it was used for. Time is counted in whole
// nanoseconds and divided without a rest, so that parts add up.
type meter struct {
	mu       sync.Mutex
	machines map[string]*machine
	removed  []machine // the totals of servers that are gone, for each pool and price
	usage    map[account]*usage
	windows  map[string]*windows // by pool
	running  map[modelKey]int    // requests that servers work on
	hourly   hours
	// started is when minutes begin: those of the monotonic clock, which no wall clock moves.
	started time.Time
}

// maxAccounts bounds the owners and models that are told apart; further ones are counted as
// otherAccount.
const (
	maxAccounts  = 10_000
	otherAccount = "(other)"
)

func newMeter(before *stats.Units, now time.Time) *meter {
	return &meter{
		machines: map[string]*machine{}, usage: map[account]*usage{}, windows: map[string]*windows{},
		running: map[modelKey]int{}, hourly: newHours(before, now), started: now,
	}
}

// add starts the meter of a server.
func (m *meter) add(url, pool string, hourly money.Amount, noPrice string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.machines[url]
	if x == nil {
		m.machines[url] = &machine{
			pool: pool, hourly: hourly, noPrice: noPrice, since: now, active: map[*work]struct{}{},
		}
		return
	}
	if x.hourly != hourly || x.pool != pool {
		m.advance(x, now)
		m.retire(x)
		x.allocated, x.busy = 0, 0
	}
	x.pool, x.hourly, x.noPrice = pool, hourly, noPrice
}

// remove ends the meter of a server.
func (m *meter) remove(url string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x := m.machines[url]; x != nil {
		m.advance(x, now)
		m.retire(x)
		delete(m.machines, url)
	}
}

// retire adds the totals of a server to those of servers that are gone.
func (m *meter) retire(x *machine) {
	i := slices.IndexFunc(m.removed, func(r machine) bool { return r.pool == x.pool && r.hourly == x.hourly })
	if i < 0 {
		m.removed = append(m.removed, machine{pool: x.pool, hourly: x.hourly, noPrice: x.noPrice})
		i = len(m.removed) - 1
	}
	m.removed[i].allocated += x.allocated
	m.removed[i].busy += x.busy
}

// advance counts the time of a server since the last change. The caller holds the lock.
func (m *meter) advance(x *machine, now time.Time) {
	d := now.Sub(x.since)
	if d <= 0 {
		return
	}
	x.since = now
	x.allocated += d
	w := m.windows[x.pool]
	if w == nil {
		w = &windows{}
		m.windows[x.pool] = w
	}
	win := w.at(m.minute(now))
	win.allocated += d
	if len(x.active) == 0 {
		return
	}
	x.busy += d
	win.used += d
	left, n := d, time.Duration(len(x.active))
	for one := range x.active {
		share := left / n
		one.used += share
		left, n = left-share, n-1
	}
}

// begin starts to charge a server's time to a batch.
func (m *meter) begin(url string, parts []part, now time.Time) *work {
	w := &work{parts: parts}
	for _, p := range parts {
		w.rows += p.rows
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range parts {
		m.running[modelKey{p.account.pool, p.account.model}]++
	}
	if x := m.machines[url]; x != nil {
		m.advance(x, now)
		x.active[w] = struct{}{}
	}
	return w
}

// firstToken notes that the answer to a request begins.
func (m *meter) firstToken(url string, w *work, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x := m.machines[url]; x != nil && !w.firstSeen {
		m.advance(x, now)
		w.first, w.firstSeen = w.used, true
	}
}

// end charges the time of a batch to the owners of its rows. Predictions count where the batch was
// answered.
func (m *meter) end(url string, w *work, answered bool, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range w.parts {
		k := modelKey{p.account.pool, p.account.model}
		if m.running[k]--; m.running[k] <= 0 {
			delete(m.running, k)
		}
	}
	x := m.machines[url]
	if x == nil {
		return
	}
	m.advance(x, now)
	delete(x.active, w)
	left, rows := w.used, w.rows
	for _, p := range w.parts {
		share := left
		if rows > p.rows {
			share = time.Duration(float64(left) * float64(p.rows) / float64(rows))
		}
		left, rows = left-share, rows-p.rows
		u := m.of(p.account)
		u.used += share
		u.requests++
		if answered {
			u.predictions += p.rows
			m.hourly.of(p.account, now).Predictions += p.rows
			if win := m.windows[x.pool]; win != nil {
				win.at(m.minute(now)).predictions += p.rows
			}
		}
		if x.hourly > 0 && p.limit != nil {
			if usd, err := cost(x.hourly, share); err == nil {
				p.limit.charge(now, usd, 0)
			}
		}
	}
}

// of returns the usage of an account. The caller holds the lock.
func (m *meter) of(a account) *usage {
	u := m.usage[a]
	if u == nil {
		if len(m.usage) >= maxAccounts {
			a.owner, a.model = otherAccount, otherAccount
			if u = m.usage[a]; u != nil {
				return u
			}
		}
		u = &usage{}
		m.usage[a] = u
	}
	return u
}

// tokens counts the tokens of a request that has ended; unknown where it did not tell.
func (m *meter) tokens(a account, w *work, input, output int64, known bool, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.of(a)
	if !known {
		u.unknownTokens++
		return
	}
	u.inputTokens += input
	u.outputTokens += output
	one := m.hourly.of(a, now)
	one.InputTokens, one.OutputTokens = one.InputTokens+input, one.OutputTokens+output
	var t tokenTime
	switch {
	case output == 0 && input > 0:
		t.input = w.used // nothing was written
	case w.firstSeen:
		t = tokenTime{w.first, w.used - w.first}
	}
	u.tokenTime.add(t)
	if win := m.windows[a.pool]; win != nil {
		one := win.at(m.minute(now))
		one.inputTokens += input
		one.outputTokens += output
		one.tokenTime.add(t)
	}
}

// cost returns the price of a time at an hourly price, rounded once.
func cost(hourly money.Amount, d time.Duration) (money.Amount, error) {
	return hourly.Mul(int64(d), int64(time.Hour))
}

// poolCost is what the servers of a pool cost.
type poolCost struct {
	allocated, busy       time.Duration
	allocatedUSD, usedUSD money.Amount
	noPrice               string
}

// pools returns the costs of all pools up to a time.
func (m *meter) pools(now time.Time) (map[string]poolCost, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]poolCost{}
	sum := func(x machine) error {
		c := out[x.pool]
		c.allocated, c.busy = c.allocated+x.allocated, c.busy+x.busy
		if x.hourly == 0 {
			c.noPrice = x.noPrice
			out[x.pool] = c
			return nil
		}
		for _, part := range []struct {
			d  time.Duration
			to *money.Amount
		}{{x.allocated, &c.allocatedUSD}, {x.busy, &c.usedUSD}} {
			usd, err := cost(x.hourly, part.d)
			if err == nil {
				*part.to, err = part.to.Add(usd)
			}
			if err != nil {
				return fmt.Errorf("price the servers of pool %s: %w", x.pool, err)
			}
		}
		out[x.pool] = c
		return nil
	}
	for _, x := range m.machines {
		m.advance(x, now)
		if err := sum(*x); err != nil {
			return nil, err
		}
	}
	for _, x := range m.removed {
		if err := sum(x); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// runs returns the requests that servers work on.
func (m *meter) runs() map[modelKey]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.running)
}

// accounts returns a copy of all usage.
func (m *meter) accounts() map[account]usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[account]usage, len(m.usage))
	for a, u := range m.usage {
		out[a] = *u
	}
	return out
}

// window is what the servers of a pool did in one minute.
type window struct {
	minute          int64
	allocated, used time.Duration
	predictions     int64

	inputTokens, outputTokens int64
	tokenTime
}

// windows are the minutes of the last day.
type windows struct{ ring [1440]window }

// minute returns a time as minutes of the gateway's clock.
func (m *meter) minute(now time.Time) int64 { return int64(max(0, now.Sub(m.started)) / time.Minute) }

// at returns the window of a minute.
func (w *windows) at(minute int64) *window {
	one := &w.ring[int(minute%int64(len(w.ring)))]
	if one.minute != minute {
		*one = window{minute: minute}
	}
	return one
}

// since returns the windows from a minute on that have predictions or time.
func (w *windows) since(minute int64) []window {
	var out []window
	for _, one := range w.ring {
		if one.minute >= minute && one.allocated > 0 {
			out = append(out, one)
		}
	}
	return out
}

// tick counts the time of all servers up to now, so that each minute has its own.
func (m *meter) tick(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range m.machines {
		m.advance(x, now)
	}
}
