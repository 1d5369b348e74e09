package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/fleets"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/replay"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/scheduler"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// ServeOptions select the accounts of a service, whether it acts, and its address.
type ServeOptions struct {
	act.EnforceOptions
	// Listen is the address of its HTTP server.
	Listen string
	// ScalerListen is the address of the external scaler for KEDA; empty serves none.
	ScalerListen string
	// LeaseTTL is the duration of a lease on a source; 0 is the default.
	LeaseTTL time.Duration
	// Hangup, if set, requests reloading the configuration.
	Hangup <-chan os.Signal
	// Out receives a line for each round that did something.
	Out io.Writer
	// JSON writes the log as JSON.
	JSON bool
	// Version is that of the program.
	Version string
	// Mount returns further handlers to serve; nil adds none.
	Mount func(req *runtime.Request, s *store.Store, cfg config.Config, log *slog.Logger) (Mounted, error)
}

// Mounted is the part of a service that is served in addition to its status.
type Mounted struct {
	// Handlers are the handlers by pattern.
	Handlers map[string]http.Handler
	// Known reports whether a request has a credential; nil is always false.
	Known func(*http.Request) bool
	// Listening, if set, is called with the URL of the service on this machine.
	Listening func(base string)
}

const (
	// configInterval is the interval of checks for a changed configuration, sharedEvery that for
	// changed shared settings.
	configInterval   = 2 * time.Second
	settingsInterval = 15 * time.Second
)

// server is a running service.
type server struct {
	req       *runtime.Request
	o         ServeOptions
	store     *store.Store
	log       *slog.Logger
	scheduler *scheduler.Scheduler
	pace      *pace
	fleets    *fleets.Watcher
	refusals  act.Refusals
	// certificate is the TLS certificate of the server; nil without TLS.
	certificate *certificate

	mu sync.Mutex // protects Out
	// cfg and set are in force; files are the files that they were read from.
	cfg   config.Config
	set   *policy.Set
	files string
	// generation counts the configurations that were in force.
	generation   int
	organization organization
	// accounts holds the accounts to read by the configuration in force.
	accounts atomic.Pointer[[]clouds.Source]
	// kept is the configuration that keepers of sessions use.
	kept atomic.Pointer[runtime.GovernedConfig]
}

// recorded returns the accounts whose history a backtest may record.
func (v *server) recorded() []clouds.Source { return *v.accounts.Load() }

// Serve reads accounts and takes the proposals of their policies up the ladder until the context
// ends. It only acts if it enforces.
func Serve(ctx context.Context, req *runtime.Request, o ServeOptions) error {
	log := req.Logger(o.JSON)
	if o.JSON {
		whole := *req.Process
		whole.Log = runtime.LogLines(log)
		req = whole.Request()
	}
	cfg, err := req.Config()
	if err != nil {
		return err
	}
	s, err := req.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := req.StateClock(ctx, s); err != nil {
		return err
	}
	serving := *req.Process
	serving.Storage = runtime.LentStorage{State: s}
	serving.InUse = &atomic.Pointer[config.Config]{}
	v := &server{req: serving.Request(), o: o, store: s, log: log}
	v.pace = &pace{log: log, per: map[string]asks{}}
	v.fleets = fleets.NewWatcher(log)
	finder := &fleetFinder{v: v, missed: map[string]missedFleet{}}
	v.fleets.Locate = finder.find
	if o.Enforce {
		v.fleets.Find = finder.find
	}
	if err := v.pace.remember(ctx, s); err != nil {
		return err
	}
	if o.Enforce {
		// An invalid state holds back actions, but nothing else that the service does.
		if err := s.Compare(ctx, ""); err != nil {
			log.Warn("nothing acts", "error", err)
		}
	}
	v.scheduler = scheduler.New(scheduler.Options{
		Leases: s.Leases(), Holder: scheduler.ProcessName(), TTL: o.LeaseTTL, Now: req.Now, Log: log,
		Frozen: s.Actions().Frozen, Facts: v.facts, Certificate: v.certificateExpires, Done: v.done})
	v.certificate = newCertificate(req, cfg)
	v.req.Troubles = v.troubles
	v.req.Fleets = func() view.ServingFleets { return v.fleets.Document(v.req.Now()) }
	sources, err := v.load(ctx)
	if err != nil {
		return err
	}
	v.scheduler.Set(sources)
	var mounted Mounted
	if o.Mount != nil {
		if mounted, err = o.Mount(v.req, s, v.cfg, log); err != nil {
			return err
		}
	}
	end, err := listen(ctx, o.Listen, v.certificate, v.scheduler.Handler(mounted.Handlers, mounted.Known),
		mounted.Listening, log)
	if err != nil {
		return err
	}
	defer end()
	if o.ScalerListen != "" {
		ending, err := v.fleets.ListenScaler(ctx, o.ScalerListen)
		if err != nil {
			return err
		}
		defer ending()
	}
	mode := "observing: nothing is warned of or acted on without --enforce"
	if o.Enforce {
		mode = "enforcing: what policies in mode enforce propose is carried out"
	}
	log.Info("serving", "mode", mode, "sources", len(sources), "policies", len(v.set.Policies))
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { v.watch(watching) })
	wg.Go(func() {
		replay.RunBacktests(watching, v.req.Fresh(), replay.BacktestRunner{
			Store: s, Sources: v.recorded, Holder: v.scheduler.Holder, TTL: o.LeaseTTL, Log: log,
		})
	})
	wg.Go(func() { v.fleets.Run(watching, v.req.Now, func() { v.scheduler.Metrics.Fleets(v.fleets.Sizes()) }) })
	wg.Go(func() { sessions.KeepServed(watching, v.req, log, v.kept.Load) })
	err = v.scheduler.Run(ctx)
	stop()
	wg.Wait()
	log.Info("ended")
	return err
}

