package store_test

import (
	"bytes"
	"compress/gzip"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/usage"
)

var update = flag.Bool("update", false,
	"write databases of the present schema to testdata, for upgrades to come; PostgreSQL's needs pg_dump")

func TestMigrationsComeInPairs(t *testing.T) {
	var names [2][]string
	for i, dir := range []string{"migrations/sqlite", "migrations/postgres"} {
		files, err := fs.ReadDir(store.Migrations, dir)
		if err != nil {
			t.Fatal(err)
		}
		last := 0
		for _, f := range files {
			names[i] = append(names[i], f.Name())
			var number int
			if _, err := fmt.Sscanf(f.Name(), "%05d_", &number); err != nil || number <= last {
				t.Errorf("%s/%s: want a name that begins with a number after %d", dir, f.Name(), last)
			}
			last = number
			text, err := fs.ReadFile(store.Migrations, dir+"/"+f.Name())
			if err != nil || bytes.Contains(text, []byte("+goose Down")) {
				t.Errorf("%s/%s leads back, or cannot be read: %v", dir, f.Name(), err)
			}
		}
	}
	if diff := cmp.Diff(names[0], names[1]); diff != "" {
		t.Errorf("migrations (-sqlite +postgres):\n%s", diff)
	}
}

func TestBothDatabasesHaveTheSameColumns(t *testing.T) {
	var columns [2][]string
	for i, query := range []string{
		"SELECT t.name || '.' || c.name FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table' AND " +
			"t.name NOT LIKE 'sqlite%'",
		"SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = 'public'",
	} {
		at := databases[i].open(t)
		open(t, at)
		columns[i] = texts(t, raw(t, at), query)
		slices.Sort(columns[i])
	}
	if diff := cmp.Diff(columns[0], columns[1]); diff != "" || len(columns[0]) == 0 {
		t.Errorf("%d columns (-sqlite +postgres):\n%s", len(columns[0]), diff)
	}
}

// schemas are queries that read a whole schema.
var schemas = map[string][]string{
	"SQLite": {"SELECT type || ' ' || name || ': ' || COALESCE(sql, '') FROM sqlite_master ORDER BY 1"},
	"PostgreSQL": {
		"SELECT table_name || '.' || column_name || ': ' || data_type || ' ' || is_nullable || ' ' || " +
			"COALESCE(collation_name, '')" +
			" FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1",
		"SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
		"SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1",
		"SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = " +
			"'public'::regnamespace ORDER BY 1",
	},
}

