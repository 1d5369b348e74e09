package storm

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// skews are the offsets of host clocks.
var skews = []time.Duration{
	0, 0, 0, 0, 0, 0, 0, 0, 5 * time.Second, 10 * time.Second, -10 * time.Second, -20 * time.Second, 61 * time.Minute,
	100 * time.Minute, -61 * time.Minute, -5 * time.Minute, 5 * time.Hour, 30 * 24 * time.Hour,
}

func (w *world) skew() time.Duration { return skews[w.rng.IntN(len(skews))] }

// play carries out the schedule of the world's seed, and then lets everything settle without
// faults.
func (w *world) play(ctx context.Context) error {
	shared := w.database != nil
	for i, h := range w.hosts {
		if shared {
			h.data = h.dir + "/data"
			if i > 0 {
				h.skew = w.skew()
			}
		} else {
			h.boot = "b0" // one computer that runs several processes
		}
	}
	if !shared { // the first reading of a file's clock is trusted, as documented in docs/costs.md
		w.enforce(ctx, w.hosts[0], ending{})
	}
	for range 8 + w.rng.IntN(7) {
		if err := w.pass(ctx, []time.Duration{0, 1, 3, 5, 8, 12, 16}[w.rng.IntN(7)]*time.Minute); err != nil {
			return err
		}
		if !shared && (w.rng.IntN(6) == 0 || w.hosts[0].skew != 0 && w.rng.IntN(2) == 0) {
			skew := w.skew()
			for _, h := range w.hosts {
				h.skew = skew
			}
		}
		w.weather()
		if err := w.step(ctx); err != nil {
			return err
		}
		w.calm()
	}
	return w.settle(ctx)
}

// weather starts or stops faults at random.
func (w *world) weather() {
	chances := []float64{0, 0.02, 0.05, 0.15}
	http, tcp := chances[w.rng.IntN(len(chances))], chances[w.rng.IntN(3)]/2
	for _, h := range w.hosts {
		h.proxy.Storm(w.rng.Uint64(), http)
	}
	if w.tcp != nil {
		w.tcp.Storm(w.rng.Uint64(), tcp)
	}
	w.mu.Lock()
	w.refusing = w.rng.IntN(15) == 0
	w.mu.Unlock()
}

func (w *world) calm() {
	for _, h := range w.hosts {
		h.proxy.Calm()
	}
	if w.tcp != nil {
		w.tcp.Calm()
	}
	w.mu.Lock()
	w.refusing = false
	w.mu.Unlock()
}

func (w *world) host() *host { return w.hosts[w.rng.IntN(len(w.hosts))] }

// ending draws whether a command is ended early.
func (w *world) ending() ending {
	if w.rng.IntN(4) > 0 {
		return ending{}
	}
	return ending{at: int64(1 + w.rng.IntN(25)), kill: w.rng.IntN(2) == 0}
}

var enforcing = []string{"enforce", "--once", "--enforce", "--policy", "policies.yaml", "-o", "json"}

// enforce makes a pass.
func (w *world) enforce(ctx context.Context, h *host, end ending) result {
	at := w.clock()
	r := w.curfew(ctx, h, end, enforcing...)
	var doc struct {
		BlindSpots []any `json:"blind_spots"`
		Lines      []struct {
			Resource, Result, Why string
		}
	}
	if json.Unmarshal([]byte(r.out), &doc) == nil {
		for _, l := range doc.Lines {
			w.note("    %s %s %s", l.Resource[strings.LastIndex(l.Resource, "/")+1:], l.Result, l.Why)
		}
		if len(doc.BlindSpots) == 0 && h.skew.Abs() <= 20*time.Second && (r.exit == cliDone || r.exit == cliPartial ||
			r.exit == cliDenied) && !strings.Contains(r.errs, "record the round") {
			w.mu.Lock()
			if w.firstOK.IsZero() {
				w.firstOK = at
			}
			w.lastOK = at
			w.mu.Unlock()
		}
	}
	return r
}

// exit codes: a pass has read and charged unless it is cliHeld
const (
	cliDone    = 0
	cliHeld    = 3
	cliDenied  = 4
	cliPartial = 5
)

