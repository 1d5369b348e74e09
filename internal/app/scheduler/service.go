package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/wait"
)

// Source is an account that is read and judged separately.
type Source struct {
	// Name is the same in every process and identifies leases and metrics.
	Name string
	// Every returns the current time between two rounds; Deadline is the maximum duration of one.
	Every    func() time.Duration
	Deadline time.Duration
	// Made identifies the inputs of the source. Setting a source again with the same Name and Made
	// does not affect its rounds; an empty Made always differs.
	Made string
	// First returns the wait before the first round once the source is taken; nil is no wait.
	First func(ctx context.Context) (time.Duration, error)
	// Background is true if its rounds are long and rare, such as audits: a process runs one of
	// them at a time, they are never late, and they end at once when the service does.
	Background bool
	// Due reports whether the next round is due early. It is called about once a minute; nil is
	// never.
	Due func(ctx context.Context) (bool, error)
	// Open returns the Rounds without any earlier state. Their writes are conditional on the lease.
	Open func(ctx context.Context, lease store.Lease) (Rounds, error)
}

// Rounds makes the rounds of one source, sequentially. After an error it is not used again.
type Rounds interface {
	Round(ctx context.Context) (Outcome, error)
}

// Outcome is the result of a round.
type Outcome struct {
	// Next is the time of something due before the next regular round; zero if nothing is.
	Next time.Time
	// Resources is their number, Verdicts the number of machines in each state.
	Resources int
	Verdicts  map[string]int
	// Running is the hourly cost of the machines, Wasted that of the idle, held and stalled ones.
	Running, Wasted money.Amount
	Calls           []inventory.Calls
	Acts            []Act
	// Failed counts failed actions by verb, including those that failed in earlier rounds.
	Failed map[policy.Verb]int
	// Missing lists the parts that could not be read or recorded.
	Missing []string
}

// Act is the action of a round on one resource.
type Act struct {
	Resource string
	Verb     policy.Verb
	Result   string
}

// Leases divide sources among processes; [store.Leases] implements it.
type Leases interface {
	Take(ctx context.Context, name, holder string, length time.Duration) (store.Lease, bool, error)
	Renew(ctx context.Context, lease store.Lease, length time.Duration) (store.Lease, error)
	// RenewAll renews several leases at once. Blocked ones are skipped; Renew waits for them.
	RenewAll(ctx context.Context, leases []store.Lease, length time.Duration) (lost, left []store.Lease, err error)
	Release(ctx context.Context, lease store.Lease) error
	All(ctx context.Context) ([]store.Lease, time.Time, error)
	Prune(ctx context.Context, prefix string, before time.Time) error
}

// Options of a scheduler.
type Options struct {
	// Leases of the state; nil holds every source without leases.
	Leases Leases
	// Holder identifies this process among those that share the state.
	Holder string
	// TTL is the duration of a lease. The sources of a process that dies are blocked for that long.
	TTL time.Duration
	// Drain is how long a running round may continue after the service was told to end.
	Drain time.Duration
	// Now and Sleep are the clock; a simulation has its own.
	Now   func() time.Time
	Sleep func(ctx context.Context, d time.Duration) error
	Log   *slog.Logger
	// Frozen, if set, returns the freeze of all actions, at every look at the leases; nil if there
	// is none.
	Frozen func(ctx context.Context) (*action.Freeze, error)
	// Facts, if set, reads further metrics from the state, at longer intervals.
	Facts func(ctx context.Context) (Facts, error)
	// Certificate, if set, returns the expiry of the server's certificate.
	Certificate func() (time.Time, bool)
	// Done, if set, is called after every round.
	Done func(source string, o Outcome, err error)
}

// Facts are the contents of the state that metrics export.
type Facts struct {
	// Fuses counts the blown fuses without a confirmation.
	Fuses int
	// TokenExpires is the earliest expiry of the API's valid tokens; zero if there are none.
	TokenExpires time.Time
	// Owed counts notices of actions and alarms that no channel has accepted yet.
	Owed int
}

// factsEvery is the time between two readings of facts.
const factsEvery = 15 * time.Second

// Defaults of Options.
const (
	DefaultTTL   = 8 * time.Second
	DefaultDrain = 30 * time.Second
	// replicas is the prefix of the leases by which processes count each other.
	replicas = "replica/"
)

