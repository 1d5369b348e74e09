package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/service"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// ServeOptions say what a service reads, whether it acts, and where it listens.
type ServeOptions struct {
	EnforceOptions
	// Listen is the address of its HTTP server.
	Listen string
	// LeaseTTL is for how long a source is taken; 0 is the usual time.
	LeaseTTL time.Duration
	// Hangup, when set, asks to read the configuration again.
	Hangup <-chan os.Signal
	// Out takes a line for each round that did something.
	Out io.Writer
	// JSON writes the log as JSON.
	JSON bool
	// Version is that of the program.
	Version string
	// Mount returns what else is served, by pattern; nil is nothing.
	Mount func(rt *Runtime, s *store.Store, cfg config.Config, log *slog.Logger) (map[string]http.Handler, error)
}

const (
	// configEvery is how often a service looks whether its configuration has changed, and
	// sharedEvery whether the shared settings have.
	configEvery = 2 * time.Second
	sharedEvery = 15 * time.Second
)

// server is a service under way.
type server struct {
	rt      *Runtime
	o       ServeOptions
	store   *store.Store
	log     *slog.Logger
	service *service.Service
	pace    *pace

	mu sync.Mutex // of Out
	// cfg and set are in force; files are what they were read from.
	cfg   config.Config
	set   *policy.Set
	files string
	// generation counts the configurations that were in force.
	generation   int
	organization organization
	// accounts are those that are read, of the configuration in force.
	accounts atomic.Pointer[[]Source]
	// kept is what sessions are kept by.
	kept atomic.Pointer[governed]
}

// governed is a configuration under the shared settings, and who decided those. Each reading
// makes one of its own.
type governed struct {
	cfg config.Config
	by  view.Decider
}

// recorded are the accounts whose history is recorded where that is asked for.
func (v *server) recorded() []Source { return *v.accounts.Load() }

// Serve reads accounts and takes what their policies propose up the ladder until the context
// ends. It acts on nothing unless it enforces.
func (rt *Runtime) Serve(ctx context.Context, o ServeOptions) error {
	log := rt.logger(o.JSON)
	cfg, err := rt.Config()
	if err != nil {
		return err
	}
	s, err := rt.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := rt.StateClock(ctx, s); err != nil {
		return err
	}
	serving := *rt.Process
	serving.Storage = LentStorage{s}
	v := &server{rt: serving.Request(), o: o, store: s, log: log}
	v.pace = &pace{log: log, per: map[string]asks{}}
	if err := v.pace.remember(ctx, s); err != nil {
		return err
	}
	v.service = service.New(service.Options{Leases: s.Leases(), Holder: holder(), TTL: o.LeaseTTL, Now: rt.Now, Log: log, Done: v.done})
	sources, err := v.load(ctx)
	if err != nil {
		return err
	}
	v.service.Set(sources)
	var mounted map[string]http.Handler
	if o.Mount != nil {
		if mounted, err = o.Mount(v.rt, s, v.cfg, log); err != nil {
			return err
		}
	}
	end, err := listen(ctx, o.Listen, rt.pair(cfg), v.service.Handler(mounted), log)
	if err != nil {
		return err
	}
	defer end()
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
		v.rt.For().RunBacktests(watching, BacktestRunner{Store: s, Sources: v.recorded, Holder: v.service.Holder, TTL: o.LeaseTTL, Log: log})
	})
	wg.Go(func() { v.rt.keepServed(watching, log, v.kept.Load) })
	err = v.service.Run(ctx)
	stop()
	wg.Wait()
	log.Info("ended")
	return err
}

// logger is the log of a service.
func (rt *Runtime) logger(asJSON bool) *slog.Logger {
	if asJSON {
		return slog.New(slog.NewJSONHandler(rt.Log, nil))
	}
	return slog.New(slog.NewTextHandler(rt.Log, nil))
}

// holder names this process among those that share a state.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	id := make([]byte, 4)
	_, _ = rand.Read(id) // it never fails
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(id))
}

// listen serves HTTP until the returned function is called.
func listen(ctx context.Context, address string, p *pair, h http.Handler, log *slog.Logger) (end func(), err error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, invalid("--listen %s: %w", address, err)
	}
	server := service.Server(h)
	serve := server.Serve
	if p != nil {
		if _, err := p.load(nil); err != nil {
			return nil, errors.Join(&Error{Class: Usage, Code: "invalid_file", Err: fmt.Errorf("serve.tls: %w", err)}, l.Close())
		}
		server.TLSConfig = &tls.Config{GetCertificate: p.load, MinVersion: tls.VersionTLS12}
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("HTTP is not served any more", "error", err)
		}
	}()
	log.Info("listening", "address", l.Addr().String(), "tls", p != nil)
	return func() {
		bounded, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer stop()
		if server.Shutdown(bounded) != nil {
			_ = server.Close() // what still runs is cut off
		}
		<-done
	}, nil
}

