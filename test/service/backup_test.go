package service_test

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/test/postgres"
)

// commandsOf returns the command blocks of a documentation page, by the comments above them.
func commandsOf(t *testing.T, page string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, m := range regexp.MustCompile("(?s)<!-- ([^>]*) -->\n```sh\n(.*?)```").FindAllStringSubmatch(string(text),
		-1) {
		out[m[1]] = append(out[m[1]], m[2])
	}
	return out
}

// documented returns a block of commands of docs/backup.md.
func documented(t *testing.T, name string) string {
	t.Helper()
	blocks := commandsOf(t, "backup.md")[name]
	if len(blocks) != 1 {
		t.Fatalf("docs/backup.md has %d blocks of commands for %q", len(blocks), name)
	}
	return blocks[0]
}

// host is the machine of a service, on which an operator runs commands.
type host struct {
	*service
	// programs holds curfew, backups the copies; folder is where commands run.
	programs, backups, folder string
}

func newHost(s *service) *host {
	s.t.Helper()
	h := &host{service: s, programs: s.t.TempDir(), backups: s.t.TempDir(), folder: s.dir}
	// The shell script passes its arguments as an order to this test.
	script := "#!/usr/bin/env python3\nimport json, os, sys\n" +
		"os.environ[" + fmt.Sprintf("%q", childVariable) +
		"] = json.dumps({'Args': sys.argv[1:], 'Dir': os.getcwd()})\n" +
		"os.execv(" + fmt.Sprintf("%q", os.Args[0]) + ", [" + fmt.Sprintf("%q", os.Args[0]) + ", '-test.run=^$'])\n"
	if err := os.WriteFile(filepath.Join(h.programs, "curfew"), []byte(script), 0o700); err != nil {
		s.t.Fatal(err)
	}
	return h
}

// shell runs commands that must succeed, and returns their output.
func (h *host) shell(commands string, env ...string) string {
	h.t.Helper()
	code, out := h.run(commands, env...)
	if code != 0 {
		h.t.Fatalf("%s: exit code %d", commands, code)
	}
	return out
}

// run runs commands with the state of the service, and returns their exit code and output.
func (h *host) run(commands string, env ...string) (code int, output string) {
	h.t.Helper()
	c := exec.CommandContext(h.t.Context(), "sh", "-euc", commands)
	c.Dir = h.folder
	c.Env = append(os.Environ(), "PATH="+h.programs+":"+os.Getenv("PATH"), "HOME="+h.dir, "XDG_DATA_HOME="+h.dir,
		"XDG_STATE_HOME="+filepath.Join(h.dir, "witness"), "SLACK_TOKEN=xoxb-secret-token",
		"AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "BACKUPS="+h.backups)
	if h.state[0] == "--data-dir" {
		c.Env = append(c.Env, "CURFEW_DATA_DIR="+h.state[1])
	} else {
		c.Env = append(c.Env, "CURFEW_DATABASE_URL="+h.state[1])
	}
	c.Env = append(c.Env, env...)
	out, err := c.CombinedOutput()
	h.t.Logf("$ %s\n%s", strings.TrimSpace(commands), tail(string(out)))
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		h.t.Fatalf("%s: %v", commands, err)
	}
	return c.ProcessState.ExitCode(), string(out)
}

