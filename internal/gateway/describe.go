package gateway

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/batch"
	"github.com/curfew-dev/curfew/internal/gateway/stats"
	"github.com/curfew-dev/curfew/internal/money"
)

// Utilization that suits most fleets, and the time over which it is measured.
const (
	lowUtilization    = 0.6
	highUtilization   = 0.8
	utilizationWindow = 5 // minutes
)

// Stats describes the gateway.
func (g *Gateway) Stats() (stats.Stats, error) {
	now := time.Now()
	s := g.state.Load()
	out := stats.Stats{
		Schema: stats.Schema, Version: g.o.Version, StartedAt: g.started.UTC(), At: now.UTC(), Shadow: s.config.Shadow,
		Pools: []stats.Pool{}, Models: []stats.Model{}, Owners: []stats.Owner{}, Refused: []stats.Count{},
		PassedThrough: []stats.Passed{}, Keys: []stats.Key{},
	}
	costs, err := g.meter.pools(now)
	if err != nil {
		return out, err
	}
	for _, p := range s.pools {
		out.Pools = append(out.Pools, g.describePool(p, costs[p.name], now))
	}
	if out.Owners, err = g.describeOwners(costs); err != nil {
		return out, err
	}
	out.Models = g.describeModels(s, costs, out.Owners)
	g.counts.mu.Lock()
	for reason, n := range g.counts.refusal {
		out.Refused = append(out.Refused, stats.Count{Reason: reason, Count: n})
	}
	for k, n := range g.counts.passing {
		k.Count = n
		out.PassedThrough = append(out.PassedThrough, k)
	}
	g.counts.mu.Unlock()
	slices.SortFunc(out.Refused, func(a, b stats.Count) int { return strings.Compare(a.Reason, b.Reason) })
	slices.SortFunc(out.PassedThrough, func(a, b stats.Passed) int {
		return cmp.Or(strings.Compare(a.Pool, b.Pool), strings.Compare(a.Model, b.Model),
			strings.Compare(a.Reason, b.Reason))
	})
	for _, c := range s.callers.byHash {
		if c.limit != nil {
			out.Keys = append(out.Keys, c.limit.describe(c.key, now))
		}
	}
	slices.SortFunc(out.Keys, func(a, b stats.Key) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// describe shows what a key used of its budget.
func (l *limit) describe(name string, now time.Time) stats.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.roll(now)
	k := stats.Key{Name: name, Period: l.period, UsedUSD: money.Known(l.spent), UsedTokens: l.usedTokens}
	if l.usd > 0 {
		k.BudgetUSD, k.Exceeded = money.Known(l.usd), l.spent >= l.usd
	}
	if tokens := l.tokens; tokens > 0 {
		k.BudgetTokens = &tokens
		k.Exceeded = k.Exceeded || l.usedTokens >= tokens
	}
	return k
}

func (g *Gateway) describePool(p *pool, c poolCost, now time.Time) stats.Pool {
	out := stats.Pool{
		Name: p.name, MaxBatch: p.config.MaxBatch, ServerHours: c.allocated.Hours(), UtilizationStatus: "unknown",
	}
	out.QueuedRequests, out.QueuedRows, out.QueuedBytes = p.queue.Queued()
	out.Sleep = p.describeSleep()
	out.WaitingRequests = out.QueuedRequests + p.plain.waits()
	if out.Sleep != nil {
		out.WaitingRequests += out.Sleep.HeldRequests
	}
	for k, n := range g.meter.runs() {
		if k.pool == p.name {
			out.RunningRequests += n
		}
	}
	out.Upstreams = p.upstreams()
	if share, ok := g.meter.utilization(p.name, now); ok {
		out.Utilization = &share
		switch {
		case share < lowUtilization:
			out.UtilizationStatus = "below"
		case share > highUtilization:
			out.UtilizationStatus = "above"
		default:
			out.UtilizationStatus = "within"
		}
	}
	if out.USDReason = c.noPrice; out.USDReason == "" {
		out.AllocatedUSD, out.UsedUSD = money.Known(c.allocatedUSD), money.Known(c.usedUSD)
		out.IdleUSD = money.Known(c.allocatedUSD - c.usedUSD)
	}
	return out
}

// upstreams describes the servers of a pool.
func (p *pool) upstreams() (out []stats.Upstream) {
	for _, s := range p.queue.Servers() {
		out = append(out, stats.Upstream{
			URL: s.Name, Healthy: s.Healthy, Draining: s.Draining, Slots: s.Slots,
			Running: s.Running + p.plain.count(s.Name),
			Server:  p.plain.load(s.Name),
		})
	}
	return out
}

// describeSleep describes the sleep of a pool; nil where it does not sleep.
func (p *pool) describeSleep() *stats.Sleep {
	if p.config.Sleep.Hold == 0 {
		return nil
	}
	usable, healthy := p.usable(), p.anyAnswers()
	s := p.sleeper
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &stats.Sleep{
		State: stats.Asleep, HeldRequests: s.count, HeldBytes: s.bytes, Wakes: s.wakes, ColdStarts: len(s.starts),
	}
	switch {
	case usable:
		out.State = stats.Awake
	case s.waking != nil:
		out.State = stats.Waking
	case healthy && len(s.drained) > 0:
		out.State = stats.Draining
	}
	if p50, p95, known := s.coldStarts(); known {
		out.ColdStartP50, out.ColdStartP95 = new(p50.Seconds()), new(p95.Seconds())
	}
	return out
}

// utilization returns the share of server time in use over the last minutes.
func (m *meter) utilization(pool string, now time.Time) (float64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.windows[pool]
	if w == nil {
		return 0, false
	}
	var allocated, used time.Duration
	for _, one := range w.since(m.minute(now) - utilizationWindow + 1) {
		allocated, used = allocated+one.allocated, used+one.used
	}
	if allocated <= 0 {
		return 0, false
	}
	return float64(used) / float64(allocated), true
}

// describeOwners divides the cost of each pool among those who used it.
func (g *Gateway) describeOwners(costs map[string]poolCost) ([]stats.Owner, error) {
	all := g.meter.accounts()
	byPool := map[string][]account{}
	for a := range all {
		byPool[a.pool] = append(byPool[a.pool], a)
	}
	out := []stats.Owner{}
	for pool, accounts := range byPool {
		slices.SortFunc(accounts, func(a, b account) int {
			return cmp.Or(strings.Compare(a.model, b.model), strings.Compare(a.owner, b.owner))
		})
		weights := make([]int64, len(accounts))
		var total int64
		for i, a := range accounts {
			weights[i] = int64(all[a].used / time.Microsecond)
			total += weights[i]
		}
		c := costs[pool]
		known := c.noPrice == "" && total > 0
		var used, allocated []money.Amount
		if known {
			var err error
			if used, err = money.Split(c.usedUSD, weights); err == nil {
				allocated, err = money.Split(c.allocatedUSD, weights)
			}
			if err != nil {
				return nil, fmt.Errorf("divide the cost of pool %s: %w", pool, err)
			}
		}
		for i, a := range accounts {
			u := all[a]
			one := stats.Owner{
				Owner: a.owner, Pool: pool, Model: a.model, Requests: u.requests, Predictions: u.predictions,
				InputTokens: u.inputTokens, OutputTokens: u.outputTokens, RequestsWithoutTokens: u.unknownTokens,
				Reason: cmp.Or(c.noPrice, "no server time was used"),
			}
			if known {
				one.Reason = ""
				one.UsedUSD, one.AllocatedUSD = money.Known(used[i]), money.Known(allocated[i])
				one.IdleUSD = money.Known(allocated[i] - used[i])
				one.PerPredictionUSD = perUnit(one.AllocatedUSD, 1, u.predictions)
			}
			one.PerMillionInputTokens, one.PerMillionOutputTokens = tokenCosts(one.UsedUSD, one.AllocatedUSD,
				u.inputTokens, u.outputTokens, u.tokenTime, one.Reason)
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b stats.Owner) int {
		return cmp.Or(strings.Compare(a.Pool, b.Pool), strings.Compare(a.Model, b.Model),
			strings.Compare(a.Owner, b.Owner))
	})
	return out, nil
}

// describeModels shows each model with its costs, which are the sums of its owners.
func (g *Gateway) describeModels(s *state, costs map[string]poolCost, owners []stats.Owner) []stats.Model {
	out := []stats.Model{}
	waiting, running, accounts := s.waiting(), g.meter.runs(), g.meter.accounts()
	g.counts.mu.Lock()
	now := g.counts.second(time.Now())
	for k, m := range g.counts.models {
		one := stats.Model{
			Pool: k.pool, Model: k.model, Requests: m.requests, Answered: m.answered, Failed: m.failed,
			Batches: m.batches, BatchedRows: m.rows, LatencyMS: m.latencyPercentiles(), Fits: []stats.Fit{},
			ConcurrencyFits: []stats.Fit{},
			Demand: stats.Demand{
				WaitingRequests: waiting[k], RunningRequests: running[k], LastArrivalAt: m.recent.last.UTC(),
			},
		}
		if requests, rows, window := m.recent.mean(now); window > 0 {
			requests, rows = round(requests, 6), round(rows, 6)
			one.Demand.ArrivalsPerSecond, one.Demand.RowsPerSecond = &requests, &rows
			one.Demand.WindowSeconds = window
		}
		if m.batches > 0 {
			mean := float64(m.rows) / float64(m.batches)
			one.MeanBatch = &mean
		}
		if s.config.Shadow {
			one.Shadow = &stats.Shadow{Batchable: m.shadow.batchable, Batches: m.shadow.batches}
			if m.shadow.batches > 0 {
				mean := float64(m.shadow.rows) / float64(m.shadow.batches)
				one.Shadow.MeanBatch = &mean
			}
		}
		out = append(out, one)
	}
	g.counts.mu.Unlock()
	for i := range out {
		one := &out[i]
		for _, p := range s.pools {
			if p.name == one.Pool {
				one.Fits = describeFits(one.Model, p.queue.Fits())
				one.ConcurrencyFits = describeLaws(p.plain.lawsOf(one.Model))
			}
		}
		g.chargeModel(one, costs[one.Pool], owners, accounts)
	}
	slices.SortFunc(out, func(a, b stats.Model) int {
		return cmp.Or(strings.Compare(a.Pool, b.Pool), strings.Compare(a.Model, b.Model))
	})
	return out
}

// waiting counts the requests that wait for a server.
func (s *state) waiting() map[modelKey]int {
	out := map[modelKey]int{}
	for _, p := range s.pools {
		for model, n := range p.queue.QueuedBy(func(it *batch.Item) string { return it.Payload.(*call).model }) {
			out[modelKey{p.name, model}] += n
		}
		p.plain.countWaiting(p.name, out)
		p.sleeper.mu.Lock()
		for k, n := range p.sleeper.held {
			out[k] += n
		}
		p.sleeper.mu.Unlock()
	}
	return out
}

// chargeModel adds the unit costs of a model.
func (g *Gateway) chargeModel(m *stats.Model, c poolCost, owners []stats.Owner, accounts map[account]usage) {
	used, allocated := money.Known(0), money.Known(0)
	var times tokenTime
	reason := c.noPrice
	for _, o := range owners {
		if o.Pool != m.Pool || o.Model != m.Model {
			continue
		}
		m.Predictions += o.Predictions
		m.InputTokens += o.InputTokens
		m.OutputTokens += o.OutputTokens
		times.add(accounts[account{o.Pool, o.Model, o.Owner}].tokenTime)
		u, known := o.UsedUSD.Get()
		a, _ := o.AllocatedUSD.Get()
		if !known {
			reason = o.Reason
			continue
		}
		used, allocated = used.Plus(u), allocated.Plus(a)
	}
	m.PerPrediction = unitCost(used, allocated, 1, m.Predictions, reason, "no prediction was made")
	m.PerMillionTokens = unitCost(used, allocated, million, m.InputTokens+m.OutputTokens, reason, noTokens)
	m.PerMillionInputTokens, m.PerMillionOutputTokens = tokenCosts(used, allocated, m.InputTokens, m.OutputTokens,
		times, reason)
	for _, u := range []struct {
		to    *stats.UnitCost
		units unitsOf
	}{
		{&m.PerPrediction, func(w window) units { return units{1, w.predictions, 1, 1} }},
		{&m.PerMillionTokens, func(w window) units { return units{million, w.inputTokens + w.outputTokens, 1, 1} }},
		{&m.PerMillionInputTokens, func(w window) units {
			return units{million, w.inputTokens, w.input, w.input + w.output}
		}},
		{&m.PerMillionOutputTokens, func(w window) units {
			return units{million, w.outputTokens, w.output, w.input + w.output}
		}},
	} {
		if u.to.Reason == "" {
			u.to.P50, u.to.P95 = g.meter.unitPercentiles(m.Pool, c, u.units)
		}
	}
}
func (g *Gateway) serveStats(w http.ResponseWriter) {
	s, err := g.Stats()
	if err != nil {
		refuse(w, http.StatusInternalServerError, 0, err.Error())
		return
	}
	b, err := json.Marshal(s)
	if err != nil {
		refuse(w, http.StatusInternalServerError, 0, err.Error())
		return
	}
	write(w, http.StatusOK, b)
}

func (g *Gateway) serveProfile(w http.ResponseWriter, r *http.Request) {
	p, err := g.Profile(r.URL.Query().Get("model"))
	if err != nil {
		refuse(w, http.StatusConflict, 0, err.Error())
		return
	}
	b, err := json.Marshal(p)
	if err != nil {
		refuse(w, http.StatusInternalServerError, 0, err.Error())
		return
	}
	write(w, http.StatusOK, b)
}

// serveArrivals writes the recent requests of a model as CSV with the columns of
// `plan capacity --arrivals`.
func (g *Gateway) serveArrivals(w http.ResponseWriter, r *http.Request) {
	model := r.URL.Query().Get("model")
	var all []arrival
	g.counts.mu.Lock()
	for k, m := range g.counts.models {
		if model == "" && len(g.counts.models) == 1 || k.model == model {
			all = append(all, m.arrivals.ordered()...)
		}
	}
	g.counts.mu.Unlock()
	if len(all) < 2 {
		refuse(w, http.StatusConflict, 0, fmt.Sprintf("fewer than 2 requests to model %q were recorded", model))
		return
	}
	slices.SortFunc(all, func(a, b arrival) int { return a.at.Compare(b.at) })
	w.Header().Set("Content-Type", "text/csv")
	out := csv.NewWriter(w)
	_ = out.Write([]string{"seconds", "size"}) // errors are those of the caller's connection
	for _, a := range all {
		seconds := strconv.FormatFloat(a.at.Sub(all[0].at).Seconds(), 'f', 6, 64)
		_ = out.Write([]string{seconds, strconv.Itoa(int(a.rows))})
	}
	out.Flush()
}
