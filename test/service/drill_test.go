package service_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/test/postgres"
	"github.com/curfew-dev/curfew/test/wire"
)

// letter is a message that the channel accepted.
type letter struct{ to, text string }

func newLetter(body []byte) letter {
	form, _ := url.ParseQuery(string(body)) // other bodies have no values
	return letter{form.Get("channel"), form.Get("text")}
}

// letters counts the messages about a machine to its owner, by kind: warnings, completed actions,
// and failures.
func (c *cloud) letters(id string) (warnings, acted, alarms int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.told {
		subject, _, _ := strings.Cut(l.text, "\n")
		switch {
		case l.to != "U0ANA" || !strings.Contains(subject, id):
		case strings.Contains(subject, "needs a look"): // it may end on "was stopped", as what was done does
			alarms++
		case strings.Contains(subject, "will be stopped"):
			warnings++
		case strings.HasSuffix(subject, "was stopped"):
			acted++
		default:
			alarms++
		}
	}
	return warnings, acted, alarms
}

// drill is one fault of docs/on-call.md.
type drill struct {
	name string
	// inject causes the fault, and mend ends it. Either may be nil if the commands do it.
	inject, mend func(d *drilled)
	// metric is positive on a process during the fault, or 0 if zero is set. It is a name with
	// labels, sorted by name.
	metric string
	zero   bool
	// log occurs in the log of a process, and trouble is a kind that doctor state lists, or empty
	// if the fault affects neither the state nor its service.
	log, trouble string
	// during runs once the fault shows, before the first and between two commands.
	during func(d *drilled, command int)
	// fails is a command that must fail with a message that contains says.
	fails, says string
}

// drilled is a service during a drill.
type drilled struct {
	*service
	host    *host
	account string
	// machine is the newest idle machine.
	machine *machine
	// frozen lists periods in which nothing may be called.
	frozen [][2]time.Time
}

func newDrilled(c *cloud, s *service) *drilled {
	d := &drilled{service: s, host: newHost(s), account: c.accounts()[0]}
	d.host.folder = s.t.TempDir() // a mistake in the service's configuration does not affect the operator's
	return d
}

// idle makes a machine idle.
func (d *drilled) idle() *machine {
	d.machine = d.cloud.launch(d.account, "idle")
	return d.machine
}

// command runs a documented command, which calls the newest process of the service.
func (d *drilled) command(line string) (code int, output string) {
	d.t.Helper()
	if strings.Contains(line, "ITEM") {
		line = strings.ReplaceAll(line, "ITEM", d.item(d.machine))
	}
	running := d.processes()
	return d.host.run(line, "CURFEW_SERVER="+running[len(running)-1].url(d.t), "CURFEW_SERVER_TIMEOUT=20s")
}

// item returns the newest item of a machine.
func (d *drilled) item(m *machine) (id string) {
	d.t.Helper()
	db := d.open()
	defer db.Close()
	err := db.QueryRowContext(d.t.Context(), "SELECT item FROM audit WHERE item <> '' AND resource LIKE '%/"+m.id+
		"' ORDER BY id DESC LIMIT 1").Scan(&id)
	if err != nil {
		d.t.Fatal(err)
	}
	return id
}

// samples returns a metric of each process that exports it.
func (d *drilled) samples(name string) (out []float64) {
	for _, p := range d.processes() {
		if v, err := metric(d.t.Context(), p.url(d.t), name); err == nil {
			out = append(out, v)
		}
	}
	return out
}

// shows reports whether the metric of a fault shows it.
func (f *drill) shows(d *drilled) bool {
	return slices.ContainsFunc(d.samples(f.metric), func(v float64) bool { return (v > 0) != f.zero })
}

// listed reports whether doctor state lists the trouble of a fault in any process.
func (f *drill) listed(d *drilled) bool {
	for _, p := range d.processes() {
		req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, p.url(d.t)+"/api/v1/doctor/state", nil)
		if err != nil {
			return false
		}
		token, err := os.ReadFile(d.ownerToken())
		if err != nil {
			return false
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		var doc struct {
			Troubles []struct{ What, Why, Next string }
		}
		err = json.NewDecoder(resp.Body).Decode(&doc)
		_ = resp.Body.Close()
		if err != nil {
			continue
		}
		for _, x := range doc.Troubles {
			if x.What == f.trouble && x.Why != "" && x.Next != "" {
				return true
			}
		}
	}
	return false
}

// ownerToken returns the file with the owner token of the service.
func (d *drilled) ownerToken() string {
	if d.state[0] == "--data-dir" {
		return filepath.Join(d.state[1], "owner-token")
	}
	return filepath.Join(d.dir, "curfew", "owner-token")
}

