package local

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// CloudName is the provider name of this machine, Site its site in the inventory.
const (
	CloudName = "local"
	Site      = "local"
)

// ProviderOptions configure this machine as a provider.
type ProviderOptions struct {
	// Dir is the folder of the machines of sessions; it is created.
	Dir string
	// Sessions is the folder for files of sessions that run as other users; it is created. Those
	// users traverse it, so its parents must be accessible.
	Sessions string
	// Limits bound a session.
	Limits LimitOptions
	// Name is the name of this machine in Machines; empty means the host name.
	Name string
	// Machines and Rates price it like on-premises machines.
	Machines Machines
	Rates    Rates
	Tags     inventory.TagMapping
	// Prices knows alternative GPU names; nil uses names unchanged.
	Prices *price.Book
	// GPUs are used if Hardware finds none; nil Hardware is nvidia-smi.
	GPUs     []ConfiguredGPU
	Hardware Hardware
	// Agent is the agent's command line, to which the path of its configuration is appended.
	Agent []string
	// Helper is the command line that runs [Helper]; nil is this program with the argument "cage".
	Helper []string
	// Now is the clock; nil is the machine's.
	Now func() time.Time
	// Log records each step of launches and ends at debug level; nil discards it.
	Log *slog.Logger
}

// Provider runs sessions on this machine: each machine of a session is a set of processes with a
// folder that describes it. It is safe for concurrent use by any number of processes.
type Provider struct {
	options ProviderOptions
	rates   tariff
	// configured is the entry for this machine in Machines; nil if there is none.
	configured *Machine
	users      userCache
}

var (
	_ session.Launcher      = (*Provider)(nil)
	_ session.FilePreserver = (*Provider)(nil)
)

// NewProvider returns this machine as a provider.
func NewProvider(o ProviderOptions) (*Provider, error) {
	if o.Name == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("read the name of this machine: %w", err)
		}
		o.Name = name
	}
	if !namePattern.MatchString(o.Name) {
		return nil, &FieldError{
			Field: ".name", Message: fmt.Sprintf("%q is not a host name: letters, digits, '.', '_' and '-'", o.Name),
		}
	}
	if err := ValidateGPUs(o.GPUs); err != nil {
		return nil, fmt.Errorf("gpus%w", err)
	}
	if err := o.Machines.Validate(o.Rates); err != nil {
		return nil, fmt.Errorf("machines%w", err)
	}
	rates, err := newTariff(o.Prices, o.Rates)
	if err != nil {
		return nil, err
	}
	if o.Hardware == nil {
		o.Hardware = SMI{}
	}
	if o.Helper == nil {
		o.Helper = selfCommand
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	// Agents and watchers run in the root folder, so that they keep no other folder busy.
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	if o.Sessions != "" {
		if o.Sessions, err = filepath.Abs(o.Sessions); err != nil {
			return nil, err
		}
	}
	p := &Provider{options: o, rates: rates}
	for _, m := range o.Machines {
		if slices.Contains(m.hostNames(), o.Name) {
			p.configured = &m
		}
	}
	return p, nil
}

// Account returns the account of session machines.
func (p *Provider) Account() string { return p.options.Name }

func (p *Provider) machinesDir() string { return filepath.Join(p.options.Dir, "machines") }
func (p *Provider) endedDir() string    { return filepath.Join(p.options.Dir, "ended") }

// Pools implements session.Launcher. This machine is the only pool.
func (p *Provider) Pools(ctx context.Context, s *spec.Spec) ([]session.Pool, error) {
	_, pool, err := p.fits(ctx, s)
	if err != nil {
		return nil, err
	}
	return []session.Pool{pool}, nil
}