// TestUpgradesOldDatabases opens every old database in testdata: nothing is lost, and the schema equals that of
// a new one.
func TestUpgradesOldDatabases(t *testing.T) {
	if *update {
		preserve(t)
	}
	for _, d := range databases {
		pattern, restore := "testdata/schema-*.db.gz", restoreSQLite
		if d.name == "PostgreSQL" {
			pattern, restore = "testdata/schema-*.sql", restorePostgres
		}
		old, err := filepath.Glob(pattern)
		if err != nil || len(old) == 0 {
			t.Fatalf("no old database %s: %v", pattern, err)
		}
		fresh := d.open(t)
		open(t, fresh)
		for _, file := range old {
			t.Run(filepath.Base(file), func(t *testing.T) {
				at := d.open(t)
				restore(t, file, at)
				s := open(t, at)
				if diff := cmp.Diff(past, recall(t, s)); diff != "" {
					t.Errorf("what was kept (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(booksOf(t, file), recallBooks(t, s)); diff != "" {
					t.Errorf("the books (-want +got):\n%s", diff)
				}
				if n, err := s.VerifyAudit(t.Context()); err != nil || n.Entry == 0 {
					t.Errorf("the audit log: %d entries, %v", n.Entry, err)
				}
				for _, query := range schemas[d.name] {
					if diff := cmp.Diff(texts(t, raw(t, fresh), query), texts(t, raw(t, at), query)); diff != "" {
						t.Errorf("the schema (-new +upgraded):\n%s", diff)
					}
				}
				if err := s.Actions().Record(t.Context(), action.Entry{At: noon, What: "upgraded"}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// memory is the content of the old databases.
type memory struct {
	Items    []action.Item
	Keeps    []action.Keep
	Freeze   *action.Freeze
	Clock    *action.Clock
	Requests []approval.Request
	Entries  []action.Entry
}

// past is the content of every old database. It must not use fields added later.
var past = func() memory {
	ref := inventory.Ref{
		Cloud: "aws", Account: "123456789012", Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-0abc",
	}
	warned := action.Item{
		ID: "1f", Account: "aws/123456789012", Ref: ref, Identity: "2026-03-01T00:00:00Z", Source: "idle-gpu-machines",
		Do: policy.Do{Verb: policy.Terminate, SaveDisks: true}, Gang: []inventory.Ref{ref}, Phase: action.Warned,
		Because: "idle for 6d 4h", Class: "duty", FirstRound: 1, FirstAt: noon, WarnedRound: 2,
		WarnedAt:  noon.Add(time.Minute),
		GraceFrom: noon.Add(time.Minute), Grace: 15 * time.Minute, Recipients: []string{"slack:#vision"},
		UpdatedAt: noon.Add(2 * time.Minute), Version: 1,
	}
	acting := warned
	acting.ID, acting.Ref.ID, acting.Phase = "2f", "i-0def", action.Acting
	acting.Steps = []action.Step{
		{
			Name: "snapshot", Key: "2f-0", Params: `{"volume":"vol-1"}`, IntentAt: noon,
			Receipt: "snap-1", AcceptedAt: noon,
			ConfirmedAt: noon, Attempts: 1,
		},
		{
			Name: "terminate", Key: "2f-1", Undo: "<none/>", IntentAt: noon.Add(time.Second), Attempts: 2,
			Error: "throttled",
		},
	}
	acting.Step = 1
	return memory{
		Items:  []action.Item{warned, acting},
		Keeps:  []action.Keep{{Ref: ref, Until: inventory.KeepForever, Reason: "demo", By: "ana", At: noon}},
		Freeze: &action.Freeze{At: noon, By: "ana", Reason: "incident 42"},
		Clock:  &action.Clock{Wall: noon, Boot: "b0", Uptime: time.Hour},
		Requests: []approval.Request{{
			ID: "3f", Kind: "fix", Subject: "delete vol-1", PlanHash: "hash", Plan: `{"delete":"vol-1"}`,
			Amount: 12 * money.USD, Roles: []string{"approver"},
			AskedBy: "ana", AskedAt: noon, ExpiresAt: noon.Add(24 * time.Hour),
			State: approval.Approved, DecidedBy: "bo",
			Reason: "fine", DecidedAt: noon, Version: 1,
		}},
		Entries: []action.Entry{
			{
				ID: 1, At: noon, Account: "aws/123456789012", Round: 2,
				Actor: "policy idle-gpu-machines", What: "warned",
				Resource: ref.String(), Item: "1f",
				Verb: "terminate", Because: "idle for 6d 4h", Outcome: "slack:#vision",
				Evidence: []usage.Evidence{
					{
						Signal: "gpu_util_max_pct", Value: "0.4", Window: time.Hour, Coverage: 0.99,
						Source: "cloudwatch",
					},
					usage.Fact("age", "6d", "ec2"),
				}},
			{
				ID: 2, At: noon, Account: "aws/123456789012", Actor: "ana", What: "keep", Resource: ref.String(),
				Because: "demo", Outcome: "until 9999-01-01T00:00:00Z",
			},
			{ID: 3, At: noon, Actor: "ana", What: "freeze", Because: "incident 42"},
		},
	}
}()

// remember writes past into a new state.
func remember(t *testing.T, s *store.Store) {
	t.Helper()
	a := s.Actions()
	_, _, err := a.BeginRound(t.Context(), "aws/123456789012", *past.Clock)
	for i, it := range past.Items {
		it.Version = 0
		if i == 0 {
			_, e := a.Save(t.Context(), it, past.Entries[0])
			err = errors.Join(err, e)
			continue
		}
		_, e := a.Admit(t.Context(), action.Batch{
			Account: it.Account, Source: it.Source, Now: noon, Admissions: []action.Admission{
				{Item: it, Hourly: money.USD},
			},
		})
		err = errors.Join(err, e)
	}
	r := past.Requests[0]
	r.Version = 0
	_, e := s.Approvals().PutRequest(t.Context(), r, approval.Event{At: r.AskedAt, By: r.AskedBy})
	if err := errors.Join(err, e, a.PutKeep(t.Context(), past.Keeps[0]), a.Freeze(t.Context(), *past.Freeze)); err !=
		nil {
		t.Fatal(err)
	}
}

// recall reads everything that a state holds.
func recall(t *testing.T, s *store.Store) memory {
	t.Helper()
	a, m := s.Actions(), memory{}
	var errs [6]error
	m.Items, errs[0] = a.Items(t.Context(), "aws/123456789012", action.ItemQuery{})
	m.Keeps, errs[1] = a.Keeps(t.Context(), noon)
	m.Freeze, errs[2] = a.Frozen(t.Context())
	m.Requests, errs[3] = s.Approvals().Requests(t.Context(), "")
	errs[4] = a.Entries(t.Context(), action.Query{}, func(e action.Entry) error {
		m.Entries = append(m.Entries, e)
		return nil
	})
	_, m.Clock, errs[5] = a.BeginRound(t.Context(), "aws/123456789012", action.Clock{Wall: noon})
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return m
}

// preserve writes past in the current schema to testdata.
func preserve(t *testing.T) {
	for _, d := range databases {
		at := d.open(t)
		s, err := store.Open(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		remember(t, s)
		rememberBooks(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		name := "testdata/schema-" + texts(t, raw(t, at),
			"SELECT CAST(MAX(version_id) AS TEXT) FROM goose_db_version")[0]
		if at.URL == "" {
			err = os.WriteFile(name+".db.gz", packed(t, filepath.Join(at.Dir, store.FileName)), 0o644)
		} else {
			err = os.WriteFile(name+".sql", dumped(t, at.URL), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func packed(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// noise matches lines of a dump for its own shell, and comments.
var noise = regexp.MustCompile(`(?m)^(\\|--).*\n|^\n`)

func dumped(t *testing.T, url string) []byte {
	t.Helper()
	out, err := exec.Command("pg_dump", "--no-owner", "--inserts", url).Output()
	if err != nil {
		t.Fatalf("pg_dump: %v", err)
	}
	return noise.ReplaceAll(out, nil)
}

func restoreSQLite(t *testing.T, file string, at store.Options) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	write(t, at.Dir, store.FileName, string(content))
}

func restorePostgres(t *testing.T, file string, at store.Options) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw(t, at).Exec(string(text)); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// texts reads a column.
func texts(t *testing.T, db *sql.DB, query string) []string {
	t.Helper()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