// sections returns the commands of docs/on-call.md by drill.
func sections(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/on-call.md")
	if err != nil {
		t.Fatal(err)
	}
	out, found := map[string][]string{}, 0
	for comment, blocks := range commandsOf(t, "on-call.md") {
		if name, ok := strings.CutPrefix(comment, "drill: "); ok {
			found += len(blocks)
			out[name] = strings.Split(strings.TrimSpace(strings.Join(blocks, "")), "\n")
		}
	}
	if shown := strings.Count(string(text), "```sh"); found == 0 || found != shown {
		t.Fatalf("%d blocks of commands, %d of them in the drill", shown, found)
	}
	return out
}

// run carries out a drill: the fault, its signs, the documented commands, and its end.
func (d *drilled) run(f drill, commands []string) {
	t := d.t
	t.Helper()
	t.Logf("--- %s", f.name)
	began := time.Now()
	if f.inject != nil {
		f.inject(d)
	}
	seen := func() {
		if f.metric != "" {
			wait(t, f.name+": "+f.metric, 3*time.Minute, func() bool { return f.shows(d) })
		}
		if f.trouble != "" {
			wait(t, f.name+": doctor state lists "+f.trouble, 3*time.Minute, func() bool { return f.listed(d) })
		}
		if f.log != "" {
			wait(t, f.name+": the log says "+f.log, time.Minute, func() bool {
				return slices.ContainsFunc(d.everyProcess(), func(p *process) bool {
					return strings.Contains(p.log.String(), f.log)
				})
			})
		}
	}
	if f.inject != nil {
		seen()
	}
	for i, line := range commands {
		code, output := d.command(line)
		doctor := strings.Contains(line, "doctor state") && code == 5
		if failed := f.fails != "" && strings.Contains(line, f.fails); failed != (code != 0 && !doctor) || failed &&
			!strings.Contains(output, f.says) {
			t.Errorf("%s: %s: exit %d\n%s", f.name, line, code, output)
		}
		if i == 0 && f.inject == nil {
			seen()
		}
		if f.during != nil {
			f.during(d, i)
		}
	}
	if f.mend != nil {
		f.mend(d)
	}
	if f.metric != "" && !strings.Contains(f.metric, "_total") {
		wait(t, f.name+" is over: "+f.metric, 4*time.Minute, func() bool { return !f.shows(d) })
	}
	if f.trouble != "" {
		wait(t, f.name+" is over: doctor state", 4*time.Minute, func() bool { return !f.listed(d) })
	}
	t.Logf("--- %s: %s", f.name, time.Since(began).Round(time.Second))
}

// everyProcess returns all processes, including ended ones.
func (d *drilled) everyProcess() []*process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.ever)
}

// rounds waits for a number of rounds of every account.
func (d *drilled) rounds(n int) {
	for range n {
		d.everywhere(time.Now(), 2*time.Minute)
	}
}

// stops waits until a machine is stopped and that is confirmed.
func (d *drilled) stops(m *machine) {
	d.t.Helper()
	wait(d.t, m.id+" is stopped", 4*time.Minute, func() bool {
		return d.cloud.state(m.id) != "running" && d.audit()[m.id]["confirmed"] > 0
	})
}