// rows returns the rows of a query as text.
func (s *service) rows(query string) (out []string) {
	s.t.Helper()
	db := s.open()
	defer db.Close()
	rows, err := db.QueryContext(s.t.Context(), query)
	if err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		s.t.Fatal(err)
	}
	for rows.Next() {
		values, to := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		if err := rows.Scan(to...); err != nil {
			s.t.Fatal(err)
		}
		var b strings.Builder
		for i, v := range values {
			fmt.Fprintf(&b, "%s=%s ", columns[i],
				cmp.Or(v.String, map[bool]string{true: "''", false: "NULL"}[v.Valid]))
		}
		out = append(out, b.String())
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// one returns a number from a query.
func (s *service) one(query string) (n int64) {
	s.t.Helper()
	db := s.open()
	defer db.Close()
	if err := db.QueryRowContext(s.t.Context(), query).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// governed adds a budget and an approver to the configuration.
const governed = `identity: ana
approvers: {bo: [approver], ana: [approver]}
budgets:
  - {id: speech, team: speech, purpose: training, amount: 5000, period: {from: 2026-01-01, until: 2046-01-01}}
estimate: {regions: [us-east-1]}
`

const runFile = `apiVersion: curfew.job/v1
name: %s
purpose: training
owner: {team: speech, project: asr, user: ana}
resources: {instance_type: g5.xlarge}
regions: [us-east-1]
run: python train.py
max_runtime: %dh
`

// TestBackupIsRestored makes a backup with the commands of docs/backup.md while a service acts,
// charges and writes, loses the state, and restores the backup elsewhere. The restored state equals
// the backed-up one to the nano-dollar, and acts on nothing until it is accepted.
func TestBackupIsRestored(t *testing.T) {
	for _, d := range []struct {
		name  string
		state func(t *testing.T) []string
		// restored returns flags for the restored state, and its name in the commands.
		restored func(t *testing.T) (state []string, name string)
	}{{
		"SQLite", func(t *testing.T) []string { return []string{"--data-dir", private(t)} },
		func(t *testing.T) ([]string, string) {
			dir := filepath.Join(private(t), "restored")
			return []string{"--data-dir", dir}, dir
		},
	}, {
		"PostgreSQL", func(t *testing.T) []string { return []string{"--database-url", postgres.Start(t)} },
		func(t *testing.T) ([]string, string) {
			at := postgres.Start(t)
			return []string{"--database-url", at}, at
		},
	}} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t, 1)
			s := newService(t, c, time.Second, 4*time.Second, d.state(t)...)
			s.configure(governed)
			h := newHost(s)
			for name, hours := range map[string]int{"small": 37, "large": 370, "larger": 410} {
				file := filepath.Join(s.dir, name+".yaml")
				if err := os.WriteFile(file, fmt.Appendf(nil, runFile, name, hours), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			p := s.start("")
			s.calm(began)
			account := c.accounts()[0]
			working := c.machines()
			h.shell(`curfew keep ` + working[0].id + ` --for 9h --reason "a demo"
curfew token create dashboard --role viewer >token
curfew gate small.yaml
curfew gate large.yaml || [ $? = 3 ]`)
			h.shell("CURFEW_IDENTITY=bo curfew approve " + s.request("large"))
			c.launch(account, "idle")
			s.stopped(2 * time.Minute)

			h.shell(documented(t, "backup: "+d.name))

			// Later changes are lost with the state, except for those recorded by its witness.
			h.shell("curfew keep " + working[1].id + ` --for 9h --reason "another demo"
curfew gate larger.yaml || [ $? = 3 ]`)
			lost := c.launch(account, "idle")
			s.stopped(2 * time.Minute)
			s.kill(p)

			original := &service{t: t, state: s.state}
			state, name := d.restored(t)
			h.shell(documented(t, "restore: "+d.name), "RESTORED="+name)
			s.state = state
			s.equals(original)

			c.mu.Lock()
			lost.does = "forgotten"
			c.mu.Unlock()
			began = time.Now()
			s.start("")
			s.everywhere(began, 2*time.Minute)
			waiting := c.launch(account, "idle")
			wait(t, "the state is in quarantine", time.Minute, func() bool { return s.quarantine() != "" })
			for range 3 {
				s.everywhere(time.Now(), 2*time.Minute)
			}
			if state := c.state(waiting.id); state != "running" || len(c.calls()) != 2 {
				t.Errorf("before it is accepted %s is %s, after the calls %+v", waiting.id, state, c.calls())
			}
			said := h.shell(documented(t, "accept"))
			for _, want := range []string{
				"Quarantined since", "Lost: ", "Accepted: ", working[1].id + " is exempt again",
			} {
				if !strings.Contains(said, want) {
					t.Errorf("the commands do not say %q:\n%s", want, said)
				}
			}
			s.stopped(2 * time.Minute)
			calls := map[string]int{}
			for _, e := range c.calls() {
				calls[e.id]++
			}
			for _, m := range c.machines() {
				if want := map[string]int{"idle": 1, "forgotten": 1}[m.does]; calls[m.id] != want {
					t.Errorf("%s (%s) was called %d times; want %d", m.id, m.does, calls[m.id], want)
				}
			}
			if n := s.one("SELECT COUNT(*) FROM keeps"); n != 2 {
				t.Errorf("%d machines are exempt, want 2", n)
			}
		})
	}
}