// localURL returns the URL of an address as seen from this machine.
func localURL(at net.Addr, tls bool) string {
	scheme, host := "http", at.String()
	if tls {
		scheme = "https"
	}
	if tcp, ok := at.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		host = net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
	}
	return scheme + "://" + host
}

// listen serves HTTP until the returned function is called.
func listen(ctx context.Context, address string, p *certificate, h http.Handler, listening func(string),
	log *slog.Logger) (end func(), err error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, runtime.Invalid("--listen %s: %w", address, err)
	}
	server := scheduler.Server(h)
	serve := server.Serve
	if p != nil {
		if _, err := p.load(nil); err != nil {
			return nil, errors.Join(&runtime.Error{
				Class: runtime.Usage, Code: "invalid_file", Err: fmt.Errorf("serve.tls: %w", err),
			}, l.Close())
		}
		server.TLSConfig = &tls.Config{GetCertificate: p.load, MinVersion: tls.VersionTLS12}
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("HTTP is no longer served", "error", err)
		}
	}()
	log.Info("listening", "address", l.Addr().String(), "tls", p != nil)
	if listening != nil {
		listening(localURL(l.Addr(), p != nil))
	}
	return func() {
		bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer stop()
		if server.Shutdown(bounded) != nil {
			_ = server.Close() // running requests are cut off
		}
		<-done
	}, nil
}

// load reads the configuration with its policies and puts it in force. After an error the previous
// one stays in force.
func (v *server) load(ctx context.Context) ([]scheduler.Source, error) {
	req := v.req.Fresh()
	files := stamp(req, v.cfg)
	cfg, err := req.ReadConfig()
	if err != nil {
		return nil, err
	}
	read := cfg.Clone()
	set := &policy.Set{}
	if len(v.o.Policies)+len(cfg.Policies) > 0 {
		if set, err = govern.Policies(req, cfg, v.o.Policies); err != nil {
			return nil, err
		}
	}
	cfg, by, err := req.Governed(ctx, cfg, v.store)
	if err != nil {
		return nil, err
	}
	if v.set != nil && (cfg.DatabaseURL != v.cfg.DatabaseURL || cfg.DataDir != v.cfg.DataDir) {
		return nil, runtime.Invalid("the state is another one: start again to change data_dir or database_url")
	}
	followed, err := fleets.Configure(req, cfg, set)
	if err != nil {
		return nil, err
	}
	v.listed(ctx, cfg)
	sources, err := v.sources(ctx, cfg, set, fmt.Sprint(v.generation+1))
	if err != nil {
		return nil, err
	}
	if files == "" || v.set == nil {
		files = stamp(req, cfg)
	}
	v.cfg, v.set, v.files, v.generation = cfg, set, files, v.generation+1
	v.kept.Store(&runtime.GovernedConfig{Config: cfg, Decider: by})
	v.req.InUse.Store(&read)
	v.fleets.Set(followed)
	return sources, v.pace.configure(cfg)
}