// drills returns the faults of a service of two processes on PostgreSQL.
func drills(server *postgres.Server) []drill {
	var repair func()
	spoil := func(f wire.Fault) func(d *drilled) {
		return func(d *drilled) {
			f.Account = d.account
			repair = d.cloud.wire.Inject(f)
		}
	}
	return []drill{{
		name: "frozen", metric: "curfew_frozen", log: "frozen", trouble: "frozen",
		during: func(d *drilled, command int) {
			if command != 0 {
				return
			}
			began := time.Now()
			d.idle()
			d.rounds(3)
			d.frozen = append(d.frozen, [2]time.Time{began, time.Now()})
		},
		mend: func(d *drilled) { d.stops(d.machine) },
	}, {
		name:   "the wrong machine was stopped",
		inject: func(d *drilled) { d.stops(d.idle()) },
		mend: func(d *drilled) {
			wait(d.t, "it runs again", 2*time.Minute, func() bool { return d.cloud.state(d.machine.id) == "running" })
			d.cloud.mu.Lock()
			d.machine.does = "kept"
			d.cloud.mu.Unlock()
			d.rounds(3)
			if state := d.cloud.state(d.machine.id); state != "running" {
				d.t.Errorf("it is %s three rounds after it was brought back", state)
			}
		},
	}, {
		name: "stops are denied", metric: `curfew_actions_failed_total{verb="stop"}`, log: "alarm", trouble: "alarm",
		inject: func(d *drilled) {
			spoil(wire.Fault{Kind: wire.AccessDenied, Operation: "StopInstances"})(d)
			d.idle()
		},
		during: func(d *drilled, command int) {
			if command == 0 {
				d.rounds(3) // it fails again
			}
		},
		mend: func(d *drilled) {
			repair()
			d.stops(d.machine)
			if _, _, alarms := d.cloud.letters(d.machine.id); alarms != 1 {
				d.t.Errorf("the owner was told %d times that its stop failed", alarms)
			}
		},
	}, {
		name: "the channel refuses messages", metric: "curfew_notices_owed",
		log: "notification failed", trouble: "notice",
		inject: func(d *drilled) {
			m := d.idle()
			d.cloud.deafen(m.id)
			d.stops(m)
		},
		during: func(d *drilled, command int) {
			if command == 0 {
				d.idle() // no one can be warned of it
				wait(d.t, "no one is warned", 2*time.Minute, func() bool {
					return d.audit()[d.machine.id]["unwarned"] > 0
				})
			}
		},
		mend: func(d *drilled) {
			d.cloud.deafen("")
			d.stops(d.machine)
		},
	}, {
		name: "a fuse has blown", metric: "curfew_fuses_blown", log: "fuse", trouble: "fuse",
		inject: func(d *drilled) {
			d.command(`curfew freeze --reason "the drill"`)
			for range 3 * workers { // the policy also selects machines that it stopped before
				d.idle()
			}
			d.command(`curfew unfreeze --reason "the drill"`)
		},
		mend: func(d *drilled) { d.stopped(4 * time.Minute) },
	}, {
		name: "an account is denied", log: "denied", trouble: "source",
		inject: func(d *drilled) { spoil(wire.Fault{Kind: wire.AccessDenied})(d) },
		during: func(d *drilled, command int) {
			late := d.samples(`curfew_source_late{source="aws/` + d.account + `:role/curfew"}`)
			if command == 0 && !slices.Contains(late, 1) {
				d.t.Errorf("curfew_source_late is %v", late)
			}
		},
		mend: func(d *drilled) {
			repair()
			d.rounds(1)
		},
	}, {
		name: "the configuration has mistakes", metric: "curfew_config_valid", zero: true, log: "bogus",
		trouble: "configuration",
		inject:  func(d *drilled) { d.configure("bogus: 1\n") },
		mend:    func(d *drilled) { d.configure("") },
	}, {
		name: "the database is gone", metric: "curfew_ready", zero: true, log: "database", fails: "curfew freeze",
		says: "end every `curfew serve`",
		inject: func(d *drilled) {
			if err := server.Stop(); err != nil {
				d.t.Fatal(err)
			}
			d.frozen = append(d.frozen, [2]time.Time{time.Now().Add(time.Second), {}})
			d.idle()
		},
		mend: func(d *drilled) {
			d.frozen[len(d.frozen)-1][1] = time.Now()
			if err := server.Start(); err != nil {
				d.t.Fatal(err)
			}
			d.stops(d.machine)
		},
	}, {
		name: "a process is killed", log: "taken over",
		inject: func(d *drilled) {
			var once sync.Once
			died := make(chan bool)
			d.cloud.set(func(number int, operation string, before bool) {
				if operation == "StopInstances" && !before && len(d.cloud.calls()) > 0 &&
					slices.ContainsFunc(d.cloud.calls(), func(e ended) bool { return e.id == d.machine.id }) {
					once.Do(func() {
						for _, p := range d.processes() {
							if p.number == number {
								d.kill(p)
							}
						}
						close(died)
					})
				}
			})
			d.idle()
			<-died
			d.cloud.set(nil)
			d.stops(d.machine)
		},
		mend: func(d *drilled) { d.start("") },
	}, {
		name: "a token expires", metric: "curfew_token_expiry_timestamp_seconds", trouble: "token",
		inject: func(d *drilled) {
			d.command("curfew token create probe --role viewer --for 12h")
			db := d.open()
			defer db.Close()
			// The token must be old, because short-lived tokens are meant to expire.
			if _, err := db.ExecContext(d.t.Context(),
				"UPDATE tokens SET created_at = created_at - 100 * (expires_at - created_at)"); err != nil {
				d.t.Fatal(err)
			}
		},
		mend: func(d *drilled) {
			db := d.open()
			defer db.Close()
			if _, err := db.ExecContext(d.t.Context(), "DELETE FROM tokens"); err != nil {
				d.t.Fatal(err)
			}
		},
	}}
}