// step is one act of people or cron.
func (w *world) step(ctx context.Context) error {
	switch n := w.rng.IntN(39); {
	case n < 10:
		w.enforce(ctx, w.host(), w.ending())
	case n < 12:
		w.onAll(func(h *host, end ending) { w.enforce(ctx, h, end) })
	case n < 15:
		files := make([]string, len(w.hosts))
		for i := range files {
			files[i] = fmt.Sprintf("job-%d.yaml", w.rng.IntN(jobs))
		}
		w.onAll(func(h *host, end ending) { w.gate(ctx, h, end, files[slices.Index(w.hosts, h)]) })
	case n < 16:
		return w.endHold(ctx)
	case n < 18:
		return w.extend(ctx)
	case n < 19:
		all := w.things()
		m := all[w.rng.IntN(len(all))]
		if r := w.curfew(ctx, w.host(), ending{}, "keep", m.ref, "--for", "240h", "--reason",
			"storm"); r.exit == cliDone &&
			m.kept == 0 {
			m.kept, m.keptBy = r.number, "command"
		}
	case n < 20:
		return w.tagKeep(ctx)
	case n < 22:
		return w.freeze(ctx)
	case n < 23:
		w.scan(ctx, w.host(), w.ending())
	case n < 26:
		return w.fixWhole(ctx, w.wastes[w.rng.IntN(len(w.wastes))])
	case n < 30 && w.database == nil:
		return w.putBack(ctx)
	case n >= 34 && n < 37:
		return w.stall(ctx)
	case n >= 37:
		return w.meddle(ctx)
	default:
		return w.approve(ctx)
	}
	return nil
}

// fixWhole continues a fix by some steps, with or without an approval in between.
func (w *world) fixWhole(ctx context.Context, x *waste) error {
	for range 1 + w.rng.IntN(3) {
		w.fix(ctx, x)
		if w.rng.IntN(4) > 0 {
			if err := w.approve(ctx); err != nil {
				return err
			}
		}
		if err := w.pass(ctx, time.Duration(w.rng.IntN(20))*time.Minute); err != nil {
			return err
		}
	}
	return nil
}

// onAll runs something on all hosts concurrently.
func (w *world) onAll(do func(*host, ending)) {
	var all sync.WaitGroup
	for _, h := range w.hosts {
		end := w.ending()
		all.Go(func() { do(h, end) })
	}
	all.Wait()
}

// scan scans the account and stores the result.
func (w *world) scan(ctx context.Context, h *host, end ending) {
	r := w.curfew(ctx, h, end, "scan", "-o", "json")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scans = append(w.scans, r.number)
	var doc struct {
		Findings []struct {
			ID, Rule string
			Resource struct{ ID string }
		}
	}
	if json.Unmarshal([]byte(r.out), &doc) != nil || r.exit != cliDone && r.exit != cliPartial {
		return
	}
	h.found = map[string]string{}
	for _, f := range doc.Findings {
		if i := slices.IndexFunc(w.wastes, func(x *waste) bool {
			return x.rule == f.Rule && x.id == f.Resource.ID
		}); i >= 0 {
			h.found[f.Rule] = f.ID
		}
	}
}

// fix continues a fix by one step, on one host or on all at once.
func (w *world) fix(ctx context.Context, x *waste) {
	step := func(h *host, end ending) {
		if h.found[x.rule] == "" {
			w.scan(ctx, h, ending{})
		}
		if id := h.found[x.rule]; id != "" {
			r := w.curfew(ctx, h, end, "fix", id, "--enforce")
			w.note("    %s", strings.Join(strings.Fields(r.out), " "))
		}
	}
	if w.rng.IntN(4) == 0 {
		w.onAll(step)
		return
	}
	step(w.host(), w.ending())
}

