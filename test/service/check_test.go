package service_test

import (
	"database/sql"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // drivers for reading the state directly
	_ "modernc.org/sqlite"
)

// open opens the state without curfew.
func (s *service) open() *sql.DB {
	s.t.Helper()
	driver, at := "pgx", s.state[1]
	if s.state[0] == "--data-dir" {
		driver, at = "sqlite", "file:"+filepath.Join(at, "curfew.db")+"?_pragma=busy_timeout(30000)"
	}
	db, err := sql.Open(driver, at)
	if err != nil {
		s.t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	return db
}

// audit counts the audit entries of each machine.
func (s *service) audit() map[string]map[string]int {
	s.t.Helper()
	db := s.open()
	defer db.Close()
	rows, err := db.QueryContext(s.t.Context(), "SELECT resource, what FROM audit WHERE item <> ''")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]map[string]int{}
	for rows.Next() {
		var resource, what string
		if err := rows.Scan(&resource, &what); err != nil {
			s.t.Fatal(err)
		}
		id := resource[strings.LastIndexByte(resource, '/')+1:]
		if out[id] == nil {
			out[id] = map[string]int{}
		}
		out[id][what]++
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// quarantine returns why nothing acts by the state; empty if it is accepted as the newest.
func (s *service) quarantine() (why string) {
	s.t.Helper()
	db := s.open()
	defer db.Close()
	if err := db.QueryRowContext(s.t.Context(), "SELECT quarantine FROM freezes").Scan(&why); err != nil {
		s.t.Fatal(err)
	}
	return why
}

// charged returns the ledger's charges for the time of each machine, in dollars.
func (s *service) charged() map[string]float64 {
	s.t.Helper()
	db := s.open()
	defer db.Close()
	rows, err := db.QueryContext(s.t.Context(), "SELECT r.resource_id, CAST(SUM(e.amount) AS BIGINT) FROM "+
		"ledger_entries e JOIN ledger_resources r ON r.id = e.resource WHERE r.kind = 'instance' GROUP BY "+
		"r.resource_id")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]float64{}
	for rows.Next() {
		var id string
		var amount int64
		if err := rows.Scan(&id, &amount); err != nil {
			s.t.Fatal(err)
		}
		out[id] = float64(amount) / 1e9
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// late is how long a machine may run before a round sees it, and after the newest round, on a busy
// machine with faults.
const late = 30 * time.Second

// check holds the provider, the audit log and the ledger against one another when all has
// become calm: nothing is done twice or forgotten, nothing that worked or is unknown was
// ended, and each machine is charged for the time in which it ran. Outage is for how long
// nothing could be read at most.
func (s *service) check(outage time.Duration) {
	s.t.Helper()
	c := s.cloud
	s.everywhere(time.Now(), 2*time.Minute)
	read := c.read()
	for range 2 { // rounds of that time have ended and were posted
		s.everywhere(time.Now(), 2*time.Minute)
	}
	calls := map[string][]ended{}
	for _, e := range c.calls() {
		calls[e.id] = append(calls[e.id], e)
	}
	log, charged := s.audit(), s.charged()
	if why := s.quarantine(); why != "" {
		s.t.Errorf("the state is taken for an older one: %s", why)
	}
	c.mu.Lock()
	warned := c.warned
	first := map[string]time.Time{}
	for account, times := range c.listed {
		first[account] = times[0]
	}
	c.mu.Unlock()
	for _, m := range c.machines() {
		of, state := calls[m.id], c.state(m.id)
		until := read[m.account]
		switch {
		case m.does != "idle" && (len(of) > 0 || state != "running"):
			s.t.Errorf("%s, whose does is %q, is %s after %d calls: nothing may end it", m.id, m.does, state, len(of))
		case m.does == "idle":
			if s.settled { // a call that the provider refused is repeated
				of = slices.DeleteFunc(of, func(e ended) bool { return e.code != http.StatusOK })
			}
			if len(of) != 1 || !of[0].running || state == "running" {
				s.t.Errorf("%s is %s after %d calls, want one: %+v", m.id, state, len(of), of)
				continue
			}
			until = of[0].at
			if log[m.id]["intent"] == 0 || log[m.id]["confirmed"] != 1 {
				s.t.Errorf("%s is stopped; the audit log says %v", m.id, log[m.id])
			}
			if at, told := warned[m.id]; !told || until.Sub(at) < s.grace-time.Second {
				s.t.Errorf("%s was stopped at %s, %s after its warning", m.id,
					until.Format(time.TimeOnly), until.Sub(at))
			}
		}
		// The simple calculation: from the first listing to the end or the last listing.
		from := m.launched
		if first[m.account].After(from) {
			from = first[m.account]
		}
		ran := until.Sub(from)
		least, most := (ran-late-outage).Hours()*hourly, (ran+late).Hours()*hourly
		if !from.After(first[m.account]) { // it existed before the first fault
			least = (until.Sub(s.began) - late).Hours() * hourly
		} else { // its launch was hours ago, so charges may start at the previous reading
			most = (ran + late + outage).Hours() * hourly
		}
		if got := charged[m.id]; got > most || got < math.Max(0, least) {
			s.t.Errorf("%s (%s, %s) ran for %s and is charged $%.5f, want $%.5f to $%.5f", m.id,
				m.does, state, ran, got, least,
				most)
		}
	}
}