// deafen makes the channel refuse messages after it has accepted a warning of a machine; "" makes
// it accept them again.
func (c *cloud) deafen(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf, c.deafAfter = false, id
}

// configure appends lines to the configuration, or removes them.
func (s *service) configure(more string) {
	s.t.Helper()
	name := filepath.Join(s.dir, "curfew.yaml")
	text, err := os.ReadFile(name)
	if err != nil {
		s.t.Fatal(err)
	}
	kept, _, _ := strings.Cut(string(text), "bogus")
	if err := os.WriteFile(name, []byte(kept+more), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// TestDrill injects each fault of docs/on-call.md once into services that run, and runs the
// commands of its section meanwhile. Each fault shows in metrics, log and doctor state; nothing
// is acted on while all is frozen, nothing is done twice, and the owner of each machine is told
// once of what became of it. At a round each two seconds, where a minute is the default, a minute
// is half an hour of service.
func TestDrill(t *testing.T) {
	onlySlow(t)
	commands := sections(t)
	var run []string
	t.Run("PostgreSQL", func(t *testing.T) {
		c := newCloud(t, 2)
		server, at := postgres.Own(t)
		d := newDrilled(c, newService(t, c, time.Second, 4*time.Second, "--database-url", at))
		began := time.Now()
		for range 2 {
			d.start("")
		}
		d.calm(began)
		for _, f := range drills(server) {
			d.run(f, commands[f.name])
			run = append(run, f.name)
		}
		d.hold()
	})
	t.Run("SQLite", func(t *testing.T) {
		c := newCloud(t, 1)
		d := newDrilled(c, newService(t, c, time.Second, 4*time.Second, "--data-dir", private(t)))
		began := time.Now()
		p := d.start("")
		d.calm(began)
		d.stops(d.idle())
		f := drill{
			name: "an older state was put back", metric: `curfew_problem{what="state"}`,
			log: "older", trouble: "state",
			inject: func(d *drilled) {
				d.kill(p)
				backup := filepath.Join(t.TempDir(), "backup")
				d.copyState(d.state[1], backup)
				p = d.start("")
				d.rounds(1)
				m := d.idle()
				d.stops(m)
				// Notices in a lost state are lost with it.
				wait(t, "its owner is told", time.Minute, func() bool {
					_, acted, _ := d.cloud.letters(m.id)
					return acted == 1
				})
				d.kill(p)
				if err := os.RemoveAll(d.state[1]); err != nil {
					t.Fatal(err)
				}
				d.copyState(backup, d.state[1])
				p = d.start("")
				d.frozen = append(d.frozen, [2]time.Time{time.Now(), {}})
				d.rounds(1)
				d.idle()
				d.rounds(2)
			},
			during: func(d *drilled, command int) {
				if command == 0 {
					d.frozen[len(d.frozen)-1][1] = time.Now()
				}
			},
			mend: func(d *drilled) { d.stops(d.machine) },
		}
		d.run(f, commands[f.name])
		run = append(run, f.name)
		d.hold()
	})
	for name := range commands {
		if !slices.Contains(run, name) && !t.Failed() {
			t.Errorf("no drill runs the commands of %q", name)
		}
	}
}

// copyState copies the folder of a state, which only its user may read.
func (d *drilled) copyState(from, to string) {
	d.t.Helper()
	if out, err := exec.CommandContext(d.t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		d.t.Fatalf("%v: %s", err, out)
	}
}

// hold checks the end of a drill.
func (d *drilled) hold() {
	t := d.t
	t.Helper()
	calls := map[string]int{}
	for _, e := range d.cloud.calls() {
		if e.code == http.StatusOK || e.code == 0 {
			calls[e.id]++
		}
		for _, span := range d.frozen {
			if e.at.After(span[0]) && (span[1].IsZero() || e.at.Before(span[1])) {
				t.Errorf("%s was called at %s, while nothing may be", e.id, e.at.Format(time.TimeOnly))
			}
		}
	}
	wait(t, "no notice is owed", 5*time.Minute, func() bool {
		owed := d.samples("curfew_notices_owed")
		return len(owed) > 0 && slices.Max(owed) == 0
	})
	for _, m := range d.cloud.machines() {
		warnings, acted, alarms := d.cloud.letters(m.id)
		said := fmt.Sprintf("%s (%s): %d calls, %d warnings, %d notices, %d alarms", m.id,
			m.does, calls[m.id], warnings,
			acted, alarms)
		switch m.does {
		case "idle", "kept":
			if calls[m.id] != 1 || warnings < 1 || acted != 1 {
				t.Error(said)
			}
		default:
			if calls[m.id]+warnings+acted+alarms != 0 {
				t.Error(said)
			}
		}
	}
}