// fits returns the share of this machine for each node of a specification, or ErrUnsupported if it
// is too small.
func (p *Provider) fits(ctx context.Context, s *spec.Spec) (size, session.Pool, error) {
	never := func(format string, args ...any) (size, session.Pool, error) {
		return size{}, session.Pool{}, fmt.Errorf("%s: %s: %w", p.options.Name, fmt.Sprintf(format, args...),
			session.ErrUnsupported)
	}
	r := s.Resources
	nodes := max(r.Nodes, 1)
	switch {
	case s.Capacity == spec.Spot:
		return never("this machine is not sold as spot capacity")
	case r.InstanceType != "" && r.InstanceType != CloudName:
		return never("it is no %s; name GPUs or CPUs", r.InstanceType)
	}
	cpus, memory := p.capacity()
	var of size
	if r.GPUs > 0 {
		all, err := p.gpus(ctx)
		if err != nil {
			return size{}, session.Pool{}, err
		}
		have := p.gpusOfModel(all, r.GPU)
		if len(have) < r.GPUs*nodes {
			return never("asked for %s of %s, and it has %d (%s, %s of memory, %s)",
				plain.Count(r.GPUs*nodes, "GPU"), r.GPU,
				len(have),
				plain.Count(cpus, "CPU"), plain.Size(memory<<20), describeModels(all))
		}
		// CPUs and memory are divided in proportion to the GPUs.
		n, of64 := int64(r.GPUs), int64(len(all))
		of = size{
			GPU: bookName(p.options.Prices, r.GPU), GPUs: r.GPUs, MilliCPUs: cpus * 1000 * n / of64,
			MemoryMiB: memory * n / of64,
		}
	} else {
		n := int64(r.CPUs)
		if n > cpus {
			return never("%d CPUs are asked for and it has %d", n, cpus)
		}
		n = cmp.Or(n, cpus)
		of = size{MilliCPUs: n * 1000, MemoryMiB: memory * n / cpus}
	}
	pool := session.Pool{Type: of.typeName(), Zone: p.options.Name}
	if m := p.rates.meter(CloudName, of.resource()); m.UnpricedReason == "" {
		pool.Rate = &m.Price.Rate
	}
	return of, pool, nil
}

// typeName returns a substitute for a machine type: "1xL4", "2xCPU".
func (s size) typeName() string {
	if s.GPUs > 0 {
		return strconv.Itoa(s.GPUs) + "x" + s.GPU
	}
	return strconv.FormatInt(s.MilliCPUs/1000, 10) + "xCPU"
}

// capacity returns the CPUs and memory (MiB) of this machine: as configured, else as measured;
// memory 0 if unknown.
func (p *Provider) capacity() (cpus, memoryMiB int64) {
	cpus, memoryMiB = int64(runtime.NumCPU()), totalMemory()
	if p.configured != nil {
		cpus = cmp.Or(p.configured.VCPUs, cpus)
		memoryMiB = cmp.Or(p.configured.MemoryGiB*1024, memoryMiB)
	}
	return cpus, memoryMiB
}

// totalMemory returns the memory of this machine in MiB; 0 if unknown.
func totalMemory() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
			if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				return kib / 1024
			}
		}
	}
	return 0
}

// lock excludes other launches and ends, and removes leftovers of processes that crashed while
// holding it.
func (p *Provider) lock(ctx context.Context) (unlock func(), err error) {
	for _, dir := range []string{p.machinesDir(), p.endedDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	var f *os.File
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		var busy bool
		if f, busy, err = lockedFile(filepath.Join(p.options.Dir, "lock")); !busy {
			break
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another launch on this machine: %w", ctx.Err())
		case <-time.After(pause):
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock the machines of this computer: %w", err)
	}
	unlock = func() { _ = f.Close() }
	for _, dir := range []string{p.machinesDir(), p.endedDir()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			unlock()
			return nil, err
		}
		for _, e := range entries {
			old := strings.HasPrefix(e.Name(), unfinishedPrefix)
			if info, err := e.Info(); dir == p.endedDir() && err == nil &&
				p.options.Now().Sub(info.ModTime()) > tokenMemory {
				old = true
			}
			if old && ctx.Err() == nil { // failing removals must not block launches and ends
				if err := removeTree(ctx, filepath.Join(dir, e.Name()), nil); err != nil {
					p.options.Log.WarnContext(ctx, "an old folder is left",
						slog.String("folder", filepath.Join(dir, e.Name())),
						slog.String("why", err.Error()))
				}
			}
		}
	}
	return unlock, nil
}