// sources returns the sources of a configuration: each account and its audits. Sources made from
// the same version of the configuration are equal.
func (v *server) sources(ctx context.Context, cfg config.Config, set *policy.Set, made string) ([]scheduler.Source,
	error) {
	accounts := accountsOf(cfg, v.o.Source, v.organization.members)
	if len(accounts) == 0 && !asksOrganization(cfg, v.o.Source) {
		return nil, runtime.Invalid("no account is configured")
	}
	var sources []scheduler.Source
	var all []clouds.Source
	for _, a := range accounts {
		all = append(all, a.Source)
	}
	tried := false
	for _, a := range accounts {
		// This makes no call, but finds errors in the configuration now; members of an
		// organization are alike.
		if !a.member || !tried {
			if _, err := v.wire(ctx, cfg, a.Source, set); err != nil {
				return nil, err
			}
			tried = tried || a.member
		}
		sources = append(sources, scheduler.Source{Name: a.name, Every: func() time.Duration {
			return v.pace.every()
		}, Deadline: cfg.Serve.Deadline, Made: made,
			Open: func(ctx context.Context, lease store.Lease) (scheduler.Rounds, error) {
				return v.open(ctx, cfg, a.Source, set, lease)
			}})
		if !cfg.Serve.SkipAudits {
			sources = append(sources, v.audited(cfg, a, made))
		}
	}
	if v.o.Enforce {
		sources = append(sources, v.watched(cfg, made))
		if enforcesFleets(set) {
			sources = append(sources, v.resized(cfg, made))
		}
	}
	v.accounts.Store(&all)
	return sources, nil
}

// account is an account that is read separately.
type account struct {
	clouds.Source
	name string
	// member is true if it was found through an organization.
	member bool
}

// accountsOf returns the accounts that the configuration names, with the regions of each, and those
// of the organization.
func accountsOf(cfg config.Config, f clouds.Source, org []clouds.AWSMember) []account {
	var out []account
	for _, name := range cfg.Clouds {
		if name != clouds.ProviderAWS {
			out = append(out, account{Source: clouds.Source{Cloud: name}, name: name})
		}
	}
	if len(cfg.Clouds) > 0 && !slices.Contains(cfg.Clouds, clouds.ProviderAWS) {
		return out
	}
	return append(out, awsAccountsOf(cfg, f, org)...)
}

// awsAccountsOf returns the AWS accounts among them.
func awsAccountsOf(cfg config.Config, f clouds.Source, org []clouds.AWSMember) []account {
	var out []account
	roles := f.AssumeRoles
	if len(roles) == 0 {
		for _, a := range cfg.AWS.Accounts {
			out = append(out, newAccount(cfg, f, a.Role, a.Regions))
		}
		roles = cfg.AWS.AssumeRoles
	}
	if len(out) == 0 {
		if !asksOrganization(cfg, f) {
			out = append(out, newAccount(cfg, f, "", nil))
		}
		for _, role := range roles {
			out = append(out, newAccount(cfg, f, role, nil))
		}
	}
	if asksOrganization(cfg, f) {
		out = append(out, members(cfg, f, org, out)...)
	}
	return slices.CompactFunc(out, func(a, b account) bool { return a.name == b.name })
}

// stamp returns a text that changes with the files of the configuration.
func stamp(req *runtime.Request, cfg config.Config) string {
	path := cmp.Or(req.ConfigFlag, config.Find(req.Dir, req.ConfigDir))
	var out strings.Builder
	note := func(name string) {
		if st, err := os.Stat(name); err == nil {
			fmt.Fprintf(&out, "%s %d %d\n", name, st.Size(), st.ModTime().UnixNano())
		}
	}
	note(req.Path(path))
	if files, err := govern.YAMLFiles(req, cfg.Policies); err == nil {
		for _, f := range files {
			note(req.Path(f))
		}
	}
	return out.String()
}

// watch reloads the configuration when its files or the shared settings change, or when asked to.
func (v *server) watch(ctx context.Context) {
	t := time.NewTicker(configInterval)
	defer t.Stop()
	var shared time.Duration
	tried := v.files
	for {
		asked := false
		select {
		case <-ctx.Done():
			return
		case <-v.o.Hangup:
			asked = true
		case <-t.C:
		}
		if asked {
			v.organization.due = time.Time{}
		}
		now := stamp(v.req, v.cfg)
		changed := asked || now != tried
		if shared += configInterval; !changed && shared >= settingsInterval {
			shared, changed = 0, v.governs(ctx)
		}
		if !changed {
			v.follow(ctx)
			continue
		}
		tried = now
		sources, err := v.load(ctx)
		if ctx.Err() != nil {
			return
		}
		v.scheduler.Reloaded(err)
		if err != nil {
			v.log.Error("the configuration is not taken: the one before stays in force", "error", err)
			continue
		}
		v.log.Info("the configuration is read again", "sources", len(sources), "policies", len(v.set.Policies))
		v.scheduler.Set(sources)
	}
}