// approve lets a person decide on a request, usually another one than the requester.
func (w *world) approve(ctx context.Context) error {
	db, err := w.open()
	if err != nil {
		return err
	}
	defer db.Close()
	var id string // the newest
	if db.QueryRowContext(ctx, "SELECT id FROM requests WHERE state = 'pending' ORDER BY asked_at DESC LIMIT 1").Scan(
		&id) != nil {
		return nil // there is none, or no state yet
	}
	switch w.rng.IntN(8) {
	case 0:
		if r := w.curfew(ctx, w.host(), ending{}, "approve", id, "--proof", "none"); r.exit == cliDone {
			return fmt.Errorf("#%d: who asked for %s approved it", r.number, id)
		}
	case 1:
		w.as(ctx, "bo", w.host(), w.ending(), "deny", id, "--reason", "storm")
	default:
		r := w.as(ctx, "bo", w.host(), w.ending(), "approve", id, "--proof", "none")
		if w.approved[id] == 0 { // it may have taken effect, regardless of its output
			w.approved[id] = r.number
		}
		if w.waits != nil {
			w.waits()
			w.waits = nil
		}
	}
	return nil
}

// extend requests more money and time for running work.
func (w *world) extend(ctx context.Context) error {
	id, err := w.anyHold(ctx)
	if id == "" || err != nil {
		return err
	}
	amount, hours := fmt.Sprint(6+w.rng.IntN(20)), fmt.Sprintf("%dh", 1+w.rng.IntN(40))
	h := w.host()
	more := func(end ending) result {
		return w.curfew(ctx, h, end, "budget", "extend", id, "--amount", amount, "--for", hours)
	}
	if r := more(w.ending()); r.exit == cliHeld {
		w.waits = func() { more(ending{}) }
	}
	return nil
}

// anyHold returns a hold of running work, or empty.
func (w *world) anyHold(ctx context.Context) (string, error) {
	db, err := w.open()
	if err != nil {
		return "", err
	}
	defer db.Close()
	var id string
	if db.QueryRowContext(ctx, "SELECT id FROM holds WHERE state = 'held' ORDER BY id LIMIT 1").Scan(&id) != nil {
		return "", nil //nolint:nilerr // there is none, or no state yet
	}
	return id, nil
}

func (w *world) gate(ctx context.Context, h *host, end ending, file string) {
	r := w.curfew(ctx, h, end, "gate", file, "-o", "json")
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case r.exit == cliDone && !r.killed:
		w.allowed++
	case r.exit == cliHeld:
		w.waits = func() { w.gate(ctx, h, ending{}, file) }
	}
}

// tagKeep exempts a machine with a tag, as its owner does in the provider's console.
func (w *world) tagKeep(ctx context.Context) error {
	all := slices.DeleteFunc(w.things(), func(x *thing) bool { return x.name == "logs" })
	m := all[w.rng.IntN(len(all))]
	var err error
	w.memory.change(func() {
		_, err = w.direct.CreateTags(ctx, &ec2.CreateTagsInput{
			Resources: []string{m.id}, Tags: []types.Tag{{Key: aws.String(inventory.TagKeepUntil),
				Value: aws.String(w.began.Add(60 * 24 * time.Hour).Format(time.RFC3339))}}})
	})
	if err == nil && m.kept == 0 {
		m.kept, m.keptBy = w.commands.Load(), "tag"
		w.note("keep by tag of %s", m.id)
	}
	return err
}

// freeze freezes or unfreezes all actions.
func (w *world) freeze(ctx context.Context) error {
	last := len(w.freezes) - 1
	if last >= 0 && w.freezes[last].to == 0 {
		w.freezes[last].to = w.commands.Load() // it may or may not take effect
		w.curfew(ctx, w.host(), ending{}, "unfreeze", "--reason", "storm")
		return nil
	}
	if r := w.curfew(ctx, w.host(), ending{}, "freeze", "--reason", "storm"); r.exit == cliDone {
		w.freezes = append(w.freezes, event{from: r.number})
	}
	return nil
}

// endHold releases or settles a hold.
func (w *world) endHold(ctx context.Context) error {
	id, err := w.anyHold(ctx)
	if id == "" || err != nil {
		return err
	}
	if w.rng.IntN(2) == 0 {
		w.curfew(ctx, w.host(), ending{}, "budget", "release", id)
	} else {
		w.curfew(ctx, w.host(), ending{}, "budget", "settle", id, "--actual", "2.5")
	}
	return nil
}