// requestHash returns a hash of a launch request. It omits the lease and configured times, which
// may change between repetitions.
func requestHash(l session.Launch) (string, error) {
	h := l.Host
	h.LeaseUntil, h.SaveInterval, h.IdleTimeout, h.Grace, h.SaveLimit, h.EndTimeout, h.Node, h.GPUs = time.Time{}, 0,
		0,
		0, 0, 0, 0, nil
	request := map[string]any{
		"session": l.Session.ID, "nodes": l.Nodes, "type": l.Pool.Type, "zone": l.Pool.Zone, "spec": l.Spec.Hash(),
		"host": h,
	}
	if l.FirstNode > 0 {
		request["first"] = l.FirstNode
	}
	b, err := json.Marshal(request)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), err
}

// machineID returns the id of a node's machine, a function of the token.
func machineID(installation, token string, node int) string {
	sum := sha256.Sum256([]byte(installation + "\x00" + token))
	return "m-" + hex.EncodeToString(sum[:8]) + "-" + strconv.Itoa(node)
}

// Launch implements session.Launcher. Everything is recorded before anything starts, and each
// process waits until its PID is recorded, so that a launch with the same token continues after any
// crash.
func (p *Provider) Launch(ctx context.Context, l session.Launch) ([]session.Machine, error) {
	installation := l.Tags[inventory.TagInstallation]
	switch {
	case l.Token == "" || l.Session.ID == "" || installation == "":
		return nil, errors.New("launch on this machine: it needs a token, a session and the tag " +
			inventory.TagInstallation)
	case l.Nodes < 1 || l.FirstNode < 0 || l.Spec == nil:
		return nil, fmt.Errorf("launch %d machines: at least 1, with what they are for", l.Nodes)
	case len(p.options.Agent) == 0:
		return nil, errors.New("launch on this machine: no agent is configured")
	}
	hash, err := requestHash(l)
	if err != nil {
		return nil, err
	}
	own, err := p.otherUser(l.Session.RunAs)
	if err != nil {
		return nil, fmt.Errorf("launch %s: %w: %w", l.Session.Name, err, session.ErrUnsupported)
	}
	unlock, err := p.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if old, err := p.endedMachines(installation, l.Token, l.FirstNode, hash); err != nil || old != nil {
		return old, err
	}
	all, err := p.machines()
	if err != nil {
		return nil, err
	}
	mine := slices.DeleteFunc(slices.Clone(all), func(m *machine) bool {
		return m.Installation != installation || m.Token != l.Token
	})
	begun := false
	for _, m := range mine {
		if m.RequestHash != hash {
			return nil, fmt.Errorf("launch %s: %w", l.Session.Name, session.ErrMismatch)
		}
		s, err := m.readState()
		if err != nil {
			return nil, err
		}
		begun = begun || s.Started || s.State != inventory.StatePending
	}
	if len(mine) < l.Nodes && !begun {
		if mine, err = p.recordLaunch(ctx, l, own, installation, hash, all, mine); err != nil {
			return nil, err
		}
	}
	out := make([]session.Machine, 0, len(mine))
	for _, m := range mine {
		state, err := p.start(ctx, m)
		if err != nil {
			return nil, fmt.Errorf("start machine %s: %w", m.ID, err)
		}
		out = append(out, m.sessionMachine(state))
	}
	return out, nil
}

// endedMachines returns the machines of a token that are gone, by the first node of its launch.
func (p *Provider) endedMachines(installation, token string, first int, hash string) ([]session.Machine, error) {
	var old tokenRecord
	there, err := readJSON(filepath.Join(p.endedDir(), machineID(installation, token, first)), &old)
	if err != nil || !there {
		return nil, err
	}
	if old.Asked != hash {
		return nil, fmt.Errorf("launch again: %w", session.ErrMismatch)
	}
	return old.Machines, nil
}