// load reads the configuration with its policies and puts it in force. Where something is
// wrong, what was in force stays.
func (v *server) load(ctx context.Context) ([]service.Source, error) {
	rt := v.rt.For()
	files := rt.stamp(v.cfg)
	cfg, err := rt.Config()
	if err != nil {
		return nil, err
	}
	set := &policy.Set{}
	if len(v.o.Policies)+len(cfg.Policies) > 0 {
		if set, err = rt.Policies(cfg, v.o.Policies); err != nil {
			return nil, err
		}
	}
	cfg, by, err := rt.Governed(ctx, cfg, v.store)
	if err != nil {
		return nil, err
	}
	if v.set != nil && (cfg.DatabaseURL != v.cfg.DatabaseURL || cfg.DataDir != v.cfg.DataDir) {
		return nil, invalid("the state is another one: start again to change data_dir or database_url")
	}
	v.listed(ctx, cfg)
	sources, err := v.sources(ctx, cfg, set, fmt.Sprint(v.generation+1))
	if err != nil {
		return nil, err
	}
	if files == "" || v.set == nil {
		files = rt.stamp(cfg)
	}
	v.cfg, v.set, v.files, v.generation = cfg, set, files, v.generation+1
	v.kept.Store(&governed{cfg, by})
	return sources, v.pace.configure(cfg)
}

// sources are those of a configuration: each account, and its audits. Those that were made
// of the same reading of the configuration are the same.
func (v *server) sources(ctx context.Context, cfg config.Config, set *policy.Set, made string) ([]service.Source, error) {
	accounts := accountsOf(cfg, v.o.Source, v.organization.members)
	if len(accounts) == 0 && !asksOrganization(cfg, v.o.Source) {
		return nil, invalid("no account is configured")
	}
	var sources []service.Source
	var all []Source
	for _, a := range accounts {
		all = append(all, a.Source)
	}
	tried := false
	for _, a := range accounts {
		// It makes no call, and shows now what is wrong with the configuration; members of an
		// organization are alike.
		if !a.member || !tried {
			if _, err := v.wire(ctx, cfg, a.Source, set); err != nil {
				return nil, err
			}
			tried = tried || a.member
		}
		sources = append(sources, service.Source{Name: a.name, Every: func() time.Duration { return v.pace.every() }, Deadline: cfg.Serve.Deadline, Made: made, Member: a.member,
			Open: func(ctx context.Context, lease store.Lease) (service.Rounds, error) {
				return v.open(ctx, cfg, a.Source, set, lease)
			}})
		if !cfg.Serve.SkipAudits {
			sources = append(sources, v.audited(cfg, a, made))
		}
	}
	v.accounts.Store(&all)
	return sources, nil
}

// watched is an account that is read by itself.
type watched struct {
	Source
	name string
	// member says that it was found by an organization, and not named.
	member bool
}

// accountsOf are the accounts that the configuration names, with the regions of each, and
// those of the organization.
func accountsOf(cfg config.Config, f Source, org []AWSMember) []watched {
	var out []watched
	roles := f.AssumeRoles
	if len(roles) == 0 {
		for _, a := range cfg.AWS.Accounts {
			out = append(out, watch(cfg, f, a.Role, a.Regions))
		}
		roles = cfg.AWS.AssumeRoles
	}
	if len(out) == 0 {
		if !asksOrganization(cfg, f) {
			out = append(out, watch(cfg, f, "", nil))
		}
		for _, role := range roles {
			out = append(out, watch(cfg, f, role, nil))
		}
	}
	if asksOrganization(cfg, f) {
		out = append(out, members(cfg, f, org, out)...)
	}
	return slices.CompactFunc(out, func(a, b watched) bool { return a.name == b.name })
}

// stamp changes when a file changes that the configuration is read from.
func (rt *Runtime) stamp(cfg config.Config) string {
	path := cmp.Or(rt.ConfigFlag, config.Find(rt.Dir, rt.ConfigDir))
	var out strings.Builder
	note := func(name string) {
		if st, err := os.Stat(name); err == nil {
			fmt.Fprintf(&out, "%s %d %d\n", name, st.Size(), st.ModTime().UnixNano())
		}
	}
	note(rt.Path(path))
	if files, err := rt.YAMLFiles(cfg.Policies); err == nil {
		for _, f := range files {
			note(rt.Path(f))
		}
	}
	return out.String()
}

// watch reads the configuration again when its files or the shared settings change, or when
// it is asked to.
func (v *server) watch(ctx context.Context) {
	t := time.NewTicker(configEvery)
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
		now := v.rt.stamp(v.cfg)
		changed := asked || now != tried
		if shared += configEvery; !changed && shared >= sharedEvery {
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
		v.service.Reloaded(err)
		if err != nil {
			v.log.Error("the configuration is not taken: the one before stays in force", "error", err)
			continue
		}
		v.log.Info("the configuration is read again", "sources", len(sources), "policies", len(v.set.Policies))
		v.service.Set(sources)
	}
}

// follow takes accounts up that came to the organization, and leaves out those that went.
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
	v.service.Set(sources)
}

// governs says whether the shared settings are others than those in force.
func (v *server) governs(ctx context.Context) bool {
	rt := v.rt.For()
	cfg, err := rt.Config()
	if err != nil {
		return false // its file tells when it changes
	}
	cfg, _, err = rt.Governed(ctx, cfg, v.store)
	return err == nil && !reflect.DeepEqual(cfg, v.cfg)
}

// done tells people what a round did.
func (v *server) done(source string, o service.Outcome, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if said := o.Summary(); said != "" {
		plain.Fprintf(v.o.Out, "%s %s: %s\n", v.rt.Now().UTC().Format(time.RFC3339), source, said)
	}
	if err == nil {
		v.log.Debug("round", "source", source, "resources", o.Resources, "verdicts", o.Verdicts)
	}
}

// kindsOf are the kinds that a service reads: those of the policies, and machines.
func kindsOf(set *policy.Set) map[inventory.Kind]bool {
	kinds := set.Kinds()
	if kinds == nil {
		return nil
	}
	kinds = maps.Clone(kinds)
	kinds[inventory.KindInstance] = true
	return kinds
}