// request returns the newest request for the approval of a run.
func (s *service) request(run string) (id string) {
	s.t.Helper()
	db := s.open()
	defer db.Close()
	if err := db.QueryRowContext(s.t.Context(), "SELECT id FROM requests WHERE subject LIKE '%"+run+
		"%' ORDER BY asked_at DESC LIMIT 1").Scan(&id); err != nil {
		s.t.Fatal(err)
	}
	return id
}

// equals compares a restored state with the original one, which has changed since then.
func (s *service) equals(original *service) {
	t := s.t
	t.Helper()
	audited, posted := s.one("SELECT entry FROM audit_head"), s.one("SELECT entries FROM ledger_accounts")
	if now := original.one("SELECT entry FROM audit_head"); now <= audited {
		t.Errorf("the original has %d entries in its audit log, the backup %d: nothing came after it", now, audited)
	}
	const entries = "SELECT e.number, e.entry, e.hour, e.seconds, e.amount, e.at_most, e.unbounded, e.round, " +
		"r.resource_id, l.meter, l.monthly, g.team, g.duty FROM ledger_entries e JOIN ledger_resources r ON r.id = " +
		"e.resource JOIN ledger_lines l ON l.id = e.line JOIN ledger_series s ON s.id = l.series JOIN ledger_groups g ON " +
		"g.id = s.grp WHERE e.number <= %d ORDER BY e.number"
	for _, q := range []struct {
		what, query string
		// least is the minimum number of rows, so that something is compared.
		least int
	}{
		{"the audit log", fmt.Sprintf("SELECT * FROM audit WHERE id <= %d ORDER BY id", audited), 8},
		{"the ledger", fmt.Sprintf(entries, posted), 2 * workers},
		{
			"the sum of the ledger",
			fmt.Sprintf("SELECT COUNT(*), CAST(SUM(amount) AS BIGINT), CAST(SUM(seconds) AS BIGINT)"+
				" FROM ledger_entries WHERE number <= %d", posted), 1},
		{"exemptions", "SELECT * FROM keeps WHERE reason = 'a demo'", 1},
		{"requests for approval", "SELECT * FROM requests WHERE subject NOT LIKE '%larger%' ORDER BY id", 1},
		{"reservations of budgets", "SELECT * FROM holds ORDER BY id", 1},
		{"decisions of the gate", "SELECT * FROM decisions WHERE name <> 'larger' ORDER BY id", 2},
		{"finished actions", "SELECT * FROM items WHERE first_round <= (SELECT MIN(first_round) FROM items)", 1},
		{"tokens", "SELECT id, hash, name, roles, created_by, created_at, expires_at FROM tokens ORDER BY id", 1},
	} {
		got, want := s.rows(q.query), original.rows(q.query)
		if len(got) < q.least || !slices.Equal(got, want) {
			t.Errorf("%s in the backup:\n%s\nwant:\n%s", q.what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	// The sums used for costs and budgets equal those of the entries: the backup is consistent.
	sum := s.one("SELECT CAST(SUM(amount) AS BIGINT) FROM ledger_entries")
	if rolled := s.one("SELECT CAST(SUM(amount) AS BIGINT) FROM ledger_group_sums WHERE grain = 0"); rolled != sum ||
		sum <= 0 {
		t.Errorf("the hours of the ledger come to %d nano-dollars, its entries to %d", rolled, sum)
	}
	if n := s.one("SELECT COUNT(*) FROM keeps") +
		s.one("SELECT COUNT(*) FROM decisions WHERE name = 'larger'"); n != 1 {
		t.Errorf("the backup holds %d exemptions and decisions of after it", n-1)
	}
}