// Scheduler runs the rounds of sources.
type Scheduler struct {
	Options
	Metrics *Metrics

	mu         sync.Mutex
	sources    []Source
	held       map[string]*holding
	status     map[string]*Status
	others     map[string]store.Lease // leases of other processes, by source
	reached    time.Time              // when the database last responded
	problem    string                 // why it does not respond
	outage     time.Time              // when that began, and when it was last logged
	outageSaid time.Time
	config     string         // error in the newest configuration
	freeze     *action.Freeze // freeze of all actions, or nil
	facts      Facts          // as of factsAt
	factsAt    time.Time
	other      map[string]string // further problems by subject
	started    time.Time
	wake       chan struct{}
	self       store.Lease
	// background has room for one round of a source in the background.
	background chan struct{}
	// renewing has room for one renewal of the leases.
	renewing chan struct{}
	// beginning has room for as many first rounds as are made at once.
	beginning chan struct{}
}

// holding is a source that this process holds.
type holding struct {
	source Source
	// leave is closed when it is to be released after the running round.
	leave chan struct{}
	once  sync.Once
	// lease is the lease of the source, and lose ends the rounds under it; nil if it is not to be
	// renewed. answered is when the database last renewed it. waited is closed when a blocking
	// renewal ends, or nil. The scheduler's lock protects these.
	lease    store.Lease
	lose     context.CancelCauseFunc
	answered time.Time
	waited   chan struct{}
}

func (h *holding) end() { h.once.Do(func() { close(h.leave) }) }

// leaves reports whether it is being released.
func (h *holding) leaves() bool {
	select {
	case <-h.leave:
		return true
	default:
		return false
	}
}

// staying returns the sources that this process holds and will continue to hold. The caller holds
// the lock.
func (s *Scheduler) staying() []*holding {
	out := make([]*holding, 0, len(s.held))
	for _, h := range s.held {
		if !h.leaves() {
			out = append(out, h)
		}
	}
	return out
}

// Status is the status of a source.
type Status struct {
	Source string `json:"source"`
	// Held is true if this process holds it; Holder is the other process that does.
	Held   bool   `json:"held"`
	Holder string `json:"holder,omitempty"`
	// ReadAt is the end of its newest successful round.
	ReadAt time.Time `json:"read_at,omitzero"`
	// NextAt is the beginning of its next round.
	NextAt time.Time `json:"next_at,omitzero"`
	// Problem is why the newest round failed; Failures counts consecutive failures.
	Problem  string   `json:"problem,omitempty"`
	Failures int      `json:"failures,omitempty"`
	Missing  []string `json:"missing,omitempty"`
	// Background is true if it is never late.
	Background bool `json:"background,omitempty"`
	// Late is true if it was not read within its interval.
	Late bool `json:"late,omitempty"`

	every, deadline time.Duration
	since           time.Time // when it was taken, or seen free
}

// New returns a scheduler without sources.
func New(o Options) *Scheduler {
	if o.TTL <= 0 {
		o.TTL = DefaultTTL
	}
	if o.Drain <= 0 {
		o.Drain = DefaultDrain
	}
	if o.Sleep == nil {
		o.Sleep = wait.For
	}
	s := &Scheduler{
		Options: o, held: map[string]*holding{}, status: map[string]*Status{}, others: map[string]store.Lease{},
		other: map[string]string{},
		wake:  make(chan struct{}, 1), started: o.Now(), background: make(chan struct{}, 1),
		renewing: make(chan struct{}, 1), beginning: make(chan struct{}, 4*runtime.GOMAXPROCS(0))}
	s.Metrics = newMetrics(s)
	return s
}

// Set replaces the sources. Running rounds are completed, and unchanged sources are not affected.
func (s *Scheduler) Set(sources []Source) {
	s.mu.Lock()
	s.sources = sources
	for name, h := range s.held {
		if !slices.ContainsFunc(sources, func(x Source) bool {
			return x.Name == name && x.Made != "" && x.Made == h.source.Made
		}) {
			h.end()
		}
	}
	for name := range s.status {
		if !slices.ContainsFunc(sources, func(x Source) bool { return x.Name == name }) {
			delete(s.status, name)
		}
	}
	s.mu.Unlock()
	s.nudge()
}