// recordLaunch writes the missing folders of a launch's machines, atomically and all or none.
func (p *Provider) recordLaunch(ctx context.Context, l session.Launch, own *User, installation, hash string, all,
	mine []*machine) (_ []*machine, err error) {
	of, pool, err := p.fits(ctx, l.Spec)
	if err != nil {
		return nil, err
	}
	if !pool.SamePlace(l.Pool) {
		return nil, fmt.Errorf("launch from %s: this machine is %s: %w", l.Pool, pool, session.ErrUnsupported)
	}
	if err := p.hasRoom(of, l.Nodes-len(mine), all); err != nil {
		return nil, err
	}
	found, err := Probe(ctx, p.options.Helper)
	if err != nil {
		return nil, err
	}
	if own != nil && found.Kind != Cgroup2 && found.Kind != Freezer {
		return nil, fmt.Errorf(
			"launch %s as %s: it takes control groups, and they cannot be used here (version 2: %s; "+
				"freezer of version 1: %s): %w", l.Session.Name, own.Name,
			found.Failures[Cgroup2], found.Failures[Freezer], session.ErrUnsupported)
	}
	p.options.Log.DebugContext(ctx, "the kind of cage is chosen", slog.String("kind", string(found.Kind)))
	var hardware, gpus []GPU
	if hardware, err = p.gpus(ctx); err != nil && of.GPUs > 0 {
		return nil, err
	}
	if of.GPUs > 0 {
		if gpus, err = p.availableGPUs(all, p.gpusOfModel(hardware, l.Spec.Resources.GPU)); err != nil {
			return nil, err
		}
	}
	have := map[int]bool{}
	for _, m := range mine {
		have[m.Node] = true
		gpus = slices.DeleteFunc(gpus, func(g GPU) bool { return slices.Contains(m.GPUs, g.ID) })
	}
	if short := of.GPUs*(l.Nodes-len(mine)) - len(gpus); short > 0 {
		return nil, fmt.Errorf("%s: %d more GPUs of %s are needed than are free: %w", p.options.Name, short,
			l.Spec.Resources.GPU,
			session.ErrCapacity)
	}
	var written []*machine
	defer func() {
		if err == nil {
			return
		}
		for _, m := range written {
			err = errors.Join(err, p.removeMachine(ctx, m))
		}
	}()
	now := p.options.Now().UTC()
	for node := l.FirstNode; node < l.FirstNode+l.Nodes; node++ {
		if have[node] {
			continue
		}
		m := &machine{
			record: record{
				ID: machineID(installation, l.Token, node), Installation: installation,
				Session: l.Session.ID, Token: l.Token,
				RequestHash: hash,
				Node:        node, Nodes: l.Nodes, Pool: pool, Tags: l.Tags,
				LeaseUntil: firstTime(l.Session.LeaseUntil, l.Host.LeaseUntil).UTC(), LaunchedAt: now,
				Kind: found.Kind, Size: of, Agent: p.options.Agent, Helper: p.options.Helper,
				EndTimeout: l.Host.EndLimit(),
				Limits:     p.limits(of, own), User: own}}
		for _, g := range gpus[:of.GPUs] {
			m.GPUs = append(m.GPUs, g.ID)
		}
		gpus = gpus[of.GPUs:]
		if len(hardware) > 0 {
			visible := strings.Join(m.GPUs, ",")
			m.VisibleGPUs = &visible
		}
		for _, g := range hardware {
			if g.Device != nil && !slices.Contains(m.GPUs, g.ID) {
				m.Deny = append(m.Deny, *g.Device)
			}
		}
		if err = p.writeMachine(ctx, m, l.Host); err != nil {
			return nil, fmt.Errorf("write down machine %s: %w", m.ID, err)
		}
		written = append(written, m)
		p.options.Log.DebugContext(ctx, "a machine is written down", slog.String("machine", m.ID))
	}
	mine = append(slices.Clone(mine), written...)
	slices.SortFunc(mine, func(a, b *machine) int { return a.Node - b.Node })
	return mine, nil
}