// follow adds the accounts that have joined the organization, and removes those that have left.
func (v *server) follow(ctx context.Context) {
	if !v.listed(ctx, v.cfg) {
		return
	}
	sources, err := v.sources(ctx, v.cfg, v.set, fmt.Sprint(v.generation))
	if err != nil {
		if ctx.Err() == nil {
			v.log.Error("the accounts of the organization are not taken up", "error", err)
		}
		return
	}
	v.scheduler.Set(sources)
}

// governs reports whether the shared settings differ from those in force.
func (v *server) governs(ctx context.Context) bool {
	req := v.req.Fresh()
	cfg, err := req.Config()
	if err != nil {
		return false
	}
	cfg, _, err = req.Governed(ctx, cfg, v.store)
	return err == nil && !reflect.DeepEqual(cfg, v.cfg)
}

// done notifies people of a round's actions.
func (v *server) done(source string, o scheduler.Outcome, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch said := o.Summary(); {
	case said == "":
	case v.o.JSON:
		v.log.Info("acted", "operation", "round", "source", source, "did", said)
	default:
		plain.Fprintf(v.o.Out, "%s %s: %s\n", v.req.Now().UTC().Format(time.RFC3339), source, said)
	}
	if err == nil {
		v.log.Debug("round", "source", source, "resources", o.Resources, "verdicts", o.Verdicts)
	}
}

// facts reads the metrics about the state.
func (v *server) facts(ctx context.Context) (f scheduler.Facts, err error) {
	fuses, err := v.store.Actions().Fuses(ctx)
	if err != nil {
		return f, err
	}
	for i := range fuses {
		if fuses[i].IsBlown() {
			f.Fuses++
		}
	}
	tokens, err := v.store.Callers().Tokens(ctx)
	if err != nil {
		return f, err
	}
	owed, err := v.store.Actions().Owed(ctx)
	if err != nil {
		return f, err
	}
	f.Owed = len(owed)
	now := v.req.Now()
	for _, t := range tokens {
		if t.Valid(now) && !t.ShortTerm() && (f.TokenExpires.IsZero() || t.ExpiresAt.Before(f.TokenExpires)) {
			f.TokenExpires = t.ExpiresAt
		}
	}
	return f, nil
}

// troubles lists what is wrong with this process of the service, apart from its state.
func (v *server) troubles() []view.Trouble {
	r := v.scheduler.Ready()
	var out []view.Trouble
	add := func(what, next string, why ...string) {
		for _, w := range why {
			out = append(out, view.Trouble{What: what, Why: w, Next: next})
		}
	}
	if !r.Ready {
		add(view.TroubleDatabase, "see that it runs and can be reached", r.Database)
	}
	if r.Configuration != "" {
		add(view.TroubleConfiguration, "`curfew policy check` lists its mistakes; the one before is in force",
			r.Configuration)
	}
	add(view.TroubleSource, "the cause names the denied or failed call; other sources continue", r.Degraded...)
	for _, p := range r.Problems {
		if why, ok := strings.CutPrefix(p, scheduler.ProblemOrganization+": "); ok {
			add(view.TroubleOrganization, "the accounts that are known go on", why)
		}
	}
	if ends, ok := v.certificateExpires(); ok && ends.Sub(v.req.Now()) < certificateSoon {
		add(view.TroubleCertificate, "replace the file at serve.tls.cert_file; it is taken up without a start",
			"expires at "+plain.Time(ends))
	}
	return out
}

// certificateSoon is the time before its expiry from which a certificate is listed as a trouble.
const certificateSoon = 14 * 24 * time.Hour

// certificateExpires returns the expiry of the server's certificate; false without one.
func (v *server) certificateExpires() (time.Time, bool) {
	if v.certificate == nil {
		return time.Time{}, false
	}
	c, err := v.certificate.load(nil)
	if err != nil || c.Leaf == nil {
		return time.Time{}, false
	}
	return c.Leaf.NotAfter, true
}

// kindsOf returns the kinds that a service reads: those of the policies, and machines.
func kindsOf(set *policy.Set) map[inventory.Kind]bool {
	kinds := set.Kinds()
	if kinds == nil {
		return nil
	}
	kinds = maps.Clone(kinds)
	kinds[inventory.KindInstance] = true
	return kinds
}