// Reloaded records the error in the newest configuration, while the previous one is in force; nil
// clears it.
func (s *Scheduler) Reloaded(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = ""
	if err != nil {
		s.config = err.Error()
	}
	s.Metrics.reloaded(err)
}

// Subjects of [Scheduler.Problem].
const (
	ProblemState        = "state"
	ProblemOrganization = "organization"
)

// known returns the facts that were read last.
func (s *Scheduler) known() Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts
}

// Problem records an error of another dependency of the service, such as the list of its accounts;
// nil clears it.
func (s *Scheduler) Problem(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.other, what)
	if err != nil {
		s.other[what] = err.Error()
		s.Metrics.failed(what)
	}
}

// nudge makes the dealer look immediately.
func (s *Scheduler) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run runs rounds until the context ends, and then waits for running ones, at most the drain time.
// It always returns nil, because failures are retried.
func (s *Scheduler) Run(ctx context.Context) error {
	hard, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(s.Drain, stop) })()
	var wg, renewal sync.WaitGroup
	renewing, end := context.WithCancel(context.WithoutCancel(ctx))
	if s.Leases != nil {
		renewal.Go(func() { s.renew(renewing) })
	}
	for ctx.Err() == nil {
		s.deal(ctx, hard, &wg)
		t := time.NewTimer(s.poll())
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-s.wake:
		}
		t.Stop()
	}
	s.Log.Info("draining: no new pass begins", "at_most", s.Drain)
	s.mu.Lock()
	for _, h := range s.held {
		h.end()
	}
	s.mu.Unlock()
	wg.Wait()
	end()
	renewal.Wait()
	if s.Leases != nil && s.self.Fence > 0 {
		bounded, end := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer end()
		if err := s.Leases.Release(bounded, s.self); err != nil {
			s.Log.Warn("the lease of this process is not given back", "error", err)
		}
	}
	return nil
}

// poll returns the wait of the dealer, which varies so that processes do not poll at once.
func (s *Scheduler) poll() time.Duration { return jitter(s.TTL / 5) }