// hasRoom returns ErrCapacity if the CPUs and memory that the machines of sessions have do not leave
// enough for some more: each pays for its share of this machine.
func (p *Provider) hasRoom(of size, count int, all []*machine) error {
	cpus, memory := p.capacity()
	var used size
	for _, m := range all {
		s, err := m.readState()
		if err != nil {
			return err
		}
		if s.State != "" {
			used.MilliCPUs += m.Size.MilliCPUs
			used.MemoryMiB += m.Size.MemoryMiB
		}
	}
	n := int64(count)
	switch {
	case used.MilliCPUs+n*of.MilliCPUs > cpus*1000:
		return fmt.Errorf("%s: %d of its %s are taken by other sessions and jobs, and %d are asked for: %w", p.options.Name,
			used.MilliCPUs/1000, plain.Count(cpus, "CPU"), n*of.MilliCPUs/1000, session.ErrCapacity)
	case memory > 0 && used.MemoryMiB+n*of.MemoryMiB > memory:
		return fmt.Errorf("%s: %s of its %s of memory are taken by other sessions and jobs, and %s are asked for: %w",
			p.options.Name, plain.Size(used.MemoryMiB<<20), plain.Size(memory<<20), plain.Size(n*of.MemoryMiB<<20),
			session.ErrCapacity)
	}
	return nil
}

// firstTime returns the first nonzero time.
func firstTime(times ...time.Time) time.Time {
	for _, t := range times {
		if !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

// availableGPUs returns GPUs that neither a session's machine nor another process uses.
func (p *Provider) availableGPUs(all []*machine, of []GPU) ([]GPU, error) {
	given, ours := map[string]bool{}, map[int]bool{}
	for _, m := range all {
		s, err := m.readState()
		if err != nil {
			return nil, err
		}
		if s.State == "" {
			continue
		}
		for _, id := range m.GPUs {
			given[id] = true
		}
		pids, err := m.processes()
		if err != nil {
			return nil, err
		}
		for _, pid := range pids {
			ours[pid] = true
		}
	}
	return freeGPUs(of, given, ours), nil
}

// writeMachine writes a machine's folder atomically, after that of its session if it belongs to
// another user.
func (p *Provider) writeMachine(ctx context.Context, m *machine, h session.HostConfig) (err error) {
	tmp, err := os.MkdirTemp(p.machinesDir(), unfinishedPrefix+"new-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	m.dir = filepath.Join(p.machinesDir(), m.ID)
	h.Node, h.GPUs, h.WholeMachine = m.Node, m.GPUs, false
	if h.Control == "" {
		h.Control = "file://" + m.path("control")
	}
	m.Control = h.Control
	if h.Round > 0 {
		m.HostNumber = h.HostNumber()
	}
	if m.User != nil {
		if err := p.writeUserFiles(ctx, m, h); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, removeTree(ctx, m.userTree().path(""), m.User))
			}
		}()
	}
	if err := errors.Join(writeJSON(filepath.Join(tmp, recordFile), m.record),
		writeJSON(filepath.Join(tmp, hostFile), h)); err != nil {
		return err
	}
	return os.Rename(tmp, m.dir)
}

// writeUserFiles creates the folder of a machine's files that belong to another user.
func (p *Provider) writeUserFiles(ctx context.Context, m *machine, h session.HostConfig) error {
	base, err := p.sessionsDir()
	if err != nil {
		return fmt.Errorf("launch as %s: %w", m.User.Name, err)
	}
	m.UserDir = base
	b, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		return err
	}
	all := tree{base: base, user: m.User}
	if err := errors.Join(all.mkdir(m.Session), all.mkdir("work-"+m.User.Name)); err != nil {
		return err
	}
	if err := errors.Join(all.below(m.Session).mkdir(controlName), all.below(m.Session).mkdir(m.ID),
		m.userTree().mkdir(HomeDir)); err != nil {
		return err
	}
	return m.userTree().write(ctx, hostFile, b)
}

// removeMachine removes a machine's folder atomically. What cannot be deleted now is deleted later.
func (p *Provider) removeMachine(ctx context.Context, m *machine) error {
	if m.User != nil {
		if err := removeTree(ctx, m.userTree().path(""), m.User); err != nil {
			p.options.Log.WarnContext(ctx, "the files of a session are left",
				slog.String("folder", m.userTree().path("")),
				slog.String("why", err.Error()))
		}
	}
	away := filepath.Join(p.machinesDir(), unfinishedPrefix+"old-"+m.ID)
	if err := removeTree(ctx, away, nil); err != nil {
		return err
	}
	if err := os.Rename(m.dir, away); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := removeTree(ctx, away, nil); err != nil {
		p.options.Log.WarnContext(ctx, "an old folder is left", slog.String("folder", away),
			slog.String("why", err.Error()))
	}
	return nil
}