// settle makes passes without faults on a host whose clock is right, until nothing is left to do.
func (w *world) settle(ctx context.Context) error {
	w.calm()
	if n := len(w.freezes); n > 0 && w.freezes[n-1].to == 0 {
		w.freezes[n-1].to = w.commands.Load()
	}
	for _, h := range w.hosts {
		h.skew = 0
		h.proxy.Forget()
	}
	if err := w.accept(ctx); err != nil {
		return err
	}
	w.curfew(ctx, w.hosts[0], ending{}, "unfreeze", "--reason", "storm")
	for range 4 {
		if err := w.pass(ctx, 9*time.Minute); err != nil {
			return err
		}
		if r := w.enforce(ctx, w.hosts[0], ending{}); r.exit != cliDone && r.exit != cliPartial {
			return fmt.Errorf("a pass in good weather ends with %d: %s", r.exit, r.errs)
		}
	}
	return nil
}

// stall stops the process of a pass between two calls, lets time pass and another process make a
// pass, and resumes the first one.
func (w *world) stall(ctx context.Context) error {
	h := w.host()
	other := w.hosts[(slices.Index(w.hosts, h)+1)%len(w.hosts)]
	at, d := int64(1+w.rng.IntN(25)), []time.Duration{
		30 * time.Second, 3 * time.Minute, 12 * time.Minute,
	}[w.rng.IntN(3)]
	var failed error
	w.curfew(ctx, h, ending{at: at, stall: func() time.Duration {
		w.base.stalled.Add(1)
		w.note("  %s is stopped for %s", h.name, d)
		if failed = w.pass(ctx, d); failed == nil {
			w.enforce(ctx, other, ending{})
		}
		w.note("  %s goes on", h.name)
		return d
	}}, enforcing...)
	return failed
}

// meddle lets another user of the machine try to access the state.
func (w *world) meddle(ctx context.Context) error {
	if w.base.program == "" || w.database != nil { // not root, or the state is not on this machine
		return nil
	}
	h := w.host()
	for _, args := range [][]string{
		enforcing, {"unfreeze", "--reason", "storm"}, {"state", "accept", "--reason", "storm"}, {"approvals"},
	} {
		r := w.as(ctx, "ana", h, ending{stranger: true}, args...)
		if r.exit == cliDone || r.exit == cliPartial {
			return fmt.Errorf("#%d another user carries out %v: %s%s", r.number, args, r.out, r.errs)
		}
	}
	w.base.meddled.Add(1)
	return nil
}

// putBack copies the state, restores an earlier copy, or lets an operator accept it.
func (w *world) putBack(ctx context.Context) error {
	last := len(w.olds) - 1
	data := filepath.Join(w.dir, "data")
	switch {
	case last >= 0 && w.olds[last].to == 0:
		return w.accept(ctx)
	case w.backup == "":
		w.backup = filepath.Join(w.dir, "backup")
		w.note("the state is copied")
		return copied(data, w.backup)
	}
	was, err := w.generation(ctx, data)
	if err != nil {
		return err
	}
	is, err := w.generation(ctx, w.backup)
	if err != nil {
		return err
	}
	if err := copied(w.backup, data); err != nil {
		return err
	}
	w.note("the state is put back from generation %d to %d", was, is)
	if w.restored++; is != was {
		w.olds = append(w.olds, event{from: w.commands.Load()})
	}
	w.backup = ""
	return nil
}

// accept lets an operator accept an older state.
func (w *world) accept(ctx context.Context) error {
	last := len(w.olds) - 1
	if last < 0 || w.olds[last].to != 0 {
		return nil
	}
	r := w.curfew(ctx, w.hosts[0], ending{}, "state", "accept", "--reason", "storm")
	if r.exit != cliDone {
		return fmt.Errorf("the older state is not accepted: exit %d: %s", r.exit, r.errs)
	}
	w.olds[last].to = r.number
	return nil
}

// generation returns the generation of a state.
func (w *world) generation(ctx context.Context, dir string) (n int64, err error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "curfew.db")+"?mode=ro")
	if err != nil {
		return 0, err
	}
	defer db.Close()
	return n, db.QueryRowContext(ctx, "SELECT generation FROM audit_head").Scan(&n)
}

// copied replaces a folder by a copy of another one.
func copied(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return errors.Join(err, os.Chmod(path, 0o600))
		}
		return os.Chmod(path, 0o700)
	})
}