// deal takes free sources up to this process's share, and releases those above it.
func (s *Scheduler) deal(ctx, hard context.Context, wg *sync.WaitGroup) {
	s.mu.Lock()
	sources := slices.Clone(s.sources)
	s.mu.Unlock()
	share := len(sources)
	var leases map[string]store.Lease
	var now time.Time
	if s.Leases != nil {
		var err error
		if leases, now, err = s.look(ctx); err != nil {
			if ctx.Err() == nil {
				s.fault(err)
			}
			return
		}
		share = s.share(leases, now, len(sources))
	}
	if s.Frozen != nil {
		freeze, err := s.Frozen(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.fault(err)
			}
			return
		}
		s.froze(freeze)
	}
	if err := s.learn(ctx); err != nil {
		if ctx.Err() == nil {
			s.fault(err)
		}
		return
	}
	s.recovered()
	// Processes begin at different offsets, so that they do not all try the same source.
	offset := rand.IntN(max(1, len(sources)))
	for i := range sources {
		src := sources[(i+offset)%len(sources)]
		s.mu.Lock()
		_, mine := s.held[src.Name]
		full := len(s.staying()) >= share
		s.mu.Unlock()
		lease := leases[src.Name]
		free := !lease.Until.After(now) || lease.Holder == s.Holder
		unheld := s.seen(src, mine, free, lease)
		// A source that no process takes is taken even above the share, because a counted process
		// may not do anything.
		if mine || !free || full && unheld < 2*s.TTL {
			continue
		}
		if s.Leases != nil {
			taken, held, err := s.Leases.Take(ctx, src.Name, s.Holder, s.TTL)
			if err != nil {
				s.fault(err)
				return
			}
			if !held {
				continue
			}
			if before := lease.Holder; before != "" && before != s.Holder {
				s.Log.Info("the source is taken over", "operation", "lease", "source", src.Name, "from", before)
			}
			lease = taken
		}
		h := &holding{source: src, leave: make(chan struct{})}
		s.mu.Lock()
		s.held[src.Name] = h
		s.mu.Unlock()
		until := hard
		if src.Background {
			until = ctx
		}
		wg.Go(func() { s.hold(until, h, lease) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stay := s.staying()
	for _, h := range stay[:max(0, len(stay)-max(share, 1))] {
		h.end()
	}
}

// learn reads the facts again if that is due.
func (s *Scheduler) learn(ctx context.Context) error {
	s.mu.Lock()
	due := s.Facts != nil && (s.factsAt.IsZero() || s.Now().Sub(s.factsAt) >= factsEvery)
	s.mu.Unlock()
	if !due {
		return nil
	}
	facts, err := s.Facts(ctx)
	if err != nil {
		return err
	}
	s.learned(facts)
	return nil
}

// learned records the current facts.
func (s *Scheduler) learned(facts Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts, s.factsAt = facts, s.Now()
}

// froze records whether all actions are held back, and logs a change.
func (s *Scheduler) froze(now *action.Freeze) {
	s.mu.Lock()
	before := s.freeze
	s.freeze = now
	s.mu.Unlock()
	switch {
	case now == nil && before != nil:
		s.Log.Info("actions are allowed again")
	case now != nil && (before == nil || *before != *now):
		s.Log.Warn("all actions are frozen", "by", now.By, "since", now.At.UTC(), "reason", now.Reason)
	}
}

// Configuration returns the error in the newest configuration while the previous one is in force;
// empty if there is none.
func (s *Scheduler) Configuration() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// look renews the lease by which other processes count this one, and reads all leases.
func (s *Scheduler) look(ctx context.Context) (map[string]store.Lease, time.Time, error) {
	var err error
	renewed := s.self
	if s.self.Fence > 0 {
		renewed, err = s.Leases.Renew(ctx, s.self, s.TTL)
	}
	if s.self.Fence == 0 || errors.Is(err, store.ErrLeaseLost) {
		renewed, _, err = s.Leases.Take(ctx, replicas+s.Holder, s.Holder, s.TTL)
		if err == nil {
			err = s.Leases.Prune(ctx, replicas, renewed.Until.Add(-time.Hour))
		}
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	s.self = renewed
	all, now, err := s.Leases.All(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	out := make(map[string]store.Lease, len(all))
	for _, l := range all {
		out[l.Name] = l
	}
	return out, now, nil
}

// share returns this process's share of the sources, rounded up.
func (s *Scheduler) share(leases map[string]store.Lease, now time.Time, sources int) int {
	alive := 0
	for name, l := range leases {
		if strings.HasPrefix(name, replicas) && l.Until.After(now) {
			alive++
		}
	}
	alive = max(alive, 1)
	return (sources + alive - 1) / alive
}

// seen records the holder of a source, and returns how long no process has held it.
func (s *Scheduler) seen(src Source, mine, free bool, lease store.Lease) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.of(src)
	before := st.Holder
	st.Held, st.Holder = mine, ""
	if !mine && !free {
		st.Holder = lease.Holder
		if before == "" {
			s.Metrics.forget(src.Name) // the other process reports its metrics
		}
	}
	if mine || !free {
		st.since = s.Now()
	}
	return s.Now().Sub(st.since)
}

// of returns the status of a source. The caller holds the lock.
func (s *Scheduler) of(src Source) *Status {
	st := s.status[src.Name]
	if st == nil {
		st = &Status{Source: src.Name, since: s.Now()}
		s.status[src.Name] = st
		s.Metrics.begin(src.Name)
	}
	st.every, st.deadline, st.Background = src.Every(), src.Deadline, src.Background
	return st
}

// outageEvery is the time between two log lines about an ongoing outage.
const outageEvery = time.Minute

// fault records that the database did not respond.
func (s *Scheduler) fault(err error) {
	s.mu.Lock()
	now := s.Now()
	if s.problem == "" {
		s.outage = now
	}
	s.problem = err.Error()
	lasts, due := now.Sub(s.outage), s.outageSaid.IsZero() || now.Sub(s.outageSaid) >= outageEvery
	if due {
		s.outageSaid = now
	}
	s.mu.Unlock()
	s.Metrics.failed("database")
	if due {
		s.Log.Error("the database does not answer", "for", lasts, "error", err)
	}
}

// outaged reports whether the database does not respond.
func (s *Scheduler) outaged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem != ""
}

// recovered records that the database responds, and logs it after an outage.
func (s *Scheduler) recovered() {
	s.mu.Lock()
	now := s.Now()
	was, lasted := s.problem, now.Sub(s.outage)
	s.reached, s.problem, s.outageSaid = now, "", time.Time{}
	s.mu.Unlock()
	if was != "" {
		s.Log.Info("the database answers again", "after", lasted)
	}
}

// hold makes the rounds of a source until its lease is lost, it is to be released, or the context
// ends.
func (s *Scheduler) hold(until context.Context, h *holding, lease store.Lease) {
	src := h.source
	ctx, lose := context.WithCancelCause(until)
	defer lose(nil)
	s.mu.Lock()
	h.lease, h.lose, h.answered = lease, lose, time.Now()
	s.mu.Unlock()
	defer func() {
		lost := errors.Is(context.Cause(ctx), store.ErrLeaseLost)
		lose(nil)
		if s.Leases != nil && !lost {
			bounded, end := context.WithTimeout(context.WithoutCancel(until), 2*time.Second)
			defer end()
			if err := s.release(bounded, h); err != nil && !s.outaged() {
				s.Log.Warn("the lease is not given back", "source", src.Name, "error", err)
			}
		}
		s.mu.Lock()
		h.lose = nil
		delete(s.held, src.Name)
		others := !slices.ContainsFunc(s.sources, func(x Source) bool { return x.Name == src.Name })
		if st := s.status[src.Name]; st != nil {
			st.Held = false // the dealer does not update it during an outage
			others = others || st.Holder != ""
		}
		if others {
			s.Metrics.forget(src.Name)
		}
		s.mu.Unlock()
		s.nudge()
	}()
	s.rest(ctx, h, s.first(ctx, src))
	var rounds Rounds
	for made := 0; ; made++ {
		if !s.turn(ctx, h) {
			return
		}
		begun := func() {}
		if made == 0 && !src.Background {
			if begun = s.begin(ctx, h); begun == nil {
				return
			}
		}
		wait, err := s.round(ctx, src, lease, &rounds, made == 0)
		begun()
		if src.Background {
			<-s.background
		}
		if err != nil && (errors.Is(err, store.ErrLeaseLost) || errors.Is(context.Cause(ctx), store.ErrLeaseLost)) {
			s.Metrics.lost()
			why := err
			if cause := context.Cause(ctx); errors.Is(cause, store.ErrLeaseLost) {
				why = cause
			}
			if !s.outaged() {
				s.Log.Warn("the source is given up", "operation", "lease", "source", src.Name, "error", why)
			}
			lose(store.ErrLeaseLost)
			return
		}
		s.rest(ctx, h, wait)
	}
}

// round makes one round and returns the wait until the next one; first is true for the first one
// since the source was taken.
func (s *Scheduler) round(ctx context.Context, src Source, lease store.Lease, rounds *Rounds,
	first bool) (time.Duration, error) {
	bounded, end := context.WithTimeoutCause(ctx, src.Deadline,
		fmt.Errorf("the pass took longer than %s", src.Deadline))
	defer end()
	began := s.Now()
	var err error
	if *rounds == nil {
		*rounds, err = src.Open(bounded, lease)
	}
	var out Outcome
	if err == nil {
		out, err = (*rounds).Round(bounded)
	}
	if err != nil {
		*rounds = nil
		if cause := context.Cause(bounded); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
	}
	ended := s.Now()
	s.Metrics.round(src, ended.Sub(began), out, err)
	if s.Done != nil {
		s.Done(src.Name, out, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := &Status{} // the source was removed during its round
	if slices.ContainsFunc(s.sources, func(x Source) bool { return x.Name == src.Name }) {
		st = s.of(src)
	}
	st.Held, st.Missing = true, out.Missing
	if err != nil {
		if ctx.Err() == nil {
			st.Failures++
			st.Problem = err.Error()
			wait := backoff(src, st.Failures)
			if s.problem == "" { // otherwise the line about the database covers all sources
				s.Log.Error("the pass failed", "operation", "round", "source", src.Name, "failures",
					st.Failures, "again_in",
					wait, "error", err)
			}
			return jitter(wait), err
		}
		return 0, err
	}
	st.Failures, st.Problem, st.ReadAt = 0, "", ended
	return pause(src, out, ended, first), nil
}
